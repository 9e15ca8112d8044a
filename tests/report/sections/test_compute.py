import dataclasses

import pytest

from tests.report.bowl import B, Shape
from tests.report.conftest import SMALL
from tests.report.sample_study import CHECKPOINT_BYTES, write_study
from trajsoup.core.signal import Signal
from trajsoup.report.sections import compute
from trajsoup.report.study import open_study
from trajsoup.study.records.frontier import FrontierRecord
from trajsoup.study.records.sweeps import sweep_of


@pytest.fixture
def frontier(records):
    return records.require(FrontierRecord)


def test_a_law_is_drawn_as_the_curve_of_the_record_with_its_band(records, frontier):
    (figure,) = [f for f in compute.section(records).figures if f.name == "frontier-loss"]
    laws = [law for law in frontier.laws if law.signal is Signal.LOSS and law.curve]
    assert laws
    for law in laws:
        parts = [trace for trace in figure.draw().data if trace.name == f"law of {law.series}"]
        drawn = dict(pair for trace in parts for pair in zip(trace.x, trace.y, strict=True))
        assert drawn == {p.x: p.y for p in law.curve}
        assert parts[-1].line.dash == "dot"  # past the last point it is extrapolated
        assert min(parts[-1].x) <= law.measured_until < max(parts[-1].x)
    filled = [trace for trace in figure.draw().data if trace.fill == "toself"]
    assert len(filled) == sum(law.curve[0].low is not None for law in laws)


def test_a_laws_words_hold_the_intervals_of_both_parameters(frontier):
    law = next(law for law in frontier.laws if law.asymptote is not None)
    words = compute.law_words(dataclasses.replace(law, asymptote_interval=(1.5, 1.75), exponent_interval=(0.1, 0.2)))
    assert "asymptote 1.5000 to 1.7500 and of the exponent 0.100 to 0.200" in words
    missing = dataclasses.replace(law, asymptote=None, missing="the curve is flat")
    assert compute.law_words(missing) == "none, the curve is flat"


def test_what_a_model_costs_includes_storage_and_what_a_merge_reads_and_writes(frontier):
    cost = frontier.largest()["Trajectory Soup"].cost
    kept = len(SMALL.branches) * SMALL.checkpoints
    assert (cost.checkpoints, cost.checkpoint_bytes) == (kept, kept * CHECKPOINT_BYTES)
    assert cost.search_tokens == len(SMALL.branches) * SMALL.horizon
    assert cost.merge_write_bytes == CHECKPOINT_BYTES
    assert frontier.largest()["Raw"].cost.merge_read_bytes == 0
    assert "576.0 GB" in [cell for line in compute.costs_table(frontier).texts for cell in line]


def test_the_frontiers_table_has_the_models_that_no_cheaper_one_equals(records, frontier):
    table = compute.frontier_table(frontier, sweep_of(records, "frontier"))
    assert [row.soup for row in table.rows] == [p.row for p in frontier.points if p.improving]
    assert all(any(law.series in note for note in table.notes) for law in frontier.laws)


def test_a_model_that_was_chosen_costs_what_all_it_was_chosen_from_cost(tmp_path):
    """Chosen branches only were counted: a soup of two out of five cost as much as if nobody had trained the others."""
    folder = write_study(tmp_path, Shape(checkpoints=12, logged=20, rejected="EXP5", until="sweeps"))
    record = open_study(folder).require(FrontierRecord)
    sweep = {p.row: p for p in sweep_of(open_study(folder), "frontier").points}
    for p in record.points:
        chosen = sweep[p.row]
        if p.series == "Raw":
            assert p.cost.search_tokens == p.budget_tokens
        else:
            furthest = max(chosen.chosen_on.trained.values())
            assert p.cost.search_tokens == 5 * furthest  # the rejected one was trained to be rejected
            assert p.cost.checkpoints == 5 * round(12 * furthest / (600 * B))
            assert p.cost.validation_passes == p.cost.checkpoints + chosen.chosen_on.among
            assert p.cost.search_tokens >= p.budget_tokens
        assert (p.n_branches, p.horizon, p.k) == (chosen.n_branches, chosen.horizon, chosen.k)


def test_points_beyond_the_window_of_the_fit_enter_no_law_and_are_drawn_open(records, frontier):
    sweep = sweep_of(records, "frontier")
    (figure,) = [f for f in compute.section(records).figures if f.name == "frontier-loss"]
    raw = [p for p in sweep.points if p.series == "Raw"]
    last = min(raw, key=lambda p: p.validation_loss).budget_tokens  # validation says where raw training saturates
    (law,) = [law for law in frontier.laws if law.series == "Raw" and law.signal is Signal.LOSS]
    assert len(law.beyond) == sum(p.budget_tokens > last for p in raw) > 0
    assert len(law.points) == len(raw) - len(law.beyond)
    assert law.measured_until == pytest.approx(last * frontier.flops_per_token)
    assert f"until {last:,} tokens" in law.window
    (marks,) = [trace for trace in figure.draw().data if trace.name == "Raw"]
    assert list(marks.marker.symbol).count("circle-open") == len(law.beyond)
    assert law.window in figure.says


def test_the_caption_names_the_soup_that_validates_best_not_the_best_on_test(records):
    record, sweep = records.require(FrontierRecord), sweep_of(records, "frontier")
    raw = max(record.compute(p) for p in record.points if p.series == "Raw")
    within = [p.row for p in record.points if record.compute(p) <= raw * 1.001 and p.series == "Trajectory Soup"]
    assert len(within) > 1
    picked = within[0]
    points = {
        p.row: dataclasses.replace(
            p,
            validation_loss=0.0 if p.row == picked else 1.0,
            test_loss=dataclasses.replace(p.test_loss, value=9.0 if p.row == picked else p.test_loss.value),
        )
        for p in sweep.points
    }
    scores = {row: p.test_loss.value for row, p in points.items()}
    said = compute._says(record, points, scores, Signal.LOSS)
    assert "the soup that validates best reaches 9.0000" in said
