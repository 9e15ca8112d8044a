import math

import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.screening import SPREAD, TOLERANCE, Noise, median_branch, reach, screen, screened_at
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
        ([curve("EXP2", {100: 2.0})], r"baseline 'EXP1' is none of the branches EXP2: choose one"),
        ([curve("EXP1", {100: None}), curve("EXP2", {100: 2.0})], r"baseline 'EXP1' has no training loss.*supply it"),
        ([BASELINE, curve("EXP2", {100: None})], r"branch 'EXP2' has no training loss.*supply it"),
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


def jumping(branch: str, gaps: list[float]) -> Pool:
    """A branch whose J against FLAT takes these values."""
    return curve(branch, {100 * (i + 1): 2.0 * (1 + gap) for i, gap in enumerate(gaps)})


FLAT = jumping("EXP1", [0.0] * 6)


def test_a_gap_above_the_tolerance_by_less_than_it_jumps_is_undecided_and_admitted():
    _, noisy = screen([FLAT, jumping("NOISY", [0.02, -0.02, 0.02, -0.02, 0.02, 0.021])], baseline="EXP1")
    assert noisy.loss_gap == pytest.approx(0.021)
    assert noisy.admitted
    assert noisy.undecided
    assert noisy.word == "undecided: admitted"
    assert noisy.noise is Noise.CHECKPOINTS
    _, steady = screen([FLAT, jumping("STEADY", [0.021] * 6)], baseline="EXP1")
    assert not steady.admitted
    assert not steady.undecided


def test_a_branch_that_leaves_is_no_noise():
    for gaps in ([0, 0.01, 0.02, 0.03, 0.04, 0.05], [0, 0, 0, 0, 0, 0.3], [0, 0, 0.01, 0.04, 0.12, 0.3]):
        _, leaving = screen([FLAT, jumping("LEAVING", gaps)], baseline="EXP1")
        assert not leaving.admitted, gaps


def test_pieces_of_a_probe_are_compared_in_pairs():
    def scored(branch: str, pieces: tuple[float, ...]) -> Pool:
        loss = sum(pieces) / len(pieces)
        return Pool(
            branch=branch,
            candidates=(Candidate(key=branch, branch=branch, tokens=1, train_loss=loss, train_pieces=pieces),),
        )

    base = scored("EXP1", (1.0, 2.0, 3.0, 4.0))
    even = screen([base, scored("EVEN", (1.02, 2.04, 3.06, 4.08))], baseline="EXP1")[1]  # 2 % worse on every piece
    assert even.spread == pytest.approx(0, abs=1e-12)
    assert not even.admitted
    uneven = screen([base, scored("UNEVEN", (1.2, 2.0, 3.0, 4.0))], baseline="EXP1")[1]  # 2 % worse, all of it on one
    assert uneven.noise is Noise.PIECES
    assert uneven.undecided
    assert uneven.admitted


def test_the_error_of_logged_losses_is_that_of_both_branches():
    def logged(branch: str, loss: float, error: float) -> Pool:
        return Pool(
            branch=branch,
            candidates=(Candidate(key=branch, branch=branch, tokens=1, train_loss=loss, train_error=error),),
        )

    _, found = screen([logged("a", 2.0, 0.03), logged("b", 2.0, 0.04)], baseline="a")
    assert found.spread == pytest.approx(2 * 0.05 / 2.0)
    assert found.noise is Noise.LOGGED


def test_a_mean_over_the_whole_run_beside_one_over_its_end_is_undecided():
    def saved(branch, tokens, loss, window):
        return Candidate(key=f"{branch}/{tokens}", branch=branch, tokens=tokens, train_loss=loss, window_tokens=window)

    whole = Pool(
        branch="EXP1", candidates=tuple(saved("EXP1", t, x, 100) for t, x in ((100, 3.0), (200, 2.0), (300, 1.8)))
    )
    for window, word, noise in ((300, "undecided: admitted", Noise.WINDOWS), (150, "rejected", None)):
        alone = Pool(
            branch="EXP2", candidates=(saved("EXP2", 300, 2.27, window),)
        )  # all that save_total_limit=1 leaves
        found = screen([whole, alone], baseline="EXP1")[1]
        assert (found.word, found.noise) == (word, noise)
    assert "deleted" in Noise.WINDOWS.cure


def test_without_a_named_baseline_the_order_of_the_branches_decides_nothing():
    pools = [jumping("a", [0.0] * 4), jumping("b", [0.021] * 4)]
    for order in (pools, pools[::-1]):
        assert {v.branch: v.admitted for v in screen(order)} == {"a": True, "b": False}
    three = [jumping("a", [0.05] * 4), jumping("b", [0.0] * 4), jumping("c", [0.02] * 4)]
    assert {median_branch(order) for order in (three, three[::-1])} == {"c"}
    diverged = [jumping("a", [0.0] * 4), curve("b", {100: 2.0, 400: math.nan})]
    assert median_branch(diverged) == median_branch(diverged[::-1]) == "a"


def test_an_undecided_branch_is_admitted_and_marked_at_every_horizon():
    verdicts = screen([FLAT, jumping("NOISY", [0.02, -0.02, 0.02, 0.0, 0.0, 0.0])], baseline="EXP1")
    early = screened_at(verdicts, horizon=300)
    assert early.admitted == ("EXP1", "NOISY")
    assert early.undecided == ("NOISY",)
    assert screened_at(verdicts, horizon=100).admitted == ("EXP1",)  # one value has no spread: the rule alone


def test_a_horizon_before_the_first_checkpoint_is_named_as_that():
    with pytest.raises(
        ScreenError, match=r"horizon 50 lies before the first checkpoint of branch 'EXP1' \(at 100 tokens"
    ):
        screen([BASELINE, curve("EXP2", {100: 2.0})], baseline="EXP1", horizon=50)


def test_a_spread_of_few_values_reaches_as_far_as_students_t():
    scipy = pytest.importorskip("scipy.special")
    for count in range(2, 11):
        assert reach(count) == pytest.approx(scipy.stdtrit(count, 0.975), abs=0.005)
    assert reach(1) == reach(2)
    assert reach(11) == reach(1000) == SPREAD
    few = [0.14, 0.08, 0.14, 0.10]
    _, found = screen([curve("EXP1", dict.fromkeys((100, 200, 300, 400), 2.0)), jumping("FEW", few)], baseline="EXP1")
    assert found.spread == pytest.approx(4.30 * ((0.12**2 + 0.10**2) / 2 / 6) ** 0.5)


def test_a_gap_whose_spread_nobody_knows_does_not_look_exact():
    alone, other = screen([curve("EXP1", {100: 2.0}), curve("EXP2", {100: 2.01})], baseline="EXP1")
    assert (alone.gap, other.gap) == ("+0.00%", "+0.50%, spread unknown")
