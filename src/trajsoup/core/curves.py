"""Low-loss curves between two models (Garipov 2018): what of the first, the bend and the second a point is made of.

    quadratic Bezier  (1-t)^2 a + 2 t (1-t) b + t^2 c        polygonal chain  a -> b -> c, each half of t

Both are affine in the bend, so a point is a row of W over the two anchors and a checkpoint that holds the bend, and the
gradient with respect to the bend is its share times that with respect to the point.
"""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.interpolation import mixed_row
from trajsoup.core.soup import Row

BEZIER, CHAIN = "bezier", "chain"
CURVES = (BEZIER, CHAIN)
CURVE_GRID = tuple(i / 20 for i in range(21))


def curve_shares(kind: str, t: float) -> tuple[float, float, float]:
    """Of the first end, the bend and the second end at `t` from 0 to 1."""
    if kind == BEZIER:
        return (1 - t) ** 2, 2 * t * (1 - t), t**2
    assert kind == CHAIN
    return (1 - 2 * t, 2 * t, 0.0) if t <= 0.5 else (0.0, 2 - 2 * t, 2 * t - 1)


def curve_rows(first: Row, bend: Row, second: Row, *, kind: str, grid: Sequence[float] = CURVE_GRID) -> tuple[Row, ...]:
    """The rows of W along a curve."""
    return tuple(
        mixed_row(zip((first, bend, second), curve_shares(kind, t), strict=True), name=f"{bend.name}@{t:g}")
        for t in grid
    )
