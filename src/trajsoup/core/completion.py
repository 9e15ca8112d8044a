"""What the paper asks to be stated beside a geometric or scaling figure (app:geometry, "Completion fields")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFields:
    """What stands behind the points of a compute-scaling figure."""

    soups: tuple[tuple[int, int], ...]  # (N, t) of every plotted soup, in order of compute
    fitted_points: Mapping[str, int]  # curve -> points that entered its fit
