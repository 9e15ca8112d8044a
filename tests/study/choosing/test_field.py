"""Why a study has no soup to compare: one reason, the branch it is about, and what would change it."""

import dataclasses

import pytest

from tests.study.choosing.fields import field_of, four_branches, pool
from trajsoup.core.budget import Setting


def test_where_two_branches_can_be_merged_nothing_stands_in_the_way():
    for setting in Setting:
        assert four_branches().why_no_soup(setting) is None


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (field_of(pool("EXP1"), pool("EXP2"), admitted=("EXP1",)), "of 2 branches the screen admits 1"),
        (field_of(pool("EXP1"), admitted=("EXP1",)), "it has one branch"),
        (
            field_of(pool("EXP1"), pool("SHORT", count=1), admitted=("EXP1", "SHORT")),
            "each branch stops at half of 100 tokens, where 'SHORT' ends, and by then they never saved at the same tokens "
            "(first: 'EXP1' at 100, 'SHORT' at 100): leave out 'SHORT', or save checkpoints more often",
        ),
        (
            dataclasses.replace(
                field_of(pool("EXP1"), pool("SHORT", count=3), admitted=("EXP1", "SHORT")), ks=(2, 4)
            ),
            "each branch stops at half of 300 tokens, where 'SHORT' ends; the last checkpoint of all by then is at 100, "
            "where 'EXP1', 'SHORT' had fewer than K = 2: add a smaller K to evaluate.ks, leave out 'SHORT', or save "
            "checkpoints more often",
        ),
    ],
)  # fmt: skip
def test_the_reason_names_the_branch_and_the_cure(field, why):
    assert field.why_no_soup(Setting.LIMITED) == why


def test_a_branch_that_the_screen_rejects_where_a_soup_would_stop_is_the_reason():
    field = field_of(pool("EXP1"), pool("EXP2"), admitted=("EXP1", "EXP2"))
    field = dataclasses.replace(field, admitted_early={600: ("EXP1",)})
    assert field.why_no_soup(Setting.LIMITED) == "each branch stops at 600 tokens, where the screen admits 1 of them"
    assert field.why_no_soup(Setting.EXTENDED) is None
