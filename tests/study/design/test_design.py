"""`trajsoup design` at the size of a toy: probes, a record, a study that runs; killed or asked again, it goes on."""

import dataclasses
import json

import pytest
import yaml
from typer.testing import CliRunner

from tests.lm.stand_in import SEQUENCE
from tests.study.studies import make_fork_point, write_study
from tests.study.tiny_study import make_study, small_documents
from trajsoup.cli.app import app
from trajsoup.core.recipe import Recipe, Warmup
from trajsoup.core.schedule import Schedule, Shape
from trajsoup.errors import StudyError
from trajsoup.study.design.answer import design_study
from trajsoup.study.design.probes import candidates_of, order_name, probe_study
from trajsoup.study.design.study_file import changes_of, picked_branches, write_designed
from trajsoup.study.file.study import load_study
from trajsoup.study.records.design import DesignRecord
from trajsoup.study.records.files import Records

STEP = 8 * SEQUENCE
TEXT = f"""
    fork_point: fork
    corpus: builtin
    sequence_length: {SEQUENCE}
    horizon: {80 * STEP}
    checkpoint_every: {8 * STEP}
    max_epochs: 1000
    baseline: {{peak_lr: 3e-3, global_batch: 8, warmup: {8 * STEP}}}
    branches:
      EXP1: {{}}
      EXP2: {{seed: 1001}}
      EXP3: {{peak_lr: 2e-3, global_batch: 4}}
      EXP4: {{schedule: {{decay_to: 3e-4}}}}
    evaluate: {{validation_tokens: 4k, test_tokens: 4k, probe_tokens: 2k, ks: [1, 2], horizons: 2, resamples: 50,
               tolerance: 0.5}}
    sweeps: []
"""


@pytest.fixture(scope="module")
def fork_point(tmp_path_factory):
    return make_fork_point(tmp_path_factory.mktemp("fork") / "model")


@pytest.fixture(scope="module")
def designed(tmp_path_factory, fork_point):
    folder = tmp_path_factory.mktemp("design")
    study = make_study(folder, fork_point, text=TEXT)
    return folder, study, design(folder, study)


def design(folder, study, **options):
    options = {"n_branches": 3, "share": 0.1, "propose": False, **options}
    return design_study(study, corpus=small_documents(folder), cache=folder / "cache", **options)


def test_the_record_tells_every_recipe_and_the_picked_set(designed):
    _, _, done = designed
    record = done.record
    assert [r.name for r in record.recipes] == ["EXP1", "order", "EXP3", "EXP4"]
    assert record.probe_tokens == 8 * STEP
    by_name = {r.name: r for r in record.recipes}
    assert by_name["EXP1"].gap == 0
    assert by_name["order"].gap == by_name["EXP1"].gap_other > 0
    assert by_name["EXP3"].changes == {"peak_lr": 2e-3, "global_batch": 4}
    assert by_name["EXP4"].loss_gap is not None
    assert len(record.branches) == sum(r.picked for r in record.recipes) == 3
    assert next(iter(record.branches)) == "EXP1"
    assert record.gain_low <= record.gain_high
    assert any("Branch with EXP1" in sentence for sentence in record.words)


def test_the_study_that_comes_out_can_be_run(designed):
    _, study, done = designed
    ready = load_study(done.study_file)
    assert list(ready.recipes) == list(done.record.branches)
    assert ready.horizon == study.horizon
    assert ready.output != study.output
    seeds = [recipe.seed for recipe in ready.recipes.values()]
    assert len(set(seeds)) == len(seeds)


def test_a_study_file_that_somebody_changed_is_not_overwritten(designed):
    _, study, done = designed
    text = done.study_file.read_text()
    done.study_file.write_text(text + "max_epochs: 7\n")
    with pytest.raises(StudyError, match="move it away, then design again"):
        write_designed(study, done.record)
    done.study_file.write_text(text)
    assert write_designed(study, done.record) == done.study_file


def test_asked_again_nothing_is_trained_or_made(designed):
    folder, study, done = designed
    before = sorted((p, p.stat().st_mtime_ns) for p in study.output.rglob("checkpoint-*/*"))
    again = design(folder, study)
    assert not again.made
    assert again.record == done.record
    assert sorted((p, p.stat().st_mtime_ns) for p in study.output.rglob("checkpoint-*/*")) == before


def test_it_is_said_what_was_made_of_a_length_that_is_no_whole_number_of_steps(designed):
    folder, study, _ = designed
    said = []
    assert not design(folder, study, share=0.11, on_length=said.append).made  # the same probes
    (words,) = said
    assert words == (
        f"probes take {8 * STEP / 1000:g}k tokens, 10.0% of the horizon, for the 11.0% of --length: they save 4 times, and "
        f"all recipes end a step together every {STEP}"
    )
    said.clear()
    design(folder, study, share=0.1, on_length=said.append)
    assert not said


def test_a_design_that_lost_its_record_gives_the_same_from_the_probes(designed):
    folder, study, done = designed
    Records(study.output).path(DesignRecord).unlink()
    assert design(folder, study).record == done.record


def test_probes_share_the_baselines_order_but_for_the_replicate_and_end_their_schedules(tmp_path, fork_point):
    study = make_study(tmp_path, fork_point, text=TEXT)
    probes = probe_study(study, candidates_of(study, propose=True), share=0.1)
    base = study.baseline
    others = {name: recipe for name, recipe in probes.recipes.items() if name != order_name(study)}
    assert {recipe.seed for recipe in others.values()} == {base.seed}
    assert probes.recipes[order_name(study)].seed != base.seed
    assert probes.recipes["EXP4"].schedule == study.recipes["EXP4"].schedule  # ends at the probe's own horizon
    assert {recipe.warmup for recipe in probes.recipes.values()} == {Warmup(share=0.1)}
    assert {"lr-up", "momentum", "adamw"} <= set(others)
    assert "decay" not in others or others["decay"] != others["EXP4"]


def test_without_candidates_there_is_nothing_to_design(tmp_path, fork_point):
    text = TEXT.replace("      EXP3: {peak_lr: 2e-3, global_batch: 4}\n", "").replace(
        "      EXP4: {schedule: {decay_to: 3e-4}}\n", ""
    )
    study = make_study(tmp_path, fork_point, text=text)
    with pytest.raises(StudyError, match="leave out --no-propose"):
        candidates_of(study, propose=False)


def test_a_probe_that_would_be_half_of_the_horizon_is_refused(tmp_path, fork_point):
    study = make_study(tmp_path, fork_point, text=TEXT)
    wide = dataclasses.replace(study.baseline, global_batch=88)
    with pytest.raises(StudyError, match="batches that divide one another"):
        probe_study(study, {"wide": wide}, share=0.05)


def test_changes_are_written_so_that_they_are_read_back(tmp_path, fork_point):
    base = Recipe()
    changed = Recipe(
        momentum=0.9,
        peak_lr=1e-4,
        schedule=Schedule(shape=Shape.WSD, decay_to=1e-5, decay_share=0.3),
        warmup=Warmup(share=0.05),
        betas=(0.8, 0.9),
    )
    (tmp_path / "fork").symlink_to(fork_point)
    text = "fork_point: fork\nhorizon: 600B\ncheckpoint_every: 25B\nbranches:\n  A: {}\n  B: "
    study = load_study(write_study(tmp_path, text + json.dumps(changes_of(changed, baseline=base)) + "\n"))
    assert study.recipes["B"] == changed


def test_several_orders_of_the_baseline_have_names_and_seeds_of_their_own(tmp_path, fork_point):
    study = make_study(tmp_path, fork_point, text=TEXT)
    found = picked_branches(study, ["EXP1", "order", "order", "EXP3"], {"EXP3": study.recipes["EXP3"]})
    assert list(found) == ["EXP1", "order", "order-2", "EXP3"]
    assert len({changes.get("seed") for changes in found.values()}) == 4


def test_the_command_prints_the_answer_and_the_file(designed, monkeypatch):
    _, study, done = designed
    from trajsoup.study.design import answer

    def rounded(*_args, on_length, **_kwargs):
        on_length("probes take less")
        return done

    monkeypatch.setattr(answer, "design_study", rounded)
    result = CliRunner().invoke(app, ["design", str(study.path), "--branches", "3", "--length", "10%", "--no-propose"])
    assert result.exit_code == 0, result.output
    assert "note: probes take less" in result.stderr
    assert "Branch with EXP1" in result.output
    assert "study-designed.yaml" in result.output
    as_json = CliRunner().invoke(app, ["design", str(study.path), "--json"])
    assert json.loads(as_json.stdout)["branches"] == json.loads(json.dumps(done.record.branches))
    assert yaml.safe_load(done.study_file.read_text())["output"] == "study-designed"
