import pytest

from trajsoup.core.signal import Signal
from trajsoup.report import contents as c
from trajsoup.report.figures import ablations, branches, curves, scaling
from trajsoup.report.figures.style import difference_text, plain, score_text, token_axis


def test_a_branch_keeps_its_name_whatever_plotly_would_read_in_it():
    assert plain("<b>x</b>\ny %{z}") == "&lt;b&gt;x&lt;/b&gt; y %\u200b{z}"


def test_scores_and_differences_are_written_with_their_unit():
    assert score_text(0.71234, Signal.ACCURACY) == "71.23"
    assert score_text(float("nan"), Signal.LOSS) == score_text(None, Signal.LOSS) == "–"
    assert difference_text(-0.0123, Signal.LOSS) == "−0.0123 nats"
    assert difference_text(-2e-6, Signal.LOSS) == "−2.0e-06 nats"
    assert difference_text(0.0123, Signal.ACCURACY) == "+1.23 points"


@pytest.mark.parametrize(
    ("longest", "expected"), [(600 * 10**9, (1e9, "t (B)")), (98_304, (1e3, "t (k)")), (1500, (1.0, "t"))]
)
def test_the_token_axis_has_readable_numbers(longest, expected):
    assert token_axis(longest, name="t") == expected


def test_a_long_curve_is_thinned_to_means_of_equal_stretches():
    points = [(i, float(i % 2)) for i in range(1, 10_001)]
    kept = branches.thinned(points, most=100)
    assert len(kept) == 100
    assert kept[-1][0] == 10_000
    assert {loss for _, loss in kept} == {0.5}
    assert branches.thinned(points[:50], most=100) == points[:50]


def curve(name, *values, raw):
    return c.Curve(
        name=name,
        raw=raw,
        points=tuple(c.Point(tokens=100 * (i + 1), value=v, name=f"{name}/{i}") for i, v in enumerate(values)),
    )


def test_the_axis_leaves_out_only_raw_checkpoints_from_before_the_first_merge():
    merged = c.Curve(name="Soup", raw=False, points=(c.Point(tokens=300, value=2.0, name="s"),))
    panel = c.CurvePanel(
        category=c.OVERALL,
        rank_by=Signal.LOSS,
        split="validation",
        curves=(curve("EXP1", 9.0, 3.0, 2.5, 2.1, raw=True), merged),
    )
    low, high = curves.focus(panel)
    assert low < 2.0
    assert 2.5 < high < 3.0
    late = c.CurvePanel(
        category=c.OVERALL, rank_by=Signal.LOSS, split="validation", curves=(curve("EXP1", 2.2, 2.1, raw=True), merged)
    )
    assert curves.focus(late) is None


def test_every_mark_of_the_surface_carries_its_soup_and_the_best_a_star():
    cells = (
        c.SurfaceCell(n_branches=1, k=1, value=2.0, name="one"),
        c.SurfaceCell(n_branches=2, k=1, value=1.9, name="two"),
        c.SurfaceCell(n_branches=2, k=2, value=1.95, name="three"),
    )
    (heat,) = scaling.surface(c.Surface(rank_by=Signal.LOSS, split="validation", cells=cells)).data
    assert [[cell[0] for cell in row] for row in heat.customdata] == [["one", None], ["two", "three"]]
    assert heat.z[0][1] is None
    assert [[bool("★" in text) for text in row] for row in heat.text] == [[False, False], [True, False]]
    assert heat.reversescale  # a low loss is dark


def test_an_interval_of_the_difference_is_drawn_around_the_value():
    study = c.Ablation(
        name="x",
        title="X",
        rank_by=Signal.LOSS,
        split="test",
        default="equal",
        variants=(
            c.Variant(soup="a", label="equal", value=2.0),
            c.Variant(soup="b", label="rank", value=2.1, difference=0.1, low=0.05, high=0.2),
        ),
    )
    trace = ablations.ablation(study).data[0]
    assert list(trace.y) == ["rank", "equal"]
    assert trace.error_x.array[0] == pytest.approx(0.1)
    assert trace.error_x.arrayminus[0] == pytest.approx(0.05)
    assert trace.error_x.array[1] == 0
