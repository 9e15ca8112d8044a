import dataclasses

import pytest

from trajsoup.report.progress import BranchState
from trajsoup.report.sections import branches
from trajsoup.study.records.plan import BranchPlan, PlanRecord
from trajsoup.study.records.screen import ScreenRecord


def test_a_long_curve_is_thinned_to_means_of_equal_stretches():
    points = [(i, float(i % 2)) for i in range(1, 10_001)]
    kept = branches.thinned(points, most=100)
    assert len(kept) == 100
    assert kept[-1][0] == 10_000
    assert {loss for _, loss in kept} == {0.5}
    assert branches.thinned(points[:50], most=100) == points[:50]


def test_what_differs_from_the_baseline_is_bold_and_what_does_not_is_said_once(records):
    recipe = {"seed": "1", "peak_lr": "0.1", "clip": "1"}
    plans = {
        "EXP1": BranchPlan(recipe=recipe, changed={}, steps=1),
        "EXP2": BranchPlan(recipe={**recipe, "seed": "2"}, changed={"seed": ("1", "2")}, steps=1),
    }
    plan = dataclasses.replace(records.require(PlanRecord), branches=plans)
    states = [BranchState(name=name, status="finished", tokens=10, horizon=10) for name in plans]
    table = branches.branches_table(states, plan, None)
    assert table.columns[:2] == ("branch", "seed")
    assert [row.cells[1].best for row in table.rows] == [False, True]
    assert "peak_lr 0.1; clip 1" in table.notes[0]


@pytest.mark.parametrize(
    ("changes", "expected", "word"),
    [
        ({"admitted": True}, "3 of 3 branches admitted.", "admitted"),
        ({"admitted": False}, "Rejected: EXP2 (J +3.00%, spread unknown).", "rejected"),
        ({"admitted": True, "forced": True}, "3 of 3 branches admitted.", "forced in"),
    ],
)
def test_the_screens_words_name_who_was_rejected(records, changes, expected, word):
    screen = records.require(ScreenRecord)
    verdicts = tuple(
        dataclasses.replace(v, loss_gap=0.03, spread=None, **changes) if v.branch == "EXP2" else v
        for v in screen.verdicts
    )
    screen = dataclasses.replace(screen, verdicts=verdicts)
    assert expected in branches.screen_words(screen)
    assert {line[0]: line[3] for line in branches.screen_table(screen).texts}["EXP2"] == word
