import dataclasses

import pytest

from trajsoup.core.signal import Signal
from trajsoup.report.page import page_parts
from trajsoup.report.sections import crossing
from trajsoup.report.study import open_study
from trajsoup.study.records.sweeps import sweep_of


@pytest.fixture
def sweep(records):
    return sweep_of(records, "crossing")


def test_the_crossing_curve_is_the_first_thing_below_the_answer(records):
    body = page_parts(records).body
    assert (
        body.index('<section id="answer"') < body.index('<section id="crossing"') < body.index('<section id="results"')
    )


def test_every_difference_and_interval_that_is_drawn_is_the_records(records, sweep):
    (figure,) = [f for f in crossing.section(records).figures if f.name == "crossing-loss"]
    drawn = {
        (mark[0], round(y, 12), round(low, 9), round(high, 9))
        for trace in figure.draw().data
        for mark, y, low, high in zip(
            trace.customdata, trace.y, trace.error_y.arrayminus, trace.error_y.array, strict=True
        )
    }
    recorded = {
        (c.model, round(c.difference, 12), round(c.difference - c.low, 9), round(c.high - c.difference, 9))
        for c in sweep.comparisons
        if c.signal is Signal.LOSS
    }
    assert drawn == recorded
    assert {trace.name for trace in figure.draw().data} == {
        "N = 2", "N = 2, as many merged", "N = 3", "N = 3, as many merged",
    }  # fmt: skip


def test_the_serial_run_stands_beside_it_at_every_budget(records, sweep):
    (figure,) = [f for f in crossing.section(records).figures if f.name == "serial-loss"]
    serial = next(trace for trace in figure.draw().data if trace.name == crossing.SERIAL)
    recorded = {p.row: p.test_loss.value for p in sweep.points if p.series == crossing.SERIAL}
    assert {mark[0]: y for mark, y in zip(serial.customdata, serial.y, strict=True)} == recorded
    assert len(recorded) == 6


def test_both_sides_of_every_comparison_spend_the_same_tokens_and_the_matched_one_merges_as_many(sweep):
    points = {p.row: p for p in sweep.points}
    assert sweep.comparisons
    for c in sweep.comparisons:
        soup, serial = points[c.model], points[c.reference]
        assert soup.budget_tokens == serial.budget_tokens
        assert c.matched == "budget"
        if serial.series != crossing.SERIAL:
            assert soup.merge_size == serial.merge_size


def test_the_words_say_at_each_budget_which_side_the_interval_is_on(sweep):
    def said(low):
        found = [
            (soup, serial, dataclasses.replace(c, difference=0.01, low=low, high=0.02))
            for soup, serial, c in crossing.crossed(sweep, Signal.LOSS)
        ]
        return crossing.says(found, Signal.LOSS)

    assert "+0.0100 nats at 600B" in said(0.005)
    assert "+0.0100 nats (zero lies in its interval) at 600B" in said(-0.005)


def test_without_an_interval_nothing_is_said_to_lie_in_it(sweep):
    found = [
        (soup, serial, dataclasses.replace(c, difference=0.01, low=None, high=None))
        for soup, serial, c in crossing.crossed(sweep, Signal.LOSS)
    ]
    assert "+0.0100 nats (too few for an interval) at 600B" in crossing.says(found, Signal.LOSS)


def test_a_study_without_the_sweep_says_what_makes_it(tmp_path):
    (tmp_path / "records").mkdir()
    assert crossing.section(open_study(tmp_path)) is None
