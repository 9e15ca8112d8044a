"""What the paper asks to be stated beside a geometric or scaling figure (app:geometry, "Completion fields")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryFields:
    """How the directions, paths and gains of a study were measured."""

    averaging_rule: str  # applied within a branch before PCA
    averaging_window: int  # checkpoints per merged point
    interval: tuple[int, int] | None  # matched tokens; None: the branches share none
    points: Mapping[str, int]  # branch -> merged points that entered its fit
    variance_share: Mapping[str, float]  # branch -> carried by the leading component
    interpolation_grid: tuple[float, ...]
    interpolation_horizons: tuple[int, ...]  # tokens
    gain_offsets: tuple[int, ...]  # tokens over which the relative gain was averaged
    interpolation_k: int | None = None  # checkpoints of each anchor of a path; None: no path
    gain_k: int | None = None  # of each anchor whose merge gained; None: no pair


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFields:
    """What stands behind the points of a compute-scaling figure."""

    soups: tuple[tuple[int, int, int], ...]  # (N, t, K) of every plotted merge, in order of compute
    fitted_points: Mapping[str, int]  # curve -> points that entered its fit
    fit_windows: Mapping[str, str] = field(default_factory=dict[str, str])  # curve -> which points those are, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolFields:
    """How checkpoints are ranked, models chosen and scores made (app:protocol)."""

    k_grid: tuple[int, ...]  # what K is chosen from
    horizons: tuple[int, ...]  # tokens at which curves and sweeps stop
    rank_by: str
    tie_rule: str
    held_out: str  # which split chooses and which is reported
    scored_tokens: Mapping[str, int]  # split -> tokens whose loss counts
    scored_documents: Mapping[str, int]
    effective_documents: Mapping[str, float]  # Kish: so many of one size would say as much
    largest_share: Mapping[str, float]  # of a split's tokens, in one document
    masking: str
    normalisation: str
    overall_average: str | None  # None: no items were scored
