"""Whole studies on the stand-in model, from the plan to the answer."""

import dataclasses
import json
import os
import shutil
from statistics import fmean

import pytest

from tests.study.studies import write_study
from tests.study.tiny_study import TEXT, load_study, make_study, run_tiny, small_documents
from trajsoup.core.budget import Setting
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.errors import StudyError
from trajsoup.merge.verify import verify_soup
from trajsoup.report.sections.ablations import sweep_table
from trajsoup.report.sections.answer import headlines
from trajsoup.report.sections.branches import screen_table
from trajsoup.report.sections.provenance import protocol_table
from trajsoup.report.sections.results import main_table
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.conditions import ConditionsRecord
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.files import Records, writing
from trajsoup.study.records.frontier import FrontierRecord
from trajsoup.study.records.geometry import GeometryRecord
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.run import run_study
from trajsoup.study.stages import STAGES
from trajsoup.study.status import stages_of
from trajsoup.study.sweeps.crossing import SERIAL


@pytest.fixture(scope="module")
def ran(tmp_path_factory, fork_point):
    return run_tiny(tmp_path_factory.mktemp("study") / "one", fork_point, more="    sweeps: paper\n")


def test_every_stage_leaves_its_record(ran):
    names = {"plan", "train", "validation", "screen", "rows", "evaluations", "comparisons", "geometry", "answer"}
    names |= {"frontier", "theory", "conditions"}
    assert names <= {path.stem for path in ran.records.folder.glob("*.json")}
    assert set(ran.records.every(SweepRecord)) == {
        "crossing", "prescribed", "prescribed-scaling",
        "horizons", "coefficients", "selections", "allocation", "sampling", "scaling", "interpolation", "frontier",
    }  # fmt: skip


def test_a_finished_study_is_not_computed_again_and_needs_no_corpus(ran, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in ran.records.folder.rglob("*.json")}
    again = run_study(ran.setup, corpus=None, cache=ran.setup.output / "nowhere")
    assert again.made == ()
    assert before == {path: path.stat().st_mtime_ns for path in ran.records.folder.rglob("*.json")}


def test_a_record_reads_back_as_it_was_written(ran):
    with writing(ran.setup.output) as records:
        read = [records.read(stage.record) for stage in STAGES if not stage.record.SEVERAL]
        for record in [*filter(None, read), *records.every(SweepRecord).values()]:
            path = records.path(type(record), record.name if record.SEVERAL else None)
            text = path.read_text()
            records.write(record)
            assert path.read_text() == text


def test_records_hold_no_absolute_path(ran):
    for path in ran.records.folder.rglob("*.json"):
        assert str(ran.setup.output) not in path.read_text(), path.name


def test_the_geometry_record_has_every_completion_field_of_the_paper(ran):
    record, plan = ran.records.require(GeometryRecord), ran.records.require(PlanRecord)
    fields = record.completion
    assert fields.averaging_rule == "tail-k"
    assert fields.averaging_window == record.window >= 1
    assert fields.interval == record.interval
    assert fields.points == {d.branch: d.points for d in record.directions}
    assert fields.variance_share == {d.branch: d.variance_share for d in record.directions}
    assert fields.interpolation_grid == tuple(i / 10 for i in range(11))
    assert fields.interpolation_horizons == tuple(path.tokens for path in record.paths)
    assert len(fields.interpolation_horizons) == 2
    assert max(fields.gain_offsets) == plan.horizon
    assert record.compute.fitted_points.keys() == {"Raw", "Trajectory Soup"}
    assert any((n, t) == (3, plan.horizon) and k in (1, 2, 3) for n, t, k in record.compute.soups)
    assert record.compute.fit_windows["Trajectory Soup"] == "every point"
    assert "where raw training validates best" in record.compute.fit_windows["Raw"]
    assert fields.interpolation_k == 2 == fields.gain_k
    for path in record.paths:
        assert path.k == 2
        assert len(path.losses) == 11
        assert path.losses[round(10 * path.best_lambda)] == path.best_loss == min(path.losses)


def test_the_model_to_take_is_whatever_validates_best(ran):
    rows = ran.records.require(RowsRecord)
    best = rows.best()
    assert best.validation_loss == min(row.validation_loss for row in rows.rows)
    ingredients = json.loads((ran.soup / "soup.json").read_text())["ingredients"]
    assert sorted(i["weight"] for i in ingredients) == sorted(best.weights.values())
    raw = dataclasses.replace(rows.rows[0], validation_loss=best.validation_loss - 1)
    assert dataclasses.replace(rows, rows=(*rows.rows, raw)).best() is raw
    same = dataclasses.replace(raw, name="ours", strategy="trajectory-soup")  # one model under two names
    assert dataclasses.replace(rows, rows=(*rows.rows, raw, same)).best() is same


def mean_loss(scaling, *, n, k):
    """Over all soups of N branches at one K."""
    return fmean(v for row, v in scaling.items() if row.count("+") == n - 1 and row.endswith(f"/K={k}"))


def test_the_five_conditions_are_measured_from_the_records_they_name(ran):
    found = {c.name: c for c in ran.records.require(ConditionsRecord).conditions}
    assert list(found) == ["size", "skills", "alignment", "saturation", "fork point"]
    points = ran.records.every(SweepRecord)["crossing"].points
    serial = {p.budget_tokens: p.validation_loss for p in points if p.series == SERIAL}
    end = max(serial)
    scaling = {p.row: p.validation_loss for p in ran.records.require(SweepRecord, "scaling").points}
    single = {k: mean_loss(scaling, n=1, k=k) for k in (1, 2, 3)}
    k = min(single, key=single.get)
    assert found["size"].value == pytest.approx(single[k] - mean_loss(scaling, n=2, k=k))
    assert found["size"].wanted.startswith("worth of a second branch")
    assert found["size"].measured.endswith(f"(mean over pairs, K = {k})")
    assert found["saturation"].value == pytest.approx(serial[end // 2] - serial[end])
    assert found["saturation"].met == (found["saturation"].value <= 0.002)
    (beaten,) = found["fork point"].comparisons
    assert (beaten.model, beaten.reference) == ("single/EXP1", "fork-point")
    assert beaten.high < 0  # a few steps from noise are an improvement
    assert found["fork point"].met is True
    assert found["skills"].met is None  # without tasks
    assert found["alignment"].met is None
    lines = headlines(ran.records)
    assert 0 < len(lines) <= 6
    assert "not skills (no tasks" in lines[-1]


def test_the_record_of_evaluations_says_how_models_were_chosen_and_scored(ran):
    found = ran.records.require(EvaluationsRecord)
    fields, documents = found.protocol, found.evaluations[0].loss.count
    assert fields.k_grid == (1, 2, 3)
    assert fields.scored_documents["test"] == documents
    assert fields.scored_tokens["validation"] > fields.scored_documents["validation"] > 0
    assert "fewer tokens first" in fields.tie_rule
    assert fields.masking.startswith("none")
    assert "per token" in fields.normalisation
    assert fields.overall_average is None
    shown = dict(protocol_table(ran.records)[0].texts)
    assert shown["K is chosen from"] == "1, 2, 3"


def test_gains_of_pairs_are_against_the_mean_of_their_ends(ran):
    record = ran.records.require(GeometryRecord)
    assert {(p.first, p.second) for p in record.pairs} == {("EXP1", "EXP2"), ("EXP1", "EXP3"), ("EXP2", "EXP3")}
    assert record.relation.pairs == 3
    scaling = {p.row: p.validation_loss for p in ran.records.require(SweepRecord, "scaling").points}
    k = next(p.k for p in ran.records.require(SweepRecord, "interpolation").points)
    pair = next(p for p in record.pairs if (p.first, p.second) == ("EXP1", "EXP2"))
    ends = [scaling[f"scaling/{name}/K={k}"] for name in ("EXP1", "EXP2")]
    gain = sum(ends) / 2 - scaling[f"scaling/EXP1+EXP2/K={k}"]
    assert pair.gains[str(ran.records.require(PlanRecord).horizon)] == pytest.approx(gain)


def test_predictions_were_tested_on_soups_that_were_held_out(ran):
    record = ran.records.require(TheoryRecord)
    assert {held.name for held in record.held_out} == {"larger soups", "new branches"}
    assert record.split is Split.VALIDATION
    assert record.held_out_words[0].startswith("Held out: from anchors and pairs")


def test_a_kept_matrix_is_not_measured_again(ran, monkeypatch):
    from trajsoup.engine import kept_gram
    from trajsoup.study.workbench import Workbench

    def refuse(*_, **__):
        raise AssertionError("a weight was read")

    monkeypatch.setattr(kept_gram, "gram", refuse)
    bench = Workbench(ran.setup, cache=ran.setup.output, progress=lambda *_: None)
    keys = [c.key for branch in bench.train.branches for c in branch.checkpoints]
    assert bench.gram(["fork-point", *keys], centre="fork-point").keys == ("fork-point", *keys)


def test_every_choice_was_made_on_validation_and_every_result_is_on_test(ran):
    for row in ran.records.require(RowsRecord).rows:
        assert row.chosen_on.split is Split.VALIDATION
        assert abs(sum(row.weights.values()) - 1) < 1e-9
    assert {e.split for e in ran.records.require(EvaluationsRecord).evaluations} == {Split.TEST}


def test_limited_rows_stay_within_the_budget_of_one_branch(ran):
    horizon = ran.records.require(PlanRecord).horizon
    limited = [row for row in ran.records.require(RowsRecord).rows if row.setting is Setting.LIMITED]
    assert len(limited) == 3
    for row in limited:
        assert row.budget_tokens <= horizon
        assert len(row.branches) >= 2


def test_both_sides_of_the_answer_have_the_same_freedom(ran):
    rows = {row.name: row for row in ran.records.require(RowsRecord).rows}
    answer = ran.records.require(AnswerRecord)
    soup, single = rows[answer.soup], rows[answer.single]
    assert set(soup.chosen_on.free) == {"branches", "k"}
    assert set(single.chosen_on.free) == {"k"}  # the baseline's run: a branch to choose would cost its tokens too
    assert single.branches == (ran.records.require(PlanRecord).baseline,)
    assert soup.budget_tokens == single.budget_tokens == ran.records.require(PlanRecord).horizon


def test_the_chosen_row_is_the_best_of_its_options_on_validation(ran):
    rows = ran.records.require(RowsRecord).rows
    alone = [row.validation_loss for row in rows if row.name.startswith("single/")]
    chosen = next(row for row in rows if row.name == "single-merge")
    assert chosen.validation_loss == min(alone)


def test_the_answer_is_the_difference_of_the_two_test_losses(ran):
    answer = ran.records.require(AnswerRecord)
    losses = {e.row: e.loss.value for e in ran.records.require(EvaluationsRecord).evaluations}
    assert answer.loss.signal is Signal.LOSS
    assert answer.loss.difference == pytest.approx(losses[answer.soup] - losses[answer.single], abs=1e-9)
    assert answer.loss.low <= answer.loss.difference <= answer.loss.high


def test_the_soup_is_a_folder_that_verifies(ran):
    assert ran.soup is not None
    assert (ran.soup / "config.json").is_file()
    verify_soup(ran.soup)


def test_the_tables_name_every_row_and_their_split(ran):
    table = main_table(ran.records)
    assert len(table.rows) == len(ran.records.require(RowsRecord).rows)
    assert "Test split" in table.notes[0]
    assert "Trajectory Soup (Limited)" in table.markdown()
    assert table.csv().count("\n") == len(table.rows) + 1
    assert "EXP3" in screen_table(ran.records.require(ScreenRecord)).markdown()
    for name in ran.records.every(SweepRecord):
        assert sweep_table(ran.records.require(SweepRecord, name)).rows


def test_the_middle_of_an_interpolation_is_the_soup_of_two_anchors(ran):
    points = ran.records.require(SweepRecord, "interpolation").points
    assert [p.x for p in points] == [i / 10 for i in range(11)]
    middle = points[5]
    assert middle.merge_size == points[0].merge_size + points[-1].merge_size


def test_the_dense_and_the_sparse_pool_merge_as_many_checkpoints(ran):
    sizes = {p.merge_size for p in ran.records.require(SweepRecord, "sampling").points}
    assert len(sizes) == 1


def test_every_point_of_every_sweep_carries_its_row_of_w(ran):
    for name in ran.records.every(SweepRecord):
        for point in ran.records.require(SweepRecord, name).points:
            assert len(point.weights) == point.merge_size
            assert abs(sum(point.weights.values()) - 1) < 1e-9
            assert point.validation_loss is not None


def test_every_strategy_is_reported_on_test_at_every_horizon(ran):
    points = ran.records.require(SweepRecord, "horizons").points
    full = ran.records.require(PlanRecord).horizon
    at_the_end = {p.series for p in points if p.x == full}
    assert {
        "Raw, best checkpoint",
        "Single-Trajectory Merge",
        "Full Soup (Limited)",
        "Trajectory Soup (Extended)",
    } <= at_the_end
    assert len({p.x for p in points}) == 2
    assert all(p.test_loss is not None for p in points)


def test_the_frontier_has_its_costs_and_its_two_laws(ran):
    found, sweep = ran.records.require(FrontierRecord), ran.records.require(SweepRecord, "frontier")
    scores = {p.row: p for p in sweep.points}
    for p in found.points:
        assert p.cost.training_flops == pytest.approx(found.flops_per_token * p.budget_tokens)
        if p.series == "Raw":
            assert p.cost.merge_read_bytes == p.cost.validation_passes == 0
        else:
            assert p.cost.merge_read_bytes == scores[p.row].merge_size * p.cost.merge_write_bytes
            assert p.cost.validation_passes > p.cost.checkpoints
    assert {law.series for law in found.laws} == {"Raw", "Trajectory Soup"}
    for law in found.laws:
        assert (law.exponent is None) == (law.missing is not None)
        every = {p.test_loss.value for p in sweep.points if p.series == law.series}
        assert {score for _, score in (*law.points, *law.beyond)} == every
        assert not law.beyond or law.series == "Raw"


def test_predicted_and_measured_soups_stand_side_by_side(ran):
    found = ran.records.require(TheoryRecord)
    assert {(c.n_branches, c.fitted) for c in found.cells} == {(1, True), (2, True), (3, False)}
    assert found.held_out[0].soups == len(found.soups) == 3
    swept = {(p.branches, p.k): p.validation_loss for p in ran.records.require(SweepRecord, "scaling").points}
    for soup in found.soups:
        assert soup.measured == pytest.approx(swept[soup.branches, soup.k])


def test_a_study_reads_each_checkpoint_from_disk_once(ran, tmp_path, monkeypatch):
    from collections import Counter

    from trajsoup.store import known_digests
    from trajsoup.store.resident import ResidentFiles
    from trajsoup.store.source import Source

    reads = Counter()
    load, pread = ResidentFiles.load, Source._pread

    def counted_load(self, path):
        reads[path.parent.name, path.parent.parent.name] += 1
        return load(self, path)

    monkeypatch.setattr(ResidentFiles, "load", counted_load)
    monkeypatch.setattr(Source, "_pread", lambda self, *args: pytest.fail(f"{self.path} was read by a pass") and pread)
    monkeypatch.setattr(known_digests, "digest_file", lambda path, how: pytest.fail(f"{path} was hashed from disk"))
    folder = tmp_path / "copy"
    shutil.copytree(ran.setup.output, folder, symlinks=True)
    for name in ("records", "scores", "soup"):
        shutil.rmtree(folder / name)
    setup = dataclasses.replace(ran.setup, output=folder)
    again = run_study(setup, corpus=small_documents(tmp_path), cache=tmp_path / "cache")
    branches = {path.name for path in (folder / "branches").iterdir()}
    of_branches = {key: count for key, count in reads.items() if key[1] in branches}
    assert len(of_branches) == 18
    assert set(of_branches.values()) == {1}
    for kind, name in ((RowsRecord, None), (EvaluationsRecord, None), (AnswerRecord, None), (SweepRecord, "scaling")):
        assert again.records.path(kind, name).read_bytes() == ran.records.path(kind, name).read_bytes()


def test_an_allocation_keeps_its_merge_size(ran):
    points = ran.records.require(SweepRecord, "allocation").points
    assert len({p.merge_size for p in points}) == 1
    assert len(points) >= 3


def test_status_lists_what_is_done_and_what_is_out_of_date(ran, tmp_path):
    assert {s.state for s in stages_of(ran.setup)} == {"done"}
    folder = tmp_path / "copy"
    shutil.copytree(ran.setup.output, folder, symlinks=True)
    path = folder / "records" / "screen.json"
    changed = json.loads(path.read_text()) | {"tolerance": 0.4}
    path.write_text(json.dumps(changed))
    states = {s.stage: s.state for s in stages_of(dataclasses.replace(ran.setup, output=folder))}
    assert states["screen"] == "done"
    assert states["rows"] == "out of date"


def test_a_changed_evaluation_trains_nothing_again(ran, tmp_path, fork_point):
    evaluation = dataclasses.replace(ran.setup.evaluation, ks=(1, 2))
    folder = tmp_path / "copy"
    shutil.copytree(ran.setup.output, folder, symlinks=True)
    setup = dataclasses.replace(ran.setup, output=folder, evaluation=evaluation, sweeps=())
    again = run_study(setup, corpus=small_documents(tmp_path), cache=tmp_path / "cache")
    assert "train" not in again.made
    assert "rows" in again.made
    assert {row.k for row in again.records.require(RowsRecord).rows} <= {None, 1, 2}


def test_two_runs_of_one_study_at_once_are_refused(ran):
    from trajsoup.store.lock import holding

    with (
        holding(ran.setup.output / ".run.lock"),
        pytest.raises(StudyError, match=rf"is being run by process {os.getpid()} on .*: wait for it"),
    ):
        run_study(ran.setup)


def test_another_seed_changes_fork_point_order_and_folder(tmp_path, fork_point):
    from trajsoup.study.file.study import with_seed

    setup = make_study(tmp_path / "one", fork_point)
    other = with_seed(setup, 2)
    assert other.output == setup.output / "seeds" / "2"
    assert all(other.recipes[name].seed != recipe.seed for name, recipe in setup.recipes.items())
    assert other.digest != setup.digest


def test_the_example_records_can_be_read():
    from pathlib import Path

    records = Records(Path(__file__).parents[1] / "data" / "example-study")
    read = [records.read(stage.record) for stage in STAGES if not stage.record.SEVERAL]
    found = [*filter(None, read), *records.every(SweepRecord).values()]
    assert len(found) == len(list(records.folder.rglob("*.json")))


def test_runs_that_exist_enter_after_training_and_give_the_same_rows(ran, tmp_path):
    from trajsoup.merge.branches import save_branches, scan_branches
    from trajsoup.study.file.study import load_study

    folders = sorted(path for path in (ran.setup.output / "branches").iterdir() if path.is_dir())
    found = scan_branches(folders, fork_point=ran.setup.output / "fork")
    path = tmp_path / "found.yaml"
    save_branches(found, path)
    settings = (
        "evaluate: {validation_tokens: 2k, test_tokens: 2k, probe_tokens: 2k, ks: [1, 2, 3], horizons: 2, "
        "resamples: 200, tolerance: 0.5}\n"
    )
    (tmp_path / "some.txt").write_text("documents\n")
    path.write_text(path.read_text() + "corpus: {train: some.txt}\n" + settings)
    foreign = run_study(load_study(path), corpus=small_documents(tmp_path), cache=tmp_path / "cache")
    assert {branch.status for branch in foreign.records.require(TrainRecord).branches} == {"foreign"}

    def losses(records):
        return {e.row: e.loss.value for e in records.require(EvaluationsRecord).evaluations}

    assert losses(foreign.records) == losses(ran.records)
    assert foreign.soup is not None


def test_a_run_killed_before_its_answer_keeps_the_soup_it_made(ran):
    path = ran.records.path(AnswerRecord)
    text, soup = path.read_text(), ran.soup / "soup.json"
    before = soup.stat().st_mtime_ns
    path.unlink()
    again = run_study(ran.setup, corpus=None, cache=ran.setup.output / "nowhere")
    assert again.made == ("answer",)
    assert path.read_text() == text
    assert soup.stat().st_mtime_ns == before
    assert not list(ran.setup.output.glob("soup-*"))


def test_a_study_of_one_branch_ends_with_its_merge_and_says_that_there_is_no_soup(tmp_path, fork_point):
    lines = [line for line in TEXT.splitlines() if not line.strip().startswith(("EXP2", "EXP3"))]
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "fork").symlink_to(fork_point)
    setup = load_study(write_study(folder, "\n".join(lines)))
    ran = run_study(setup, corpus=small_documents(folder), cache=folder / "cache")
    answer = ran.records.require(AnswerRecord)
    assert answer.loss is None
    assert any("no soup to compare" in words for words in answer.words)
    assert answer.why_no_soup == "it has one branch"
    assert answer.soup == "single-merge"
    assert (setup.output / answer.soup_folder / "soup.json").is_file()


def test_a_study_is_planned_once_and_the_plan_is_passed_on(tmp_path, fork_point, monkeypatch):
    from trajsoup.study import workbench
    from trajsoup.study.stages.plan import plan_stage
    from trajsoup.study.stages.train import train_stage
    from trajsoup.study.train import branches

    planned = []
    for module in (workbench, branches):
        plan = module.plan_study
        monkeypatch.setattr(module, "plan_study", lambda study, plan=plan: planned.append(study) or plan(study))
    setup = make_study(tmp_path / "once", fork_point)
    bench = workbench.Workbench(
        setup,
        cache=tmp_path / "cache",
        progress=lambda what, done, total: None,
        corpus=small_documents(tmp_path),
        records=Records(setup.output, held=True),
    )
    assert plan_stage(bench)
    assert train_stage(bench)
    assert planned == [setup]
