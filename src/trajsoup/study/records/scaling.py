"""Records that are arithmetic on scores: the compute frontier with its two laws, and predicted against measured soups.

sweeps/frontier -> frontier.json (app:scaling-fit)        validation scores of soups -> theory.json (sec:theory)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trajsoup.core.frontier import FullCost
from trajsoup.core.held_out import PredictedSoup
from trajsoup.core.prediction import Agreement
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.study.records.results import BandPoint, Estimate


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
class Superiority:
    """An arrow of fig:trajectory-soup-compute-allocation; a positive gain is in favour of the soup."""

    name: str  # quality-superiority, scaling-robustness
    signal: Signal
    raw_compute: float
    raw_score: float
    raw_extrapolated: bool
    soup_compute: float
    soup_score: float
    soup_extrapolated: bool
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRecord:
    """Raw training against merges at each total compute."""

    FILE: ClassVar[str] = "frontier"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CountEstimate:
    """L(N, K) = limit + spread / N at one K over all soups; intervals are a jackknife over branches, from three on."""

    k: int
    limit: float  # a(K): infinitely many branches
    spread: Estimate  # b(K)
    v_intra: Estimate | None  # None: K = 1, or ranks were not scored
    v_inter: Estimate | None
    bias_change: float  # of lower ranks, against the smallest K


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCell:
    """One (N, K): the mean over its subsets of branches."""

    n_branches: int
    k: int
    subsets: int
    measured: float
    predicted: float  # by a(K) + b(K) / N, fitted on soups of one and two branches
    fitted: bool  # N <= 2: the fit has seen it


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedBest:
    """The K of least loss for N branches."""

    n_branches: int
    k: int  # predicted from all soups
    loss: float
    from_pairs: int | None  # predicted from soups of one and two branches; None: no soup of so many was scored
    measured: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRecord:
    """Predicted against measured losses of soups that the prediction did not see."""

    name: str
    soups: int
    root_mean_square: float
    worst: float
    mean_error: float  # measured minus predicted
    gain: float  # what averaging took off the anchors' mean loss, root mean square
    share_of_gain: float | None  # error over gain: 0 is perfect, 1 no better than expecting no gain
    r_squared: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoryRecord:
    """The theory at work: variances from losses, what they promise, and how good such promises were (sec:theory)."""

    FILE: ClassVar[str] = "theory"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    split: Split
    horizon: int
    branches: tuple[str, ...]
    counts: tuple[CountEstimate, ...]
    cells: tuple[PredictedCell, ...]
    cells_error: Agreement | None  # over cells of N >= 3; None: there is none
    soups: tuple[
        PredictedSoup, ...
    ]  # of three branches and more, from their anchors and pairs: the first of `held_out`
    best: tuple[PredictedBest, ...]
    best_k_falls: bool | None  # whether the predicted best K never rises with N
    worth_of_branch: Estimate | None  # what one more branch would take off the loss of the best soup; jackknife
    worth_of_tokens: float | None  # what the last stretch of tokens in every branch took off
    budget: Mapping[str, float]  # N -> predicted loss with the tokens of one full branch shared by N (eq:fixed-budget)
    held_out: tuple[HeldOutRecord, ...]
    words: tuple[str, ...]  # what follows, and what could not be told
    held_out_words: tuple[str, ...] = ()  # on each of `held_out`

    @property
    def variances(self) -> CountEstimate | None:
        """The largest K at which V_intra and V_inter could be told."""
        return next((count for count in reversed(self.counts) if count.v_intra and count.v_inter), None)
