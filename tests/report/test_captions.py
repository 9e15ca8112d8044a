import dataclasses

import pytest

from trajsoup.core.signal import Signal
from trajsoup.report import captions
from trajsoup.report import contents as c
from trajsoup.study.records.scaling import PredictedBest


def difference(value, half, **more):
    fields = {"model": "s", "label": "Soup", "reference": "Single", "rank_by": Signal.LOSS, "split": "test", **more}
    low, high = value - half, value + half
    return c.Difference(value=value, low=low, high=high, within_noise=low <= 0 <= high, **fields)


def test_comparisons_are_counted_by_what_their_intervals_say():
    rows = [difference(-0.02, 0.01), difference(-0.005, 0.01), difference(0.03, 0.01)]
    text = captions.differences(rows)
    assert text.startswith("1 of 3 comparisons are better beyond noise, 1 worse, 1 inside it.")
    assert "Soup over Single, −0.0200 nats" in text


def test_an_accuracy_that_rises_is_better_and_a_loss_that_rises_is_worse():
    assert difference(0.02, 0.01).evidence is c.Evidence.AGAINST
    assert difference(0.02, 0.01, rank_by=Signal.ACCURACY).evidence is c.Evidence.STRONG
    assert difference(0.005, 0.01, rank_by=Signal.ACCURACY).evidence is c.Evidence.WITHIN_NOISE


def curve(name, *values, raw=False):
    points = tuple(c.Point(tokens=100 * (i + 1), value=v, name=f"{name}-{i}") for i, v in enumerate(values))
    return c.Curve(name=name, raw=raw, points=points)


def panel(*curves, rank_by=Signal.LOSS):
    return c.CurvePanel(category=c.OVERALL, rank_by=rank_by, split="validation", curves=curves)


def test_the_leader_is_the_one_that_ends_first_and_is_compared_with_the_best_raw_checkpoint():
    text = captions.over_tokens(
        panel(curve("Soup", 2.0, 1.8), curve("Merge", 1.9, 1.9), curve("EXP1", 2.1, 1.95, raw=True))
    )
    assert text.startswith("Soup leads at 1 of 2 horizons and ends at 1.8000 (validation).")
    assert "0.1500 nats better than the best raw checkpoint, 1.9500" in text


def test_a_soup_that_is_worse_than_raw_is_said_to_be_worse():
    text = captions.over_tokens(panel(curve("Soup", 2.0, 2.2), curve("EXP1", 2.1, 1.95, raw=True)))
    assert "worse than the best raw checkpoint" in text


def test_saturation_is_the_share_of_improvement_in_the_first_half():
    text = captions.saturation(panel(curve("EXP1", 3.0, 2.2, 2.0, raw=True)))
    assert "EXP1 80%" in text
    assert "cannot be read" in captions.saturation(panel(curve("EXP1", 2.0, 2.1, 2.2, raw=True)))


def test_an_ablation_says_whether_anything_beats_the_default():
    def study(*variants):
        return c.Ablation(name="x", title="X", rank_by=Signal.LOSS, split="test", default="equal", variants=variants)

    equal = c.Variant(soup="equal", label="equal", value=2.0)
    worse = c.Variant(soup=None, label="rank", value=2.1, difference=0.1, low=0.05, high=0.15)
    nominal = c.Variant(soup=None, label="rsqrt", value=1.99, difference=-0.01, low=-0.03, high=0.01)
    sure = c.Variant(soup=None, label="rsqrt", value=1.9, difference=-0.1, low=-0.12, high=-0.08)
    assert "Nothing beats equal." in captions.ablation(study(equal, worse))
    same = c.Variant(soup=None, label="rank", value=2.0)
    assert captions.ablation(study(equal, same)) == "All 2 variants score the same on test: 2.0000."
    assert "no interval excludes a tie" in captions.ablation(study(equal, worse, nominal))
    assert "beyond noise: rsqrt" in captions.ablation(study(equal, worse, sure))


def test_the_prediction_caption_says_on_which_side_the_model_errs(contents):
    def theory(error):
        held = dataclasses.replace(contents.theory.record.held_out[0], mean_error=error, worst=abs(error))
        best = PredictedBest(n_branches=3, k=2, loss=2.0, from_pairs=2, measured=1)
        record = dataclasses.replace(contents.theory.record, held_out=(held,), best=(best,))
        return dataclasses.replace(contents.theory, record=record)

    assert "promises too much" in captions.predicted(theory(0.01))
    assert "promises too little" in captions.predicted(theory(-0.01))
    assert "lean" not in captions.predicted(theory(-1e-6))  # nothing beside the gain
    assert "Best K for N = 3: predicted 2, measured 1." in captions.predicted(theory(0.01))


def test_direction_and_gain_are_not_related_without_evidence():
    pairs = tuple(c.PairPoint(first="a", second="b", cosine=x, gain=0.1) for x in (0.1, 0.2, 0.3))
    related = c.Geometry(pairs=pairs, pearson=-0.9, pearson_p=0.01)
    assert "Weaker alignment goes with larger gains" in captions.direction_gain(related)
    unsure = dataclasses.replace(related, pearson_p=0.4)
    assert "not distinguishable from no relation" in captions.direction_gain(unsure)
    assert "too few" in captions.direction_gain(c.Geometry(pairs=pairs[:2], missing="2 pairs are too few"))


@pytest.mark.parametrize(
    ("admitted", "expected"), [(True, "1 of 1 branches admitted."), (False, "Rejected: EXP2 (J +3.00%).")]
)
def test_the_screens_caption_names_who_was_rejected(admitted, expected):
    branch = c.Branch(name="EXP2", status="finished", tokens=1, horizon=1, admitted=admitted, loss_gap=0.03)
    assert expected in captions.screen([branch])


def test_captions_of_this_study_hold_its_numbers(contents):
    text = captions.surface(contents.surface)
    best = min(contents.surface.cells, key=lambda cell: cell.value)
    assert f"N = {best.n_branches}, K = {best.k} ({best.value:.4f})" in text
    assert "mean cosine" in captions.cosines(contents.geometry)
