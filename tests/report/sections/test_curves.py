import dataclasses

import pytest

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report.sections import curves
from trajsoup.report.sections.curves import Panel, focus, over_tokens_words
from trajsoup.report.style import SOUP
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.sweeps import sweep_of
from trajsoup.study.records.validation import ScoredCheckpoint, ValidationRecord


@pytest.fixture
def point(records):
    """A point of the sweep over horizons, to be moved."""
    return sweep_of(records, "horizons").points[0]


def panel(point, merged, raw=(), *, fork_point=None):
    """Series and branches with their values at 100, 200, ... tokens; None where there is none."""
    checkpoints = [
        ScoredCheckpoint(key=f"c{i}", branch="EXP1", tokens=100 * (i + 1), loss=v, accuracy=None, probe_loss=None)
        for i, v in enumerate(raw)
    ]
    return Panel(
        signal=Signal.LOSS,
        split=Split.VALIDATION,
        category=None,
        merged={
            name: [
                (
                    dataclasses.replace(point, row=f"{name}{i}", series=name, x=100.0 * (i + 1), validation_loss=value),
                    value,
                )
                for i, value in enumerate(values)
                if value is not None
            ]
            for name, values in merged.items()
        },
        raw={"EXP1": [(c, c.loss) for c in checkpoints]} if checkpoints else {},
        fork_point=fork_point,
    )


def test_the_leader_is_the_one_that_ends_first_and_is_compared_with_the_best_raw_checkpoint(point):
    found = panel(point, {"Soup": (2.0, 1.8), "Merge": (1.9, 1.9)}, (2.1, 1.95), fork_point=3.0)
    text = over_tokens_words(found, frozenset())
    assert text.startswith("Soup leads on validation at 1 of 2 horizons and ends at 1.8000 (validation).")
    assert "0.1500 nats better than the best raw checkpoint, 1.9500" in text
    assert text.endswith("The fork point has 3.0000.")


def test_on_test_the_leader_is_still_the_one_that_validation_prefers(point):
    found = panel(point, {"Soup": (2.0, 1.8), "Merge": (1.9, 1.9)})
    on_test = {
        name: [(p, value + (0.5 if name == "Soup" else 0.0)) for p, value in line]
        for name, line in found.merged.items()
    }
    text = over_tokens_words(dataclasses.replace(found, split=Split.TEST, merged=on_test), frozenset())
    assert text.startswith("Soup leads on validation at 1 of 2 horizons and ends at 2.3000 (test).")


def test_a_soup_that_is_worse_than_raw_is_said_to_be_worse(point):
    text = over_tokens_words(panel(point, {"Soup": (2.0, 2.2)}, (2.1, 1.95)), frozenset())
    assert "worse than the best raw checkpoint" in text


def test_the_axis_leaves_out_only_raw_checkpoints_from_before_the_first_merge(point):
    low, high = focus(panel(point, {"Soup": (None, None, 2.0)}, (9.0, 3.0, 2.5, 2.1)))
    assert low < 2.0
    assert 2.5 < high < 3.0
    assert focus(panel(point, {"Soup": (None, None, 2.0)}, (2.2, 2.1))) is None


def test_rings_mark_the_ingredients_of_the_best_soup(records):
    (figure,) = [f for f in curves.section(records).figures if f.name == "curves-loss-validation"]
    (rings,) = [trace for trace in figure.draw().data if trace.name == "in the best soup"]
    assert {custom[0] for custom in rings.customdata} == set(records.require(RowsRecord).best_soup().weights)


def test_what_is_drawn_beside_raw_checkpoints_was_scored_on_the_same_split(records):
    for figure in curves.section(records).figures:
        if any(trace.name == "raw checkpoints" for trace in figure.draw().data):
            assert "(validation)" in figure.title


def test_saturation_and_the_fork_point_are_those_of_the_record(records):
    validation = records.require(ValidationRecord)
    (figure,) = [f for f in curves.section(records).figures if f.name == "saturation"]
    for branch, share in validation.saturation.items():
        assert f"{branch} {share:.0%}" in figure.says
    known = dataclasses.replace(validation, fork_point_loss=5.1234, saturation={})
    drawn = curves._saturation(curves._panel(known, (), Signal.LOSS, Split.VALIDATION))
    assert [shape.y0 for shape in drawn.layout.shapes] == [5.1234]
    assert curves._saturation_words(known).endswith("cannot be read here. The fork point has 5.1234.")


def test_a_limited_curve_is_dashed_and_ours_has_its_colour(records):
    (figure,) = [f for f in curves.section(records).figures if f.name == "curves-loss-test"]
    looks = {trace.name: (trace.line.dash, trace.line.color) for trace in figure.draw().data}
    assert looks["Trajectory Soup (Limited)"] == ("dash", SOUP)
    assert looks["Trajectory Soup (Extended)"] == ("solid", SOUP)
    assert looks["Model Soup (Limited)"][1] == looks["Model Soup (Extended)"][1] != SOUP
    assert sum(name == "Single EXP Merge (each branch)" for name in looks) == 1
