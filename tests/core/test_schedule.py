import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.core.schedule import Schedule, Shape, learning_rate
from trajsoup.errors import RecipeError

PEAK, FLOOR, B = 3.39e-4, 3.39e-5, 10**9


def rate(tokens, schedule=None, warmup=6 * B, horizon=600 * B):
    return learning_rate(schedule or Schedule(), tokens=tokens, peak_lr=PEAK, warmup_tokens=warmup, horizon=horizon)


def test_the_warmup_rises_linearly_to_the_peak():
    assert rate(3 * B) == pytest.approx(PEAK / 2)
    assert rate(6 * B) == PEAK


def test_without_a_warmup_the_first_step_has_the_peak():
    assert rate(1, warmup=0) == PEAK


def test_a_constant_schedule_stays_at_the_peak():
    assert {rate(t * B) for t in (6, 7, 300, 600)} == {PEAK}


@pytest.mark.parametrize("shape", [Shape.LINEAR, Shape.COSINE, Shape.WSD])
def test_every_decay_ends_exactly_at_its_floor(shape):
    schedule = Schedule(shape=shape, decay_to=FLOOR)
    assert rate(6 * B, schedule) == pytest.approx(PEAK)
    assert rate(600 * B, schedule) == pytest.approx(FLOOR)


def test_linear_and_cosine_meet_in_the_middle():
    middle = (6 + 600) // 2 * B
    for shape in (Shape.LINEAR, Shape.COSINE):
        assert rate(middle, Schedule(shape=shape, decay_to=FLOOR)) == pytest.approx((PEAK + FLOOR) / 2)


def test_cosine_is_above_linear_first_and_below_it_later():
    linear, cosine = (Schedule(shape=s, decay_to=0.0) for s in (Shape.LINEAR, Shape.COSINE))
    assert rate(150 * B, cosine) > rate(150 * B, linear)
    assert rate(450 * B, cosine) < rate(450 * B, linear)
    quarter = (1 + math.cos(math.pi / 4)) / 2
    assert rate(25, cosine, warmup=0, horizon=100) == pytest.approx(PEAK * quarter)


def test_wsd_is_stable_until_its_last_share():
    schedule = Schedule(shape=Shape.WSD, decay_to=0.0, decay_share=0.2)
    assert rate(480 * B, schedule) == PEAK
    assert rate(540 * B, schedule) == pytest.approx(PEAK / 2)


@given(
    st.sampled_from(list(Shape)), st.integers(1, 10**6), st.integers(0, 10**5), st.floats(0.01, 1), st.floats(0, PEAK)
)
def test_the_rate_never_leaves_zero_to_peak_and_never_rises_after_the_warmup(shape, tokens, warmup, share, floor):
    schedule = Schedule(shape=shape, decay_to=floor, decay_share=share)
    now, later = (rate(t, schedule, warmup=warmup, horizon=10**6) for t in (tokens, min(tokens + 1000, 10**6)))
    assert 0 <= now <= PEAK * (1 + 1e-12)
    if tokens >= warmup and later != now:
        assert later <= now * (1 + 1e-12)


@pytest.mark.parametrize(
    "wrong", [{"decay_to": -1.0}, {"decay_to": math.inf}, {"decay_share": 0.0}, {"decay_share": 2.0}]
)
def test_an_impossible_schedule_is_refused_with_its_value(wrong):
    with pytest.raises(RecipeError, match=next(iter(wrong))):
        Schedule(shape=Shape.LINEAR, **wrong)
