"""geometry.json: directions, angles, pairs and paths (app:geometry)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trajsoup.core.completion import GeometryFields, ScalingFields
from trajsoup.core.pair_gain import Relation
from trajsoup.study.records.estimate import BandPoint
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchDirection:
    """The leading component of one branch's merged trajectory."""

    branch: str
    variance_share: float
    random_walk_share: float  # the same of a random walk of as many points, each the mean of as many checkpoints
    net_displacement: float
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedPoint:
    """A checkpoint, anchor or soup in the plane of the two leading components."""

    name: str
    kind: str  # fork point, checkpoint, anchor, soup
    branch: str | None
    tokens: int | None
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPair:
    """What merging the anchors of two branches gained on validation, beside the cosine of their directions."""

    first: str
    second: str
    cosine: float
    gain: float  # nats below the mean of the two ends, averaged over horizons
    gains: Mapping[str, float]  # tokens -> gain
    accuracy_gain: float | None = None  # of the Overall Average above the mean of the two ends; None: no items
    accuracy_gains: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPath:
    """An interpolation of two anchors at one horizon (fig:interpolation)."""

    first: str
    second: str
    tokens: int
    best_lambda: float
    gain_over_better_end: float
    gain_over_mean: float
    barrier: float
    k: int | None = None  # checkpoints of each anchor
    losses: tuple[float, ...] = ()  # on validation along the grid: the ends are the two merged anchors

    @property
    def best_loss(self) -> float | None:
        """At the best lambda."""
        return min(self.losses, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryRecord(Record):
    """Directions, angles and a plane to draw in (app:geometry)."""

    FILE: ClassVar[str] = "geometry"
    window: int  # checkpoints per merged point
    interval: tuple[int, int] | None  # matched tokens; None: the branches share none
    directions: tuple[BranchDirection, ...]
    branches: tuple[str, ...]  # order of the matrices
    cosines: tuple[tuple[float | None, ...], ...]
    angles: tuple[tuple[float | None, ...], ...]  # degrees
    displacements: Mapping[str, float]  # checkpoint key -> distance from the fork point
    plane_variance_share: tuple[float, float]
    plane: tuple[ProjectedPoint, ...]
    completion: GeometryFields | None = None  # how it was measured: the paper's "Completion fields"
    compute: ScalingFields | None = None  # what stands behind the compute axis; None: FLOPs are not known
    pairs: tuple[MeasuredPair, ...] = ()
    relation: Relation | None = None  # of gain and cosine; None: fewer than two branches
    relation_line: tuple[BandPoint, ...] = ()  # gain over cosine, to draw; empty: no line can be fitted
    accuracy_relation: Relation | None = None  # the same of the gain in Overall Average; None: no items were scored
    accuracy_line: tuple[BandPoint, ...] = ()
    paths: tuple[MeasuredPath, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be computed, and why
