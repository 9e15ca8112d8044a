import dataclasses
import shutil

import pytest

from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from trajsoup.report.sections import scaling
from trajsoup.report.soups import soups_data
from trajsoup.report.study import open_study
from trajsoup.study.records.sweeps import GridCell, sweep_of
from trajsoup.study.records.theory import PredictedBest, TheoryRecord


@pytest.fixture
def theory(records):
    return records.require(TheoryRecord)


def tables_of(records):
    section = scaling.section(records)
    return section, {table.name: table for table in section.every_table}


def test_every_mark_of_the_surface_carries_its_soup_and_the_best_a_star():
    one = GridCell(n_branches=1, k=1, loss=2.0, subsets=1, row="one", best=False, best_of_n=True)
    two = GridCell(n_branches=2, k=1, loss=1.9, subsets=1, row="two", best=True, best_of_n=True)
    wide = GridCell(n_branches=1, k=2, loss=2.1, subsets=1, row="wide", best=False, best_of_n=False)
    heat = scaling.surface((one, wide, two)).data[0]
    assert [[custom[0] for custom in line] for line in heat.customdata] == [["one", "wide"], ["two", None]]
    assert [["★" in text for text in line] for line in heat.text] == [[False, False], [True, False]]
    assert heat.reversescale  # a low loss is dark


def test_the_surface_and_its_words_are_the_cells_of_the_record(records):
    cells = sweep_of(records, "scaling").cells
    surface, merge_size, *_ = scaling.section(records).figures
    (best,) = [c for c in cells if c.best]
    assert f"N = {best.n_branches}, K = {best.k} ({best.loss:.4f})" in surface.says
    drawn = sorted(y for trace in merge_size.draw().data for y in trace.y)
    assert drawn == sorted(c.loss for c in cells)


def test_three_branches_are_predicted_from_anchors_and_pairs_alone(records, theory):
    assert {len(soup.branches) for soup in theory.soups} == {3}
    for soup in theory.soups:
        assert soup.predicted == pytest.approx(soup.measured, abs=1e-9)  # a quadratic bowl: the theory is exact
    (figure,) = [f for f in scaling.section(records).figures if f.name == "predicted"]
    for trace in figure.draw().data[1:]:
        for (row, _), measured in zip(trace.customdata, trace.y, strict=True):
            assert soups_data(records)[row]["scores"]["validation loss"] == pytest.approx(measured)


def test_what_theory_says_is_shown_with_intervals_and_what_was_held_out(records, theory):
    _, tables = tables_of(records)
    fits, held_out = tables["theory"], tables["held-out"]
    for row, count in zip(fits.rows, theory.counts, strict=True):
        shown = dict(zip(fits.columns, row.cells, strict=True))
        for name, found in (("b(K)", count.spread), ("V intra", count.v_intra), ("V inter", count.v_inter)):
            values = (None,) * 3 if found is None else (found.value, found.low, found.high)
            assert (shown[name].value, shown[name].low, shown[name].high) == values
    assert not {"K eff", "b(K) over branches"} & set(fits.columns)
    assert fits.notes[1:] == theory.words
    assert held_out.notes[1:] == theory.held_out_words
    assert len(theory.held_out_words) == len(theory.held_out)
    assert [row.cells[0].text for row in held_out.rows] == ["larger soups", "new branches"]


def test_without_the_sweep_theory_is_shown_all_the_same_and_its_points_lead_nowhere(study, tmp_path):
    copy = shutil.copytree(study, tmp_path / "study")
    (copy / "records" / "sweeps" / "scaling.json").unlink()
    section, tables = tables_of(open_study(copy))
    (figure,) = [f for f in section.figures if f.name in ("surface", "merge-size", "predicted")]
    assert figure.name == "predicted"
    assert {custom[0] for trace in figure.draw().data[1:] for custom in trace.customdata} == {None}
    assert {"theory", "held-out"} < set(tables)


def test_two_branches_leave_a_fit_and_a_word_that_nothing_was_held_out(tmp_path):
    records = open_study(write_study(tmp_path, dataclasses.replace(SMALL, branches=("EXP1", "EXP2"))))
    section, tables = tables_of(records)
    assert "predicted" not in {figure.name for figure in section.figures}
    assert "held-out" not in tables
    assert any("With two branches no soup can be held out" in note for note in tables["theory"].notes)


def test_the_prediction_caption_says_on_which_side_the_model_errs(theory):
    def words(error):
        held = dataclasses.replace(theory.held_out[0], mean_error=error, worst=abs(error))
        best = PredictedBest(n_branches=3, k=2, loss=2.0, from_pairs=2, measured=1)
        return scaling.predicted_words(dataclasses.replace(theory, held_out=(held,), best=(best,)))

    assert "promises too much" in words(0.01)
    assert "promises too little" in words(-0.01)
    assert "lean" not in words(-1e-6)  # nothing beside the gain
    assert "Best K for N = 3: predicted 2, measured 1." in words(0.01)


def test_branches_in_their_order_are_drawn_up_to_the_papers_peak(records):
    (figure,) = [f for f in scaling.section(records).figures if f.name == "nested-accuracy"]
    one = next(trace for trace in figure.draw().data if trace.name == "N = 2")
    assert {10, 12, 14, 16} <= set(one.x)
    assert list(one.marker.symbol).count("star") == 1
    assert "N = 3" in figure.says
