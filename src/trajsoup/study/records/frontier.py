"""frontier.json: raw training against merges over compute, and the two laws (app:scaling-fit)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trajsoup.core.frontier import Annotation, FullCost
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.study.records.estimate import BandPoint
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One model on the compute axis; its scores, weights and choice are in sweeps/frontier under the same row."""

    row: str
    series: str
    budget_tokens: int  # D of eq:flops-proxy
    improving: bool  # no cheaper point of its series validates as well
    cost: FullCost
    n_branches: int = 1  # N
    horizon: int | None = None  # t, tokens of each
    k: int | None = None  # None: a checkpoint as it came


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLaw:
    """A -+ B (C / C0)^-alpha through one series; without parameters, `missing` says why."""

    series: str
    signal: Signal
    split: Split
    points: tuple[
        tuple[float, float], ...
    ]  # that entered the fit: (compute in FLOPs, or tokens where those are not known; score)
    asymptote: float | None  # A
    amplitude: float | None  # B
    exponent: float | None  # alpha
    reference: float | None  # C0
    r_squared: float | None
    asymptote_interval: tuple[float, float] | None  # allowing for `residual_correlation`
    exponent_interval: tuple[float, float] | None
    level: float
    residual_correlation: float | None  # of neighbouring points
    aicc_gain: float | None  # AICc of a constant minus that of the law; a law only where it is positive
    missing: str | None
    warning: str | None
    curve: tuple[BandPoint, ...] = ()  # to draw: score over compute, past the last point
    window: str = "every point"  # which points entered the fit, and why
    beyond: tuple[tuple[float, float], ...] = ()  # those that did not

    @property
    def preferred(self) -> str | None:
        """`law` or `constant`, whichever AICc prefers; None where the points did not allow to ask."""
        return None if self.aicc_gain is None else "law" if self.aicc_gain > 0 else "constant"

    @property
    def measured_until(self) -> float:
        """The largest compute that entered the fit: beyond it a curve is extrapolated."""
        return max(compute for compute, _ in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Superiority(Annotation):
    """An arrow of fig:trajectory-soup-compute-allocation."""

    name: str  # quality-superiority, scaling-robustness
    signal: Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRecord(Record):
    """Raw training against merges at each total compute."""

    FILE: ClassVar[str] = "frontier"
    flops_per_token: float | None
    points: tuple[FrontierPoint, ...]
    laws: tuple[FittedLaw, ...]  # of the series Raw and Trajectory Soup, on test, for each signal
    annotations: tuple[Superiority, ...]

    def compute(self, point: FrontierPoint) -> float:
        """Its place on the axis: FLOPs, or tokens where those are not known."""
        return point.budget_tokens * (self.flops_per_token or 1.0)

    def largest(self) -> Mapping[str, FrontierPoint]:
        """The last point of each series."""
        return {p.series: p for p in sorted(self.points, key=lambda p: p.budget_tokens)}
