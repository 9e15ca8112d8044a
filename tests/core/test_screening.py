import math

import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.screening import TOLERANCE, screen, screened_at
from trajsoup.errors import ScreenError


def curve(branch: str, losses: dict[int, float | None]) -> Pool:
    return Pool(
        branch=branch,
        candidates=tuple(
            Candidate(key=f"{branch}/{tokens}", branch=branch, tokens=tokens, train_loss=loss)
            for tokens, loss in losses.items()
        ),
    )


BASELINE = curve("EXP1", {100: 3.0, 200: 2.0, 300: 1.8})


def verdict(losses: dict[int, float | None], **options):
    return screen([BASELINE, curve("EXP2", losses)], baseline="EXP1", **options)[1]


def test_the_gap_is_relative_and_signed_and_the_baseline_has_none():
    first, second = screen([BASELINE, curve("EXP2", {300: 1.809})], baseline="EXP1")
    assert first.loss_gap == 0
    assert first.admitted
    assert second.loss_gap == pytest.approx(0.005)
    assert (second.tokens, second.loss, second.baseline_loss) == (300, 1.809, 1.8)


def test_a_branch_better_than_the_baseline_is_admitted_however_much():
    found = verdict({300: 0.9})
    assert found.loss_gap == pytest.approx(-0.5)
    assert found.admitted


def test_the_tolerance_is_the_papers_and_divides_admitted_from_rejected():
    assert TOLERANCE == 0.01
    assert verdict({300: 1.8 * 1.0099}).admitted
    assert not verdict({300: 1.8 * 1.0101}).admitted
    assert verdict({300: 1.8 * 1.0101}, tolerance=0.02).admitted
    assert not verdict({300: 1.8}, tolerance=-0.001).admitted


def test_the_baseline_is_interpolated_linearly_between_its_checkpoints():
    assert verdict({150: 2.5}).loss_gap == pytest.approx(0)
    assert verdict({225: 1.95}).baseline_loss == pytest.approx(1.95)


def test_the_comparison_is_at_the_last_tokens_that_both_have_reached():
    assert verdict({100: 9.0, 250: 1.9, 400: 9.0}).tokens == 250
    assert verdict({100: 3.0, 200: 9.0, 300: 9.0}, horizon=150).tokens == 100


def test_the_order_of_checkpoints_does_not_matter():
    shuffled = curve("EXP1", {300: 1.8, 100: 3.0, 200: 2.0})
    found = screen([shuffled, curve("EXP2", {250: 1.9, 100: 9.0})], baseline="EXP1")[1]
    assert found.tokens == 250
    assert found.loss_gap == pytest.approx(0)


def test_checkpoints_without_a_training_loss_are_passed_over():
    assert verdict({200: 2.0, 300: None}).tokens == 200


def test_a_branch_whose_loss_is_nan_is_rejected():
    assert not verdict({300: math.nan}).admitted


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ([curve("EXP2", {100: 2.0})], r"baseline 'EXP1' is not among the branches EXP2: pass --baseline"),
        ([curve("EXP1", {100: None}), curve("EXP2", {100: 2.0})], r"baseline 'EXP1' has no training loss.*--no-screen"),
        ([BASELINE, curve("EXP2", {100: None})], r"branch 'EXP2' has no training loss.*--no-screen"),
        ([BASELINE, curve("EXP2", {400: 2.0})], r"'EXP2' \(checkpoints at 400 to 400 tokens\).*\(100 to 300\).*never"),
        ([BASELINE, curve("EXP2", {50: 2.0})], r"'EXP2' \(checkpoints at 50 to 50 tokens\).*never at the same tokens"),
        ([curve("EXP1", {100: math.nan}), curve("EXP2", {100: 2.0})], r"'EXP1' has training loss nan at 100 tokens"),
        ([curve("EXP1", {100: 0.0}), curve("EXP2", {100: 2.0})], r"'EXP1' has training loss 0.0 at 100 tokens"),
    ],
)
def test_what_cannot_be_screened_is_said_with_the_remedy(pools, message):
    with pytest.raises(ScreenError, match=message):
        screen(pools, baseline="EXP1")


def test_the_screen_at_an_earlier_horizon_compares_there_and_not_at_the_end():
    early = curve("EARLY", {100: 3.0, 200: 2.0, 300: 9.0})  # compatible until it leaves
    late = curve("LATE", {100: 9.0, 200: 9.0, 300: 1.8})  # comes back in the end
    short = curve("SHORT", {100: 3.0, 200: 9.0})
    verdicts = screen([BASELINE, early, late, short], baseline="EXP1")
    assert [v.branch for v in verdicts if v.admitted] == ["EXP1", "LATE"]
    assert screened_at(verdicts, horizon=200).admitted == ("EXP1", "EARLY")
    assert screened_at(verdicts, horizon=100).admitted == ("EXP1", "EARLY", "SHORT")
    assert screened_at(verdicts, horizon=250).loss_gaps["EARLY"] == 0
    assert screened_at(verdicts, horizon=200, force=["LATE"]).admitted == ("EXP1", "EARLY", "LATE")
    assert screened_at(verdicts, horizon=50).loss_gaps == dict.fromkeys(("EXP1", "EARLY", "LATE", "SHORT"))


def test_a_branch_that_ended_before_the_horizon_has_no_place_in_it():
    verdicts = screen([BASELINE, curve("SHORT", {100: 9.0, 150: 9.0})], baseline="EXP1", tolerance=5)
    assert screened_at(verdicts, horizon=300).admitted == ("EXP1", "SHORT")  # the full screen admits it where it ended
    verdicts = screen([BASELINE, curve("SHORT", {100: 3.0, 150: 9.0})], baseline="EXP1")
    assert screened_at(verdicts, horizon=200).admitted == ("EXP1",)
