import pytest

from trajsoup.core.signal import Signal
from trajsoup.report.style import SOUP, difference_text, interval_text, plain, score_text, strategy_colours, token_axis


def test_a_branch_keeps_its_name_whatever_plotly_would_read_in_it():
    assert plain("<b>x</b>\ny %{z}") == "&lt;b&gt;x&lt;/b&gt; y %\u200b{z}"


def test_scores_and_differences_are_written_with_their_unit():
    assert score_text(0.71234, Signal.ACCURACY) == "71.23"
    assert score_text(float("nan"), Signal.LOSS) == score_text(None, Signal.LOSS) == "–"
    assert difference_text(-0.0123, Signal.LOSS) == "−0.0123 nats"
    assert difference_text(-2e-6, Signal.LOSS) == "−2.0e-06 nats"
    assert difference_text(0.0123, Signal.ACCURACY) == "+1.23 points"
    assert interval_text(-0.01, 0.02, Signal.LOSS) == "−0.0100 to +0.0200 nats"
    assert interval_text(None, None, Signal.LOSS) is None


@pytest.mark.parametrize(
    ("longest", "expected"), [(600 * 10**9, (1e9, "t (B)")), (98_304, (1e3, "t (k)")), (1500, (1.0, "t"))]
)
def test_the_token_axis_has_readable_numbers(longest, expected):
    assert token_axis(longest, name="t") == expected


def test_the_trajectory_soup_has_its_colour_and_no_other_strategy_has_it():
    found = strategy_colours(["raw", "trajectory-soup", "model-soup", "raw"])
    assert found["trajectory-soup"] == SOUP
    assert len(set(found.values())) == 3
