import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from tests.report.bowl import Bowl
from tests.report.conftest import SMALL
from tests.report.sample_study import CHECKPOINT_BYTES, write_study
from trajsoup.core.scores import ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.errors import StudyError
from trajsoup.report import contents as c
from trajsoup.report.contents import Evidence
from trajsoup.report.reading import read_contents
from trajsoup.report.reading_scaling import read_theory
from trajsoup.report.sections import sections
from trajsoup.study.records import results as r
from trajsoup.study.records.files import Records
from trajsoup.study.records.results import AnswerRecord, ComparisonsRecord, RowsRecord, SweepRecord
from trajsoup.study.sweeps.table import SWEEPS

EXAMPLE = Path(__file__).parents[1] / "data" / "example-study"


def test_a_folder_without_records_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(StudyError, match=r"no records/.*trajsoup run"):
        read_contents(tmp_path)


def test_the_answer_is_that_of_the_record(study, contents):
    record = Records(study).read(AnswerRecord)
    assert contents.answer.soup == record.soup
    assert contents.answer.loss.value == record.loss.difference
    assert (contents.answer.loss.low, contents.answer.loss.high) == (record.loss.low, record.loss.high)
    assert contents.answer.evidence is c.Evidence.STRONG
    assert contents.answer.folder == record.soup_folder


def test_the_exact_merge_names_every_ingredient_with_its_weight(study, contents):
    (row,) = [row for row in Records(study).read(RowsRecord).rows if row.name == contents.answer.shipped]
    for key, weight in row.weights.items():
        assert f"{key}={weight!r}" in contents.answer.command
    assert contents.answer.command.endswith("--output soup")


def test_the_soup_to_take_is_the_best_on_validation_and_not_the_one_of_the_headline(study, contents):
    rows = {row.name: row for row in Records(study).read(RowsRecord).rows}
    limited, extended = rows["trajectory-soup/limited"], rows["trajectory-soup/extended"]
    assert extended.validation_loss < limited.validation_loss
    assert (contents.answer.soup, contents.answer.shipped) == (limited.name, extended.name)


def test_a_point_of_a_sweep_has_the_row_of_w_that_gives_its_loss(contents):
    bowl = Bowl(SMALL)
    swept = {name: soup for name, soup in contents.soups.items() if name.partition("/")[0] in SWEEPS}
    assert {name.partition("/")[0] for name in swept} == set(SWEEPS)
    for name, soup in swept.items():
        weights = {i.checkpoint: i.weight for i in soup.ingredients}
        expected = bowl.scores(ValidationScores, weights, seed=1).losses.loss()
        assert soup.scores["validation loss"] == pytest.approx(expected, abs=1e-12), name


def test_selected_checkpoints_are_the_ingredients_of_the_best_soup(contents):
    marked = {p.name for curve in contents.panels[0].curves if curve.raw for p in curve.points if p.selected}
    assert marked == {i.checkpoint for i in contents.soups[contents.answer.shipped].ingredients}


def test_what_is_drawn_beside_raw_checkpoints_was_scored_on_the_same_split(contents):
    for panel in contents.panels:
        if any(curve.raw for curve in panel.curves):
            assert panel.split == "validation"


def test_three_branches_are_predicted_from_anchors_and_pairs_alone(contents):
    soups = contents.theory.record.soups
    assert {len(soup.branches) for soup in soups} == {3}
    for soup in soups:
        assert soup.predicted == pytest.approx(soup.measured, abs=1e-9)  # a quadratic bowl: the theory is exact
        assert soup.measured == pytest.approx(contents.soups[contents.theory.row(soup)].scores["validation loss"])


def theory_of(contents):
    (section,) = [s for s in sections(contents) if s.name == "scaling"]
    return section, {table.name: table for table in section.more}


def test_what_theory_says_is_shown_with_intervals_and_what_was_held_out(contents):
    record = contents.theory.record
    _, tables = theory_of(contents)
    fits, held_out = tables["theory"], tables["held-out"]
    for row, count in zip(fits.rows, record.counts, strict=True):
        shown = {column: cell.value for column, cell in zip(fits.columns, row.cells, strict=True)}
        for name, found in (("b(K)", count.spread), ("V intra", count.v_intra), ("V inter", count.v_inter)):
            values = (None,) * 3 if found is None else (found.value, found.low, found.high)
            assert tuple(shown[name + bound] for bound in ("", " low", " high")) == values
    assert all(sentence in held_out.caption for sentence in record.words[:2])
    assert all(sentence in fits.caption for sentence in record.words[2:])
    assert [row.cells[0].text for row in held_out.rows] == ["larger soups", "new branches"]


def test_without_the_sweep_theory_is_shown_all_the_same_and_its_points_lead_nowhere(study, tmp_path):
    copy = Path(shutil.copytree(study, tmp_path / "study"))
    (copy / "records" / "sweeps" / "scaling.json").unlink()
    found = read_contents(copy)
    assert found.surface is None
    section, tables = theory_of(found)
    (figure,) = section.figures
    assert figure.name == "predicted"
    assert {custom[0] for trace in figure.figure.data[1:] for custom in trace.customdata} == {None}
    assert set(tables) == {"theory", "held-out"}


def test_a_row_of_the_sweep_at_another_horizon_is_another_soup(study, contents):
    record, scaling = contents.theory.record, Records(study).read(SweepRecord, "scaling")
    assert read_theory(record, scaling).row(record.soups[0]) is not None
    assert read_theory(dataclasses.replace(record, horizon=record.horizon - 1), scaling).rows == {}


def test_two_branches_leave_a_fit_and_a_word_that_nothing_was_held_out(tmp_path):
    found = read_contents(write_study(tmp_path, dataclasses.replace(SMALL, branches=("EXP1", "EXP2"))))
    section, tables = theory_of(found)
    assert "predicted" not in {figure.name for figure in section.figures}
    assert set(tables) == {"theory"}
    assert "With two branches no soup can be held out" in tables["theory"].caption


def test_the_gain_of_a_pair_is_the_mean_of_its_anchors_minus_their_merge_at_every_k(contents):
    (pair,) = [p for p in contents.geometry.pairs if (p.first, p.second) == ("EXP1", "EXP2")]
    ks = sorted({cell.k for cell in contents.surface.cells})

    def loss(names, k):
        return contents.soups[f"scaling/{names}/K={k}"].scores["validation loss"]

    gains = [(loss("EXP1", k) + loss("EXP2", k)) / 2 - loss("EXP1+EXP2", k) for k in ks]
    assert pair.gain == pytest.approx(sum(gains) / len(gains))


def test_a_running_study_shows_its_branches_and_nothing_else(tmp_path):
    found = read_contents(write_study(tmp_path, dataclasses.replace(SMALL, until="plan", done=0.5)))
    assert found.running
    assert found.answer is None
    assert [b.status for b in found.branches] == ["running"] * 3
    assert [round(b.share, 2) for b in found.branches] == [0.5] * 3
    assert [s.status for s in found.stages][:3] == ["done", "running", "waiting"]


def test_a_line_that_is_being_written_is_passed_over(tmp_path):
    study = write_study(tmp_path, dataclasses.replace(SMALL, until="plan", done=0.5))
    path = study / "branches" / "EXP1" / "metrics.jsonl"
    before = read_contents(study).branches[0].losses
    with path.open("a") as file:
        file.write('{"tokens": 999999999999, "train_l')
    assert read_contents(study).branches[0].losses == before
    with path.open("a") as file:
        file.write('oss": 1.5}\n{"tokens": 999999999999999, "train_loss": NaN}\n')
    assert read_contents(study).branches[0].losses == (*before, (999999999999, 1.5))


def test_metrics_outside_the_study_are_not_read(tmp_path):
    study = write_study(tmp_path / "study", SMALL)
    secret = tmp_path / "metrics.jsonl"
    secret.write_text('{"tokens": 5, "train_loss": 1.0}\n')
    path = study / "records" / "train.json"
    record = json.loads(path.read_text())
    record["branches"][0]["metrics"] = "../metrics.jsonl"
    record["branches"][1]["metrics"] = str(secret)
    path.write_text(json.dumps(record))
    found = read_contents(study)
    assert found.branches[0].losses == found.branches[1].losses == ()
    assert found.branches[2].losses


def test_every_cell_that_a_paired_interval_cannot_tell_from_the_best_is_marked(tmp_path):
    study = write_study(tmp_path, SMALL)
    records = Records(study, held=True)
    known = records.read(ComparisonsRecord)
    overall = r.ColumnTies(
        column=None, signal=Signal.LOSS, best="trajectory-soup/extended", tied=("model-soup/extended", "raw-best")
    )
    web = r.ColumnTies(column="web", signal=Signal.LOSS, best="trajectory-soup/extended", tied=("single-merge",))
    records.write(dataclasses.replace(known, ties=(overall, web)))
    table = next(t for t in read_contents(study).tables if t.name == "loss")
    marked = {row.soup: [table.columns[i] for i, tied in enumerate(row.in_noise) if tied] for row in table.rows}
    assert {name: columns for name, columns in marked.items() if columns} == {
        "model-soup/extended": ["Overall"],
        "raw-best": ["Overall"],
        "single-merge": ["web"],
    }


def test_what_a_model_costs_includes_storage_and_what_a_merge_reads_and_writes(contents):
    costs = dict(contents.costs)
    soup = costs["Trajectory Soup"]
    kept = len(SMALL.branches) * SMALL.checkpoints
    assert soup.checkpoints == kept
    assert soup.checkpoint_bytes == kept * CHECKPOINT_BYTES
    assert soup.merge_write_bytes == CHECKPOINT_BYTES
    assert costs["Raw"].merge_read_bytes == 0
    (table,) = [t for s in sections(contents) for t in s.more if t.name == "cost"]
    assert "576.0 GB" in [cell.text for row in table.rows for cell in row.cells]


def test_the_example_of_a_real_run_gives_every_section(tmp_path):
    found = read_contents(Path(shutil.copytree(EXAMPLE, tmp_path / "example")))
    assert [s.name for s in sections(found) if not (s.figures or s.tables or s.more)] == []
    assert {t.name for t in found.tables} == {"accuracy", "loss", "post-training"}
    assert found.answer is not None
    assert found.answer.loss.matched.startswith("budget")
    names = {f.name for s in sections(found) for f in s.figures}
    assert {
        "frontier-loss",
        "surface",
        "merge-size",
        "predicted",
        "cosines",
        "plane",
        "screen",
        "training",
        "saturation",
    } <= names
    assert {"ablation-coefficients", "ablation-selections", "ablation-allocation", "ablation-sampling"} <= names
    for ablation in found.ablations:
        assert ablation.default is not None, ablation.name
        assert any(v.low is not None for v in ablation.variants if v.label != ablation.default), ablation.name


def test_several_seeds_give_a_table_and_take_back_an_answer_that_they_do_not_confirm(tmp_path):
    study = write_study(tmp_path, SMALL)
    spread = r.SeedSpread(
        name=read_contents(study).answer.loss.name,
        signal=Signal.LOSS,
        values={"0": -0.02, "1": -0.01},
        mean=-0.015,
        deviation=0.007,
        low=-0.08,
        high=0.05,
        label="soup against single",
    )
    record = r.SeedsRecord(
        inputs={},
        seeds=(0, 1),
        split=Split.TEST,
        rows=(),
        comparisons=(spread,),
        words=("Two seeds agree.",),
        further={"sweeps/coefficients": (spread,)},
    )
    assert read_contents(study).seeds == ()
    Records(study, held=True).write(record)
    found = read_contents(study)
    assert read_contents(study).answer.over_seeds.better == 2
    assert found.answer.loss.evidence is Evidence.STRONG
    assert found.answer.evidence is Evidence.WITHIN_NOISE
    assert found.answer.seeds == ("0", "1")
    (table,) = [t for t in sections(found)[0].numbers if t.name == "seeds"]
    assert [cell.text for cell in table.rows[0].cells] == [
        "soup against single",
        "loss, nats",
        "−0.0200",
        "−0.0100",
        "−0.0150",
        "−0.0800",
        "+0.0500",
    ]
    (further,) = [t for t in sections(found)[0].numbers if t.name == "further-seeds"]
    assert further.rows[0].cells[0].text == "coefficients: soup against single"
