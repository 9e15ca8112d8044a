"""What a study writes down: one immutable, human-readable JSON record per stage, below <study>/records/.

    plan -> train -> validation -> screen -> rows -> evaluations -> comparisons -> answer
                                     \\-> sweeps/<name>, geometry, sft        seeds (over all seeds)
                                            \\-> frontier, theory (scaling_records.py)

Every record names the content it was made from (`inputs`), so a stage whose inputs did not change is skipped, and
carries no clock and no absolute path, so the same study gives the same bytes. Checkpoints are named by their path
relative to the study's folder. docs/records.md shows each record; record_files.py reads and writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import ClassVar

from trajsoup.core.budget import Setting
from trajsoup.core.completion import GeometryFields, ProtocolFields, ScalingFields
from trajsoup.core.pair_gain import Relation
from trajsoup.core.quantity import format_tokens
from trajsoup.core.screening import ScreenedAt, Verdict
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.core.statistics import Optimism
from trajsoup.study.records.files import Records


class Evidence(StrEnum):
    """How sure a difference is. Only what was registered in advance has a verdict, by its Holm-adjusted p value."""

    STRONG = "strong"  # the model is better
    WITHIN_NOISE = "within noise"
    AGAINST = "against"  # the reference is better
    EXPLORATORY = "exploratory"  # not registered: an interval and no verdict

    @property
    def holds(self) -> str:
        """What becomes of the claim that the model is better."""
        return {"strong": "holds", "against": "the opposite holds"}.get(self.value, self.value)

    @classmethod
    def of(cls, signal: Signal, value: float | None, *, primary: bool, p_holm: float | None) -> Evidence:
        """The verdict on a difference, model minus reference."""
        if not primary:
            return cls.EXPLORATORY
        if value is None or p_holm is None or not p_holm <= SURE:
            return cls.WITHIN_NOISE
        return cls.STRONG if signal.improves(value) else cls.AGAINST


SURE = 0.05  # the share of families in which any verdict may be wrong
Shares = Mapping[str, float | None]  # scores by name; None: NaN, of a model that diverged


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its bootstrap interval over documents or items; no bounds where none was computed."""

    value: float | None  # None: NaN or infinite, a model that diverged
    low: float | None = None
    high: float | None = None
    count: int  # documents or items


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPlan:
    """One line of tab:branch-mapping."""

    recipe: Mapping[str, str]
    changed: Mapping[str, tuple[str, str]]  # field -> (baseline, branch)
    steps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """What the study set out to do. Figures that a foreign run does not tell are None."""

    FILE: ClassVar[str] = "plan"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    title: str
    seed: int | None  # of everything: fork point, data orders; None for foreign runs
    setting: Setting
    horizon: int  # tokens per branch
    checkpoint_every: int | None
    sequence_length: int | None
    total_tokens: int
    total_params: int | None
    active_params: int | None
    flops_per_token: float | None
    train_flops: float | None
    epochs: float | None
    corpus: Mapping[str, int]  # split -> tokens
    branches: Mapping[str, BranchPlan]
    baseline: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedCheckpoint:
    """One saved checkpoint."""

    key: str  # its folder, relative to the study
    tokens: int
    sha256: str  # of its weights and config


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedBranch:
    """How one branch ended."""

    branch: str
    status: str  # finished, diverged, failed, foreign
    tokens: int
    message: str | None  # why it ended before its horizon
    metrics: str | None  # metrics.jsonl relative to the study
    checkpoints: tuple[TrainedCheckpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRecord:
    """All branches, and the fork point they share."""

    FILE: ClassVar[str] = "train"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    fork_point: str | None  # sha256 of its weights and config; None: runs that exist, and nobody knows their fork point
    branches: tuple[TrainedBranch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredCheckpoint:
    """One checkpoint on the validation split and on the probe of training documents."""

    key: str
    branch: str
    tokens: int
    loss: float | None
    accuracy: float | None
    probe_loss: float | None  # training loss on a fixed probe; what the screen compares
    categories: Shares = field(default_factory=dict[str, float | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRecord:
    """Scores of every checkpoint; they rank, choose K, N, branch and horizon, and are not reported as results."""

    FILE: ClassVar[str] = "validation"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    split: Split
    documents: int
    fork_point_loss: float | None
    fork_point_accuracy: float | None
    checkpoints: tuple[ScoredCheckpoint, ...]
    saturation: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # branch -> share of its improvement in loss that its first half brought; none where it did not improve


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenRecord:
    """The compatibility screen."""

    FILE: ClassVar[str] = "screen"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    baseline: str
    tolerance: float
    measured_on: str  # probe of training documents, or logged training loss
    verdicts: tuple[Verdict, ...]  # at the full horizon
    early: tuple[ScreenedAt, ...] = ()  # at every saved position: who may enter a soup whose branches stop there


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenOn:
    """On what a choice was made: nothing but validation ever stands here."""

    split: Split
    signal: Signal
    free: tuple[str, ...]  # what was free: k, branch, horizon, branches; empty: prescribed, nothing was chosen
    among: int  # how many rows were compared
    score: float | None  # of the winner
    trained: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # branch -> tokens that had to be trained so that all of them could be compared

    @property
    def trained_tokens(self) -> int:
        """Of all branches that were compared."""
        return sum(self.trained.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRecord:
    """One reported model: a row of W and how it came to be."""

    name: str  # unique: what evaluations and comparisons refer to
    label: str  # as the table prints it
    strategy: str
    setting: Setting | None  # None: the same in both
    select: str
    coefficients: str
    k: int | None
    horizon: int | None  # tokens per branch by which checkpoints had to be saved
    budget_tokens: int  # training tokens of all branches that were used, up to the horizon
    branches: tuple[str, ...]
    weights: Mapping[str, float]  # checkpoint key -> weight
    chosen_on: ChosenOn
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    alone: bool = False  # the merge of one prescribed branch: no strategy, so no part of the main table

    def validation_score(self, signal: Signal) -> float | None:
        """What validation says of it."""
        return self.validation_loss if signal is Signal.LOSS else self.validation_accuracy

    @property
    def made_of(self) -> str:
        """Branches, K and horizon."""
        k = "" if self.k is None else f", K={self.k}"
        horizon = "" if self.horizon is None else f", {format_tokens(self.horizon)} tokens each"
        return f"{'+'.join(self.branches)}{k}{horizon}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRecord:
    """The models of the main table."""

    FILE: ClassVar[str] = "rows"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    rows: tuple[RowRecord, ...]

    def best_soup(self) -> RowRecord | None:
        """The Trajectory Soup of lowest validation loss, Limited or Extended."""
        soups = [row for row in self.rows if row.strategy == "trajectory-soup"]
        return min(soups, key=lambda row: inf if row.validation_loss is None else row.validation_loss, default=None)

    def best(self) -> RowRecord | None:
        """The row of lowest validation loss, raw checkpoints included: the model to take, written as a folder."""
        scored = [row for row in self.rows if row.validation_loss is not None]
        return min(scored, key=lambda row: row.validation_loss or 0.0, default=None)

    def winner_and_fixed(self) -> tuple[RowRecord, RowRecord] | None:
        """The best on validation of the rows that it chose, and the first in which nothing was free."""
        scored = [row for row in self.rows if row.validation_loss is not None]
        chosen = [row for row in scored if row.chosen_on.free]
        fixed = [row for row in scored if not row.chosen_on.free]
        if not chosen or not fixed:
            return None
        return min(chosen, key=lambda row: row.validation_loss or 0.0), fixed[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What one row scored on a split that chose nothing."""

    row: str
    split: Split
    loss: Estimate
    overall_average: Estimate | None
    answer_loss: Estimate | None = None  # nats of the right answers: as the average, but smooth
    categories: Shares = field(default_factory=dict[str, float | None])
    tasks: Shares = field(default_factory=dict[str, float | None])
    sources: Shares = field(default_factory=dict[str, float | None])  # loss by source of documents
    seeds: tuple[int, ...] = ()
    kept: tuple[str, ...] = ()  # the score records of it: scores/test/<name>.json, by document and item


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationsRecord:
    """Test scores of the rows."""

    FILE: ClassVar[str] = "evaluations"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    evaluations: tuple[Evaluation, ...]
    notes: tuple[str, ...] = ()  # what of a preset of tasks could not be scored
    protocol: ProtocolFields | None = None  # how these models were chosen and scored: the paper's "Completion fields"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """A paired difference, model minus reference, on the same documents or items."""

    name: str
    question: str  # in words
    model: str  # names of rows
    reference: str
    signal: Signal
    split: Split
    difference: float | None
    low: float | None
    high: float | None  # over the documents or items of one seed: it does not cover what another seed would change
    p: float | None  # two-sided, of no difference
    resamples_better: float | None  # share of resamples in which the model is better
    count: int
    matched: str  # what both sides share: the budget in tokens, or the horizon
    label: str = ""  # both sides, as people call them
    primary: bool = False  # registered in advance; otherwise exploratory
    p_holm: float | None = None  # of a primary one, adjusted for the whole family
    kept: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # score records of model and reference

    @property
    def evidence(self) -> Evidence:
        """The verdict; none on what was not registered."""
        return Evidence.of(self.signal, self.difference, primary=self.primary, p_holm=self.p_holm)

    def seen_from(self, row: str) -> ComparisonRecord:
        """The same comparison with `row` as the model: where it is the reference, signs and sides change."""
        if row == self.model:
            return self
        assert row == self.reference, f"{row!r} is no side of {self.name!r}"
        share = self.resamples_better
        return replace(
            self,
            model=self.reference,
            reference=self.model,
            difference=None if self.difference is None else -self.difference,
            low=None if self.high is None else -self.high,
            high=None if self.low is None else -self.low,
            resamples_better=None if share is None else 1 - share,
            kept=(self.kept[1], self.kept[0]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTies:
    """One column of the main table: which rows a paired interval cannot tell from the best."""

    column: str | None  # a source of documents or a category of tasks; None: overall
    signal: Signal
    best: str  # row
    tied: tuple[str, ...]  # rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonsRecord:
    """All paired differences of the main table."""

    FILE: ClassVar[str] = "comparisons"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    level: float
    resamples: int
    comparisons: tuple[ComparisonRecord, ...]
    ties: tuple[ColumnTies, ...] = ()
    optimism: Optimism | None = None  # of the row that won on validation; None: nothing was fixed in advance
    not_made: tuple[str, ...] = ()  # primary comparisons of which a side, or the signal, was not there


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One row of a sweep."""

    row: str
    series: str  # the line of a figure, or the block of a table
    x: float | str  # position on the axis, or the entry's name
    strategy: str
    setting: Setting | None  # None: the same in both
    weights: Mapping[str, float]  # the row of W: checkpoint key -> weight
    k: int | None
    n_branches: int
    merge_size: int  # checkpoints with a weight
    horizon: int | None
    budget_tokens: int
    branches: tuple[str, ...]
    chosen_on: ChosenOn
    validation_loss: float | None
    validation_accuracy: float | None
    test_loss: Estimate | None  # None: not reported, it only served to choose or to fill the grid
    test_accuracy: Estimate | None
    alone: bool = False  # the merge of one prescribed branch
    validation_categories: Shares = field(default_factory=dict[str, float | None])
    test_categories: Shares = field(default_factory=dict[str, float | None])

    def score(self, signal: Signal, split: Split, category: str | None = None) -> float | None:
        """One score, overall or of a category of tasks; None where it was not measured."""
        if category is not None:
            return (self.test_categories if split is Split.TEST else self.validation_categories).get(category)
        if split is Split.TEST:
            estimate = self.test_loss if signal is Signal.LOSS else self.test_accuracy
            return None if estimate is None else estimate.value
        return self.validation_loss if signal is Signal.LOSS else self.validation_accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One (N, K) of a grid on validation: the mean over its subsets of branches."""

    n_branches: int
    k: int
    loss: float
    subsets: int
    row: str  # the best of them
    best: bool  # of the whole grid
    best_of_n: bool  # of the cells with as many branches

    @property
    def merge_size(self) -> int:
        """M = N K."""
        return self.n_branches * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """One named comparison of the paper."""

    FILE: ClassVar[str] = "sweeps"
    SEVERAL: ClassVar[bool] = True
    inputs: Mapping[str, str]
    name: str
    kind: str  # of study/sweeps
    title: str
    paper: str  # label of the paper's table or figure
    x_label: str
    points: tuple[SweepPoint, ...]
    comparisons: tuple[ComparisonRecord, ...] = ()
    notes: tuple[str, ...] = ()
    cells: tuple[GridCell, ...] = ()  # of a grid over (N, K)

    @property
    def default(self) -> str | None:
        """The row that every comparison has on one side, which a table or figure marks; None where there is none."""
        sides = [{c.model, c.reference} for c in self.comparisons]
        shared = set.intersection(*sides) if sides else set[str]()
        return next((p.row for p in self.points if p.row in shared), None)

    def from_default(self, row: str, signal: Signal) -> ComparisonRecord | None:
        """The row minus the default, where the two were compared."""
        for c in self.comparisons:
            if c.signal is signal and {c.model, c.reference} == {row, self.default} and row != self.default:
                return c.seen_from(row)
        return None


def sweep_of(records: Records, kind: str) -> SweepRecord | None:
    """The sweep of that kind, whatever its name."""
    return next((sweep for sweep in records.every(SweepRecord).values() if sweep.kind == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BandPoint:
    """A point of a fitted line, with the bounds of its band where there is one."""

    x: float
    y: float
    low: float | None
    high: float | None


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
class GeometryRecord:
    """Directions, angles and a plane to draw in (app:geometry)."""

    FILE: ClassVar[str] = "geometry"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuned:
    """One chosen row after the identical fine-tuning; means over the fine-tuning's seeds."""

    row: str
    split: Split
    seeds: tuple[int, ...]
    overall_average: Estimate  # mean over seeds, interval over items
    by_seed: Shares  # seed -> Overall Average
    deviation: float | None  # of the Overall Average over seeds; None with one seed
    categories: Shares
    before: float | None  # Overall Average of the post-training suite without fine-tuning
    loss: Estimate  # nats per answer token of held-out pairs, prompts masked; mean over seeds
    loss_before: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuningRecord:
    """Post-training: every row through the same SFT (tab:tiny-post-train-main)."""

    FILE: ClassVar[str] = "sft"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    settings: Mapping[str, str]  # optimizer, learning rate, schedule, tokens, items, seeds
    rows: tuple[FineTuned, ...]
    comparisons: tuple[ComparisonRecord, ...]
    ties: tuple[ColumnTies, ...] = ()
    strongest_single: str | None = None  # row: the single merge chosen anew, after fine-tuning, on validation items


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must be so before a soup of this study says anything, and whether it is."""

    name: str
    question: str
    wanted: str
    measured: str
    value: float | None  # None: could not be measured, `measured` says why
    met: bool | None
    comparisons: tuple[ComparisonRecord, ...] = ()  # that it was measured by


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionsRecord:
    """Whether the paper's question can be asked of this study."""

    FILE: ClassVar[str] = "conditions"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """Which soup is best, by how much over the best single-trajectory merge at matched budget, on test."""

    FILE: ClassVar[str] = "answer"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    soup: str  # row, chosen on validation
    single: str  # row: the baseline's run of the same tokens, merged, K chosen on validation
    loss: ComparisonRecord | None  # None: there is no soup to compare, the words say why
    accuracy: ComparisonRecord | None
    words: tuple[str, ...]  # what was seen, a sentence each, computed from the numbers
    soup_folder: str | None  # relative to the study
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRecord:
    """Which checkpoints are no longer on disk, and by which policy. Their scores and sha256 stay in the other records."""

    FILE: ClassVar[str] = "retention"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    top_k: int
    every_nth: int | None
    last: bool
    kept: tuple[str, ...]
    pruned: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSpread:
    """One number over several seeds of everything, all scored on the same documents or items."""

    name: str  # a row's or a comparison's name
    signal: Signal
    values: Mapping[str, float]  # seed -> value
    mean: float
    deviation: float | None
    low: float | None  # over seeds and documents crossed (core/crossed.py); None: one seed has it
    high: float | None
    label: str  # as the table prints it
    without: tuple[str, ...] = ()  # seeds that do not have it: another branch was admitted, or the model diverged
    p: float | None = None  # two-sided, of no difference
    seeds_error: float | None = None  # standard errors of the mean: what other seeds would change
    documents_error: float | None = None  # what other documents would change in all seeds alike
    together_error: float | None = None  # what they would change in each seed on its own; part of seeds_error
    count: int | None = None  # documents or items
    primary: bool = False  # registered in advance; otherwise exploratory
    p_holm: float | None = None  # of a primary one, adjusted for the whole family

    @property
    def evidence(self) -> Evidence:
        """The verdict; none on what was not registered."""
        return Evidence.of(self.signal, self.mean, primary=self.primary, p_holm=self.p_holm)

    @property
    def better(self) -> int:
        """In how many seeds the model is better."""
        return sum(self.signal.improves(value) for value in self.values.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GridGain:
    """What N branches change in the loss of one at the same K, over seeds: means over all subsets, on validation.

    Its interval is Student's over seeds alone, for these validation documents.
    """

    n_branches: int
    k: int
    loss: SeedSpread


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsRecord:
    """All comparisons over seeds; below <study>/records of seed 0, others in <study>/seeds/<seed>."""

    FILE: ClassVar[str] = "seeds"
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]
    seeds: tuple[int, ...]
    split: Split
    rows: tuple[SeedSpread, ...]
    comparisons: tuple[SeedSpread, ...]  # of the main table
    words: tuple[str, ...]
    further: Mapping[str, tuple[SeedSpread, ...]] = field(
        default_factory=dict[str, tuple[SeedSpread, ...]]
    )  # of sweeps and fine-tuning, by the record's name
    grid: tuple[GridGain, ...] = ()  # of the (N, K) sweep, where every seed has one
