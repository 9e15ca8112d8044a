"""What a report shows, as plain data: the one thing that figures, captions, tables and the page are made from.

    records of a study -> (reading.py) -> Contents -> figures, captions, tables -> page

Every part may be missing: a study that is still running, or that never asked for a sweep, has fewer sections. Names
are as the user wrote them; escaping is the business of whoever draws them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trajsoup.core.frontier import FullCost
from trajsoup.core.held_out import PredictedSoup
from trajsoup.core.signal import Signal
from trajsoup.study.records.scaling import TheoryRecord

OVERALL = "Overall Average"


class Evidence(StrEnum):
    """How sure the answer is."""

    STRONG = "strong"  # the interval excludes no difference
    WITHIN_NOISE = "within noise"
    AGAINST = "against"  # the interval excludes no difference, on the other side


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A raw checkpoint: what a click on it shows."""

    branch: str
    tokens: int
    loss: float | None = None  # on validation
    accuracy: float | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredient:
    """One checkpoint with its weight: an entry of a row of W."""

    checkpoint: str  # its name in the study
    branch: str | None
    tokens: int | None
    weight: float
    score: float | None = None  # what it was ranked by
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Soup:
    """A row of W and where it comes from."""

    name: str  # unique in the study
    label: str  # for people
    strategy: str
    ingredients: tuple[Ingredient, ...] = ()
    k: int | None = None
    members: tuple[str, ...] = ()  # branches that take part
    merge_size: int | None = None  # checkpoints with a weight
    horizon: int | None = None  # tokens by which checkpoints had to be saved
    scores: Mapping[str, float] = field(default_factory=dict[str, float])  # what was measured, for the panel


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A model minus its reference on the same documents or items, with its interval."""

    name: str = ""  # of the comparison: the same in every seed
    question: str = ""  # in words
    model: str  # name of a soup
    label: str
    reference: str
    rank_by: Signal
    split: str
    value: float  # nats per token, or a share of items
    low: float | None = None
    high: float | None = None
    level: float | None = None
    probability: float | None = None  # of improvement
    count: int = 0  # documents or items
    within_noise: bool = False
    matched: str = ""  # what both sides share

    @property
    def evidence(self) -> Evidence:
        """Whether the interval excludes no difference, and on which side."""
        if self.within_noise:
            return Evidence.WITHIN_NOISE
        return evidence_of(self.value, self.low, self.high, self.rank_by)


def evidence_of(value: float, low: float | None, high: float | None, rank_by: Signal) -> Evidence:
    """What an interval of a difference says."""
    if low is None or high is None or low <= 0 <= high:
        return Evidence.WITHIN_NOISE
    improves = value < 0 if rank_by is Signal.LOSS else value > 0
    return Evidence.STRONG if improves else Evidence.AGAINST


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedLine:
    """One comparison over several seeds of everything."""

    name: str = ""  # of the comparison
    label: str
    rank_by: Signal
    values: Mapping[str, float]  # seed -> difference
    mean: float
    low: float | None
    high: float | None

    @property
    def evidence(self) -> Evidence:
        """Whether the interval of the mean excludes no difference."""
        return evidence_of(self.mean, self.low, self.high, self.rank_by)

    @property
    def better(self) -> int:
        """In how many seeds the model is better."""
        return sum(value < 0 if self.rank_by is Signal.LOSS else value > 0 for value in self.values.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The first thing on the page."""

    soup: str  # its name
    label: str
    reference: str  # label of the best single-trajectory merge
    loss: Difference
    accuracy: Difference | None
    words: tuple[str, ...]
    seeds: tuple[str, ...] = ()
    over_seeds: SeedLine | None = None  # the same difference in loss, over seeds of everything
    shipped: str | None = None  # name of the soup in `folder`: of all soups the best on validation
    folder: str | None = None
    command: str | None = None  # makes that soup again

    @property
    def evidence(self) -> Evidence:
        """That of the loss, which has more documents than the suite has items; seeds must not say otherwise."""
        found = self.loss.evidence
        if self.over_seeds is None or self.over_seeds.low is None:
            return found
        return found if found is self.over_seeds.evidence else Evidence.WITHIN_NOISE


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of a table of strategies."""

    soup: str | None
    label: str
    values: tuple[float | None, ...]  # by category, then overall
    in_noise: tuple[bool, ...] = ()  # by value: no certain difference from the best of its column
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """Strategies by categories (tab:tiny-mid-train-main)."""

    name: str
    title: str
    rank_by: Signal
    split: str
    columns: tuple[str, ...]
    rows: tuple[ScoreRow, ...]

    def best(self, column: int) -> float | None:
        """The best value of a column."""
        values = self._values(column)
        return (min(values) if self.rank_by is Signal.LOSS else max(values)) if values else None

    def worst(self, column: int) -> float | None:
        """The worst value of a column."""
        values = self._values(column)
        return (max(values) if self.rank_by is Signal.LOSS else min(values)) if values else None

    def _values(self, column: int) -> list[float]:
        return [value for row in self.rows if (value := row.values[column]) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A score at a token position."""

    tokens: int
    value: float
    name: str  # of the checkpoint or soup
    selected: bool = False  # an ingredient of the best soup


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Scores over tokens of one branch (raw) or of one strategy."""

    name: str
    raw: bool
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePanel:
    """One category of fig:traj-soup-performance-curves."""

    category: str
    rank_by: Signal
    split: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputePoint:
    """A model on the compute axis."""

    name: str
    label: str
    series: str
    raw: bool  # a checkpoint as it came
    compute: float
    score: float
    n_branches: int = 1
    k: int | None = None
    on_frontier: bool = False  # no cheaper model of its series validates as well


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCurve:
    """A power law over compute, drawn; dashed where it is extrapolated."""

    label: str
    computes: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    formula: str | None = None
    r_squared: float | None = None
    last_measured: float | None = None
    warning: str | None = None
    missing: str | None = None  # why there is no fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """From raw training to the soup; a positive gain is in favour of the soup."""

    name: str
    start: tuple[float, float]  # compute, score
    end: tuple[float, float]
    gain: float
    extrapolated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """fig:trajectory-soup-compute-allocation."""

    rank_by: Signal
    split: str
    in_flops: bool  # otherwise the axis is in tokens
    points: tuple[ComputePoint, ...]
    fits: tuple[FittedCurve, ...] = ()
    arrows: tuple[Arrow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceCell:
    """The soup of N branches with K checkpoints each."""

    n_branches: int
    k: int
    value: float
    name: str
    subsets: int = 1  # subsets of branches that `value` is the mean of

    @property
    def merge_size(self) -> int:
        """M = N K."""
        return self.n_branches * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """The (N, K) sweep."""

    rank_by: Signal
    split: str
    cells: tuple[SurfaceCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """What theory predicts of larger soups, and how far it held (eq:hierarchical)."""

    record: TheoryRecord
    rows: Mapping[tuple[frozenset[str], int], str]  # branches and K -> the same soup as a row of the (N, K) sweep

    def row(self, soup: PredictedSoup) -> str | None:
        """What a click on a soup shows; None: no sweep holds it."""
        return self.rows.get((frozenset(soup.branches), soup.k))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One line of an ablation: its difference from the default configuration."""

    soup: str | None
    label: str
    value: float
    series: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    position: float | None = None  # on the x axis, where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """What changes when one choice changes."""

    name: str
    title: str
    rank_by: Signal
    split: str
    variants: tuple[Variant, ...]
    axis: str | None = None  # name of the x axis; None: the variants have no order
    over_tokens: bool = False  # the axis is in tokens, with a line for each series
    default: str | None = None  # soup of the default configuration, which the others are compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A path in the plane: a branch's checkpoints, or an interpolation."""

    name: str
    kind: str  # branch, merged, path, soup or fork point
    points: tuple[tuple[float, float], ...]
    labels: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPoint:
    """Direction against gain for one pair of branches."""

    first: str
    second: str
    cosine: float
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The loss along a straight line from one anchor to another."""

    first: str
    second: str
    points: tuple[tuple[float, float, str], ...]  # lambda, loss, name of the soup


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Angles between branches and what they are worth."""

    branches: tuple[str, ...] = ()
    cosines: tuple[tuple[float | None, ...], ...] = ()
    tracks: tuple[Track, ...] = ()
    variance_share: tuple[float, float] | None = None
    pairs: tuple[PairPoint, ...] = ()
    gain_unit: Signal = Signal.LOSS
    band: tuple[tuple[float, float, float, float], ...] = ()  # cosine, mean gain and its 95 % band
    pearson: float | None = None
    pearson_p: float | None = None
    spearman: float | None = None
    missing: str | None = None
    profiles: tuple[Profile, ...] = ()
    split: str = "validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch: its recipe, how it trained, and what the screen said."""

    name: str
    status: str  # waiting, running, finished, diverged, failed
    tokens: int
    horizon: int | None
    recipe: Mapping[str, str] = field(default_factory=dict[str, str])
    changed: tuple[str, ...] = ()  # fields that differ from the baseline
    message: str = ""
    admitted: bool | None = None  # None: not screened yet
    loss_gap: float | None = None  # J at the horizon
    tolerance: float | None = None
    why: str = ""
    gaps: tuple[tuple[int, float], ...] = ()  # J against tokens
    losses: tuple[tuple[int, float], ...] = ()  # training loss against tokens
    checkpoints: int = 0
    tokens_per_second: float | None = None

    @property
    def share(self) -> float:
        """How much of the horizon is done, 0 to 1."""
        return min(self.tokens / self.horizon, 1.0) if self.horizon else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of the pipeline and where it stands."""

    name: str
    status: str  # done, running, waiting, failed
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What is needed to make all of it again."""

    ingredients: tuple[Ingredient, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A whole report."""

    study: str  # its name
    folder: str
    description: str = ""
    stages: tuple[Stage, ...] = ()
    branches: tuple[Branch, ...] = ()
    baseline: str | None = None
    soups: Mapping[str, Soup] = field(default_factory=dict[str, Soup])
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict[str, Checkpoint])  # by name in the study
    answer: Answer | None = None
    differences: tuple[Difference, ...] = ()
    seeds: tuple[SeedLine, ...] = ()
    further_seeds: tuple[SeedLine, ...] = ()  # of sweeps and fine-tuning
    tables: tuple[ScoreTable, ...] = ()
    panels: tuple[CurvePanel, ...] = ()
    frontiers: tuple[Frontier, ...] = ()  # by signal
    costs: tuple[tuple[str, FullCost], ...] = ()  # of the last model of each series
    spent: tuple[tuple[str, str], ...] = ()  # by the whole study
    surface: Surface | None = None
    theory: Theory | None = None
    ablations: tuple[Ablation, ...] = ()
    geometry: Geometry | None = None
    provenance: Provenance = field(default_factory=Provenance)
    notes: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether more is to come."""
        return any(s.status in ("running", "waiting") for s in self.stages)
