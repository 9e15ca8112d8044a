import dataclasses
import shutil

from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from trajsoup.core.signal import Signal
from trajsoup.report.sections import results
from trajsoup.report.study import open_study
from trajsoup.study.records.comparisons import ColumnTies, ComparisonsRecord, Evidence
from trajsoup.study.records.files import Records
from trajsoup.study.records.rows import RowsRecord


def with_ties(study, folder, *ties):
    copy = shutil.copytree(study, folder / "study")
    known = Records(copy).require(ComparisonsRecord)
    Records(copy, held=True).write(dataclasses.replace(known, ties=ties))
    return {table.name: table for table in results.score_tables(open_study(copy))}


def test_the_best_of_a_column_and_what_ties_with_it_are_those_of_the_record(study, tmp_path):
    best = "trajectory-soup/extended"
    table = with_ties(
        study,
        tmp_path,
        ColumnTies(column=None, signal=Signal.LOSS, best=best, tied=("model-soup/extended", "raw-best")),
        ColumnTies(column="web", signal=Signal.LOSS, best=best, tied=("single-merge",)),
    )["loss"]

    def found(mark):
        marked = {
            row.soup: [name for name, cell in zip(table.columns, row.cells, strict=True) if getattr(cell, mark)]
            for row in table.rows
        }
        return {name: columns for name, columns in marked.items() if columns}

    assert found("in_noise") == {
        "model-soup/extended": ["Overall"],
        "raw-best": ["Overall"],
        "single-merge": ["web"],
    }
    assert found("best") == {best: ["web", "Overall"]}
    assert "≈ marks a value" in table.notes[0]


def test_a_tint_runs_from_the_worst_of_a_column_to_its_best(records):
    for table in results.score_tables(records):
        for column in range(1, len(table.columns)):
            cells = [row.cells[column] for row in table.rows]
            assert {0.0, 1.0} <= {cell.share for cell in cells}
            best = max(cells, key=lambda cell: cell.share)
            assert best.value == (min if table.name == "loss" else max)(cell.value for cell in cells)


def test_branches_merged_alone_are_no_strategies(records):
    alone = {row.name for row in records.require(RowsRecord).rows if row.alone}
    assert alone == {f"single/{branch}" for branch in SMALL.branches}
    for table in results.score_tables(records):
        assert not alone & {row.soup for row in table.rows}
    assert alone < {row.soup for row in results.main_table(records).rows}


def test_registered_comparisons_are_counted_by_their_verdicts_and_the_others_are_exploratory(records):
    (loss,) = [f for f in results.section(records).figures if f.name == "differences-loss"]
    found = [c.evidence for c in records.require(ComparisonsRecord).comparisons if c.signal is Signal.LOSS]
    better, worse, noise, other = (
        found.count(kind) for kind in (Evidence.STRONG, Evidence.AGAINST, Evidence.WITHIN_NOISE, Evidence.EXPLORATORY)
    )
    assert better
    assert other
    assert loss.says.startswith(
        f"Of {better + worse + noise} registered comparisons {better} hold, the opposite of {worse} holds, {noise} are "
        f"not certain (Holm); {other} more are exploratory."
    )


def test_tables_name_what_validation_prefers_not_what_is_best_on_test(records):
    rows = [row for row in records.require(RowsRecord).rows if not row.alone]
    loss = next(table for table in results.score_tables(records) if table.name == "loss")
    preferred = min(rows, key=lambda row: row.validation_loss)
    assert loss.notes[0].startswith(f"Validation prefers {preferred.label}: ")


def test_a_study_without_scores_has_no_results(tmp_path):
    study = write_study(tmp_path, dataclasses.replace(SMALL, until="rows"))
    assert results.section(open_study(study)) is None


def test_the_prescribed_rows_stand_beside_the_chosen_ones_ranked_both_ways(records):
    tables = {t.name: t for t in results.section(records).every_table}
    shown = {(line[0], line[1]) for line in tables["prescribed"].texts}
    for ranking in ("loss", "accuracy"):
        for model in ("Trajectory Soup (Limited), K = 4", "Single EXP Merge (EXP2), K = 12"):
            assert (model, f"N = 3, ranked by {ranking}") in shown
    assert ("Model Soup (Extended)", "N = 3") in shown
    against = {(line[0], line[1]) for line in tables["prescribed-comparisons"].texts}
    assert ("Trajectory Soup (Extended), K = 4", "Single EXP Merge (EXP1), K = 12") in against


def test_where_soups_have_no_accuracy_on_validation_its_loss_says_what_it_prefers(study, tmp_path):
    copy = shutil.copytree(study, tmp_path / "study")
    known = Records(copy).require(RowsRecord)
    rows = tuple(
        row if row.strategy == "raw" else dataclasses.replace(row, validation_accuracy=None) for row in known.rows
    )
    Records(copy, held=True).write(dataclasses.replace(known, rows=rows))
    by_loss = min((row for row in rows if not row.alone), key=lambda row: row.validation_loss)
    tables = {table.name: table for table in results.score_tables(open_study(copy))}
    assert tables["accuracy"].notes[0].startswith(f"Validation prefers {by_loss.label}: ")
