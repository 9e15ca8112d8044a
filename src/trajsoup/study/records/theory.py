"""theory.json: variances from losses, and predicted against measured soups (sec:theory)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trajsoup.core.held_out import PredictedSoup
from trajsoup.core.hierarchy import Terms
from trajsoup.core.prediction import Agreement, BestCount
from trajsoup.core.price import AllocationCheck
from trajsoup.core.splits import Split
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.files import Record


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
class PredictedBest(BestCount):
    """The K of least loss for N branches, predicted from all soups."""

    from_pairs: int | None  # predicted from soups of one and two branches; None: no soup of so many was scored
    measured: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRecord(Agreement):
    """Predicted against measured losses of soups that the prediction did not see."""

    name: str
    gain: float  # what averaging took off the anchors' mean loss, root mean square
    share_of_gain: float | None  # error over gain: 0 is perfect, 1 no better than expecting no gain


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSoup:
    """The validation loss of one soup at one horizon: what the price of a trajectory is fitted to."""

    horizon: int
    branches: tuple[str, ...]
    k: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsRecord(Terms):
    """The terms with jackknife intervals over branches."""

    between: Mapping[str, Estimate]  # v_intra, v_inter, k_eff, limit, unequal_gain


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoryRecord(Record):
    """The theory at work: variances from losses, what they promise, and how good such promises were (sec:theory)."""

    FILE: ClassVar[str] = "theory"
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
    measured: tuple[MeasuredSoup, ...] = ()  # every subset, K and horizon
    terms: TermsRecord | None = None  # tab:averaging-methods on this study; None: too little was scored
    allocation: AllocationCheck | None = None  # promises of (N, T/N) from small soups and short horizons; None likewise

    @property
    def variances(self) -> CountEstimate | None:
        """The largest K at which V_intra and V_inter could be told."""
        return next((count for count in reversed(self.counts) if count.v_intra and count.v_inter), None)
