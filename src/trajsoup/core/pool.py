"""Candidate pools C_n(t): the checkpoints a branch saved, and how each scored (sec:checkpoint-selection)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trajsoup.core.signal import Signal
from trajsoup.errors import SelectionError

TIES = "checkpoints: fewer tokens first, then by branch name; models: fewer branches first, then the smaller K"


class Unit(StrEnum):
    """What positions along a branch are counted in."""

    TOKENS = "tokens"
    STEPS = "steps"  # of foreign runs that recorded no tokens; comparable only at equal batch size


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One saved checkpoint of one branch. Scores are None where nobody measured them."""

    key: str  # unique name, the engine's handle on the weights (a path)
    branch: str
    tokens: int  # consumed since the fork point; steps, where `unit` says so
    train_loss: float | None = None
    window_tokens: int | None = None  # that the training loss is the mean of; None: as somebody wrote it down
    train_error: float | None = None  # standard error of the training loss, where single losses were logged
    train_pieces: tuple[float, ...] = ()  # the same loss on parts of a probe that all branches were scored on
    val_loss: float | None = None
    accuracy: float | None = None
    unit: Unit = Unit.TOKENS

    def score(self, rank_by: Signal) -> float | None:
        """The measured value of the ranking signal."""
        return self.val_loss if rank_by is Signal.LOSS else self.accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The candidates of one branch in order of tokens."""

    branch: str
    candidates: tuple[Candidate, ...]
    apart: Mapping[int, tuple[Candidate, ...]] = field(
        default_factory=dict[int, tuple[Candidate, ...]]
    )  # horizon -> what the branch saved when it was trained for that horizon alone, its schedule ending there

    @property
    def runs(self) -> tuple[Pool, ...]:
        """The run to the full horizon and those apart, each as a pool of its own."""
        return tuple(Pool(branch=self.branch, candidates=c) for c in (self.candidates, *self.apart.values()))

    @property
    def positions(self) -> frozenset[int]:
        """Where a soup may stop: wherever it was saved, or, with runs apart, where one of its runs ends."""
        if not self.apart:
            return frozenset(c.tokens for c in self.candidates)
        return frozenset([*self.apart, max(c.tokens for c in self.candidates)])

    def over(self, change: Callable[[tuple[Candidate, ...]], tuple[Candidate, ...]]) -> Pool:
        """The pool with something done to the candidates of each of its runs."""
        apart = {horizon: change(found) for horizon, found in self.apart.items()}
        return Pool(branch=self.branch, candidates=change(self.candidates), apart=apart)

    @property
    def unit(self) -> Unit:
        """What the positions are counted in, the same in all branches of a study."""
        return self.candidates[0].unit if self.candidates else Unit.TOKENS

    def until(self, horizon: int | None) -> Pool:
        """C_n(t): what was saved by `horizon`, by the run that ends there if there is one. None: by the longest run."""
        if horizon is None:
            return self
        found = self.apart.get(horizon, self.candidates)
        return Pool(branch=self.branch, candidates=tuple(c for c in found if c.tokens <= horizon))


def ranked(candidates: tuple[Candidate, ...], *, rank_by: Signal) -> tuple[Candidate, ...]:
    """Order candidates from best to worst.

    The paper leaves ties open; we break them towards fewer tokens, then by branch name, so file order never
    matters. A checkpoint that scored NaN or infinity is not a candidate at all: it is left out.
    """
    require_scores(candidates, rank_by=rank_by)
    sign = 1 if rank_by is Signal.LOSS else -1
    scores = {c.key: sign * score for c in candidates if (score := c.score(rank_by)) is not None}
    usable = (c for c in candidates if math.isfinite(scores[c.key]))
    return tuple(sorted(usable, key=lambda c: (scores[c.key], c.tokens, c.branch)))


def require_scores(candidates: Sequence[Candidate], *, rank_by: Signal) -> None:
    """Refuse candidates that cannot be ranked because nobody measured the signal."""
    missing = [c for c in candidates if c.score(rank_by) is None]
    if missing:
        signal = "validation loss" if rank_by is Signal.LOSS else "accuracy"
        names = ", ".join(f"{c.branch}@{c.tokens:,}" for c in missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise SelectionError(
            f"{len(missing)} of {len(candidates)} checkpoints have no {signal} ({names}): supply it in a metrics.csv "
            "beside the checkpoints, hand over documents to score them on (--validation FILE), or take a soup that ranks "
            "nothing (trajectory-soup with --select tail-k, all or final)"
        )
