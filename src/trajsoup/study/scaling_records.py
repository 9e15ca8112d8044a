"""Records that are arithmetic on sweeps: the compute frontier with its two laws, and predicted against measured soups.

    sweeps/frontier -> frontier.json (app:scaling-fit)        sweeps/scaling -> prediction.json (sec:theory)

No model is run for them, so they can be made again from the sweeps at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trajsoup.core.frontier import FullCost
from trajsoup.core.splits import Split
from trajsoup.study.records import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One model on the compute axis; its scores, weights and choice are in sweeps/frontier under the same row."""

    row: str
    series: str
    budget_tokens: int  # D of eq:flops-proxy
    improving: bool  # no cheaper point of its series validates as well
    cost: FullCost


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLaw:
    """A -+ B (C / C0)^-alpha through one series; without parameters, `missing` says why."""

    series: str
    signal: Signal
    split: Split
    points: tuple[tuple[float, float], ...]  # (compute in FLOPs, or tokens where those are not known; score)
    asymptote: float | None  # A
    amplitude: float | None  # B
    exponent: float | None  # alpha
    reference: float | None  # C0
    r_squared: float | None
    asymptote_interval: tuple[float, float] | None  # bootstrap
    exponent_interval: tuple[float, float] | None
    level: float
    refits: int  # resamples on which a law could be fitted
    missing: str | None
    warning: str | None


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

    inputs: Mapping[str, str]
    flops_per_token: float | None
    points: tuple[FrontierPoint, ...]
    laws: tuple[FittedLaw, ...]  # of the series Raw and Trajectory Soup, on test, for each signal
    annotations: tuple[Superiority, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountFit:
    """a(K) + b(K) / N, fitted on soups of one and two branches, with what follows from it."""

    k: int
    limit: float  # a
    spread: float  # b
    v_intra: float | None  # None: K = 1, or ranks were not scored
    v_inter: float | None
    k_eff: float | None
    bias_change: float  # against the smallest K


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCell:
    """One (N, K): the mean over its subsets of branches."""

    n_branches: int
    k: int
    subsets: int
    measured: float
    predicted: float  # by a(K) + b(K) / N
    fitted: bool  # N <= 2: the fit has seen it


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSoup:
    """One soup of three branches or more, from the losses of its anchors and pairs alone."""

    row: str  # of sweeps/scaling
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCount:
    """The best K for one N."""

    n_branches: int
    predicted: int
    measured: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """How far predictions are off, measured minus predicted; None where nothing was left to predict."""

    soups: int
    mean_error: float
    root_mean_square: float
    worst: float
    r_squared: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRecord:
    """How far the quadratic model holds on soups that it did not see (eq:hierarchical)."""

    inputs: Mapping[str, str]
    split: Split
    horizon: int
    fits: tuple[CountFit, ...]
    cells: tuple[PredictedCell, ...]
    soups: tuple[PredictedSoup, ...]
    counts: tuple[PredictedCount, ...]
    cells_error: PredictionError | None  # over cells of N >= 3
    soups_error: PredictionError | None
    notes: tuple[str, ...]
