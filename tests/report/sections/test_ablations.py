import dataclasses

import pytest

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report.sections import ablations
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.sweeps import SWEEPS


@pytest.fixture
def sweep(records):
    """Coefficients with scores of our choosing: equal is the default."""
    record = records.require(SweepRecord, "coefficients")

    def made(**losses):
        points = tuple(
            dataclasses.replace(point, row=name, x=name, test_loss=Estimate(value=value[0], count=1))
            for point, (name, value) in zip(record.points, losses.items(), strict=False)
        )
        compared = [
            ComparisonRecord(
                name=name,
                question="?",
                model=name,
                reference="equal",
                signal=Signal.LOSS,
                split=Split.TEST,
                difference=value - losses["equal"][0],
                low=low,
                high=high,
                p=0.0002,
                resamples_better=None,
                count=1,
                matched="horizon",
            )
            for name, (value, low, high) in losses.items()
            if name != "equal"
        ]
        return dataclasses.replace(record, points=points, comparisons=tuple(compared))

    return made


EQUAL, WORSE = (2.0, 0.0, 0.0), (2.1, 0.05, 0.15)
SURE = (1.9, -0.12, -0.08)


def test_an_ablation_says_what_validation_prefers_and_gives_no_verdict(sweep):
    record = sweep(equal=EQUAL, rank=WORSE, rsqrt=SURE)
    losses = {"equal": 1.0, "rank": 0.9, "rsqrt": 1.2}  # on validation: the best on test is the worst
    points = tuple(dataclasses.replace(p, validation_loss=losses[p.row]) for p in record.points)
    said = ablations.says(dataclasses.replace(record, points=points))
    assert said.startswith("Validation prefers rank: 2.1000 on test")
    assert said.endswith(
        "The default, equal, has 2.0000; the difference has the interval +0.0500 to +0.1500 nats (exploratory)."
    )
    default = tuple(dataclasses.replace(p, validation_loss=float(p.row != "equal")) for p in record.points)
    assert ablations.says(dataclasses.replace(record, points=default)).endswith("It is the default.")
    same = ablations.says(sweep(equal=EQUAL, rank=EQUAL))
    assert same == "All 2 variants score the same on test: 2.0000."


def test_an_interval_of_the_difference_is_drawn_around_the_value(sweep):
    trace = ablations._listed(sweep(equal=EQUAL, rank=(2.1, 0.05, 0.2))).data[0]
    assert list(trace.y) == ["rank", "equal"]
    assert trace.error_x.array[0] == pytest.approx(0.1)
    assert trace.error_x.arrayminus[0] == pytest.approx(0.05)
    assert trace.error_x.array[1] == 0


def test_a_comparison_seen_from_the_other_side_changes_its_signs_and_its_evidence(sweep):
    (compared,) = sweep(equal=EQUAL, rank=(2.1, 0.05, 0.2)).comparisons
    other = compared.seen_from("equal")
    assert (other.difference, other.low, other.high) == (pytest.approx(-0.1), -0.2, -0.05)
    assert (compared.evidence.value, other.evidence.value) == ("exploratory", "exploratory")
    registered = dataclasses.replace(compared, primary=True, p_holm=0.01)
    assert (registered.evidence.value, registered.seen_from("equal").evidence.value) == ("against", "strong")
    assert dataclasses.replace(registered, p_holm=0.06).evidence.value == "within noise"
    assert other.seen_from("rank").difference == compared.difference


def test_a_sweep_that_no_other_section_draws_is_drawn_here(records, monkeypatch):
    names = [f.name for f in ablations.section(records).figures]
    assert names == ["ablation-coefficients", "ablation-selections", "ablation-allocation", "ablation-sampling"]
    kinds = {
        name: dataclasses.replace(kind, own_section=False) for name, kind in SWEEPS.items() if name == "interpolation"
    }
    monkeypatch.setattr(ablations, "SWEEPS", {**SWEEPS, **kinds})
    assert [f.name for f in ablations.section(records).figures][-1] == "ablation-interpolation"


def test_the_table_has_every_point_with_its_difference_from_the_default(records):
    record = records.require(SweepRecord, "allocation")
    table = ablations.sweep_table(record)
    assert [row.soup for row in table.rows] == [p.row for p in record.points]
    shown = {row.soup: row.cells[-1].value for row in table.rows if row.cells[-1].value is not None}
    assert shown == {c.reference: -c.difference for c in record.comparisons if c.signal is Signal.LOSS}
