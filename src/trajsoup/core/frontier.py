"""The compute axis, its full cost, and the frontier of soups against raw training (app:scaling-fit).

horizons -> FLOPs, and beside them what the paper's axis leaves out
soups -> the best at each total compute -> annotations of fig:trajectory-soup-compute-allocation
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trajsoup.core.scaling import PowerLaw, ScalingFit
from trajsoup.core.signal import Signal
from trajsoup.errors import ScalingError

PAPER_FLOPS_PER_TOKEN = 3.674e10  # at a sequence length of 262,144
PAPER_RAW = PowerLaw(asymptote=67.2319, amplitude=1.3393, exponent=0.45531, reference=9.1852e20)  # eq:scaling-fits
PAPER_SOUP = PowerLaw(asymptote=71.0534, amplitude=2.8580, exponent=0.08818, reference=1.8370e21)
FORWARD_SHARE = 1 / 3  # of a training token's FLOPs: the backward pass costs twice the forward one


def training_flops(horizons: Sequence[float], *, flops_per_token: float) -> float:
    """C = FLOPs per token x sum_n t_n (eq:flops-proxy); horizons are tokens since the fork point."""
    return flops_per_token * sum(horizons)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullCost:
    """What a model costs in full. Only `training_flops` is on the paper's axis; the rest are columns of their own."""

    training_flops: float | None  # of the branches in the model; None: the FLOPs of a token are not known
    validation_passes: int  # models scored to rank, to select and to sweep
    validation_flops: float | None
    checkpoints: int  # kept on disk
    checkpoint_bytes: int
    merge_read_bytes: int
    merge_write_bytes: int
    search_tokens: int = 0  # of every branch that was trained so that this model could be chosen
    search_flops: float | None = None

    @property
    def validation_share(self) -> float | None:
        """Validation FLOPs over the FLOPs of all that was trained to choose."""
        if self.validation_flops is None or not self.search_flops:
            return None
        return self.validation_flops / self.search_flops


def cost(
    horizons: Sequence[float],
    *,
    searched: Sequence[int],
    flops_per_token: float | None,
    checkpoints: int,
    bytes_per_checkpoint: int,
    validation_passes: int,
    validation_tokens: int,
    merged: int,
    soups: int = 1,
) -> FullCost:
    """Count everything: `horizons` of the branches in the model, `searched` of all that had to be trained to choose it.

    `checkpoints` are those of all that was trained, `validation_passes` all that was scored. `merged` checkpoints
    are read once for all `soups`; each soup is written whole.
    """
    known = flops_per_token is not None
    return FullCost(
        training_flops=training_flops(horizons, flops_per_token=flops_per_token) if known else None,
        validation_passes=validation_passes,
        validation_flops=validation_passes * validation_tokens * flops_per_token * FORWARD_SHARE if known else None,
        checkpoints=checkpoints,
        checkpoint_bytes=checkpoints * bytes_per_checkpoint,
        merge_read_bytes=merged * bytes_per_checkpoint,
        merge_write_bytes=soups * bytes_per_checkpoint,
        search_tokens=sum(searched),
        search_flops=training_flops(searched, flops_per_token=flops_per_token) if known else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SoupPoint:
    """One soup on the compute axis."""

    compute: float  # FLOPs of all its branches
    score: float
    n_branches: int
    horizon: int  # t, tokens per branch
    k: int


def frontier(
    points: Sequence[SoupPoint], *, rank_by: Signal = Signal.ACCURACY, improving: bool = False
) -> tuple[SoupPoint, ...]:
    """The best soup at each total compute, cheapest first; with `improving`, only those no cheaper soup equals.

    Ties go to fewer branches, then to fewer checkpoints.
    """
    sign = -1 if rank_by is Signal.ACCURACY else 1
    best: dict[float, SoupPoint] = {}
    for point in sorted(points, key=lambda p: (p.compute, sign * p.score, p.n_branches, p.k)):
        best.setdefault(point.compute, point)
    if not improving:
        return tuple(best.values())
    kept: list[SoupPoint] = []
    for point in best.values():
        if not kept or sign * point.score < sign * kept[-1].score:
            kept.append(point)
    return tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An arrow between raw training and soups; `gain` is positive where the soup is better."""

    raw_compute: float
    raw_score: float
    raw_extrapolated: bool
    soup_compute: float
    soup_score: float
    soup_extrapolated: bool
    gain: float


def quality_superiority(raw: ScalingFit, soup: ScalingFit, *, compute: float) -> Annotation:
    """Compare the two fitted curves at the same compute."""
    return _annotation(raw, compute, soup.require_law().score(compute), compute, soup.is_extrapolated(compute))


def scaling_robustness(raw: ScalingFit, soup: SoupPoint, *, compute: float) -> Annotation:
    """Connect the raw curve at `compute`, usually extrapolated, with a soup that was measured at larger compute."""
    if soup.compute < compute:
        raise ScalingError(
            f"the soup costs {soup.compute:.4g} FLOPs, less than the {compute:.4g} of the raw curve: choose a soup of "
            "larger compute"
        )
    return _annotation(raw, compute, soup.score, soup.compute, False)


def _annotation(raw: ScalingFit, compute: float, score: float, soup_compute: float, extrapolated: bool) -> Annotation:
    value = raw.require_law().score(compute)
    return Annotation(
        raw_compute=compute,
        raw_score=value,
        raw_extrapolated=raw.is_extrapolated(compute),
        soup_compute=soup_compute,
        soup_score=score,
        soup_extrapolated=extrapolated,
        gain=score - value if raw.rank_by is Signal.ACCURACY else value - score,
    )
