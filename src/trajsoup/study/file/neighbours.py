"""The `neighbours` field of a study file: methods that train, beside the branches, from the same fork point.

Each gets the budget T of the Limited setting: the tokens of one branch at its full horizon, over all its runs together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from trajsoup.core.quantity import Count, Positive, Share, Tokens
from trajsoup.core.recipe import Recipe
from trajsoup.core.schedule import Shape
from trajsoup.errors import StudyError
from trajsoup.store.fields import MAY_BE_EMPTY, Key, Name, declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Diloco:
    """Workers that train apart and meet in outer steps (Douillard 2023)."""

    workers: Annotated[Count, "N: each trains T/N tokens in the baseline's recipe, with a data order of its own."] = 2
    steps: Annotated[
        Count | None, "H: steps of a worker between two outer steps. Default: those between two checkpoints."
    ] = None
    outer_lr: Annotated[Positive, "Of the outer SGD."] = 0.7
    outer_momentum: Annotated[float, "Nesterov momentum of the outer SGD, from 0 below 1."] = 0.9

    def __post_init__(self) -> None:
        if self.workers < 2:
            raise StudyError("workers is 1: DiLoCo takes the mean of several; use 2 or more")
        if not 0 <= self.outer_momentum < 1:
            raise StudyError(f"outer_momentum is {self.outer_momentum:g}: use a number from 0 up to, not including, 1")

    def rounds(self, *, horizon: int, checkpoint_every: int, step_tokens: int) -> int:
        """Outer steps within the budget; refused where they do not come out even."""
        tokens = self.round_tokens(checkpoint_every=checkpoint_every, step_tokens=step_tokens)
        if horizon % (self.workers * tokens):
            each = horizon // self.workers
            raise StudyError(
                f"neighbours: diloco: {self.workers} workers share {horizon:,} tokens, {each:,} each, which are no whole "
                f"rounds of {tokens:,} tokens ({tokens // step_tokens} steps of {step_tokens:,}): use another number of "
                "workers, or steps that divide it"
            )
        return horizon // (self.workers * tokens)

    def round_tokens(self, *, checkpoint_every: int, step_tokens: int) -> int:
        """Tokens of one worker in one round."""
        return checkpoint_every if self.steps is None else self.steps * step_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Wsd:
    """One run of T tokens whose learning rate decays within them (warmup, stable, decay)."""

    decay_share: Annotated[Share, "Share of T over which the learning rate decays, linearly."] = 0.2
    decay_to: Annotated[Positive | None, "Learning rate at the end. Default: a tenth of the baseline's peak_lr."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTrainMerge:
    """Experts on domains, averaged by the domain posterior, and as an ensemble (Li 2022)."""

    sources: Annotated[
        tuple[Name, ...], "Sources of the corpus, an expert of T/N tokens for each. Default: all that it has."
    ] = ()

    def __post_init__(self) -> None:
        if len(set(self.sources)) < len(self.sources) or len(self.sources) == 1:
            raise StudyError(f"sources are {', '.join(self.sources)}: name two or more, each once")


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTrainMix(BranchTrainMerge):
    """The same experts, their feed-forward parts as experts of a mixture whose router is trained (Sukhbaatar 2024)."""

    router_tokens: Annotated[Tokens, "Tokens that the router trains on, all sources together; they come on top of T."]
    per_token: Annotated[Count, "Experts that answer each token."] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Which of them a study trains."""

    diloco: Annotated[
        Diloco | None, MAY_BE_EMPTY, "DiLoCo (Douillard 2023): workers train apart, outer steps move what they share."
    ] = None
    wsd: Annotated[
        Wsd | None,
        MAY_BE_EMPTY,
        "A decayed run: the baseline, its learning rate decayed within T (warmup, stable, decay).",
    ] = None

    branch_train_merge: Annotated[
        BranchTrainMerge | None,
        Key("branch-train-merge"),
        MAY_BE_EMPTY,
        "Branch-Train-Merge (Li 2022): an expert for each source, averaged by the domain posterior, and as an ensemble.",
    ] = None
    branch_train_mix: Annotated[
        BranchTrainMix | None,
        Key("branch-train-mix"),
        MAY_BE_EMPTY,
        "Branch-Train-MiX (Sukhbaatar 2024): the feed-forward parts of dense experts become a mixture's, its router is "
        "trained. Needs a dense fork point.",
    ] = None

    @staticmethod
    def spelled_out(value: Any) -> Any:
        """A list of names asks for their defaults."""
        return dict.fromkeys(map(str, value)) if isinstance(value, list) else value

    def require(self, baseline: Recipe) -> None:
        """Refuse what would train the baseline once more."""
        if self.wsd is not None and baseline.schedule.shape is not Shape.CONSTANT:
            raise StudyError(
                f"neighbours: wsd decays the baseline, whose schedule ({baseline.schedule.describe()}) decays already: its "
                "last checkpoint is the row raw-final; leave wsd out"
            )

    def require_fits(self, *, horizon: int, checkpoint_every: int, step_tokens: int) -> None:
        """Refuse what the budget does not divide into."""
        if checkpoint_every % step_tokens:
            raise StudyError(
                f"neighbours train in the baseline's recipe, of which a step ({step_tokens:,} tokens) does not divide "
                f"checkpoint_every ({checkpoint_every:,}): change its global_batch, or checkpoint_every"
            )
        if self.diloco is not None:
            self.diloco.rounds(horizon=horizon, checkpoint_every=checkpoint_every, step_tokens=step_tokens)

    def trained_tokens(self, horizon: int) -> int:
        """Tokens of all their runs. Experts on the same sources are trained once."""
        mix = self.branch_train_mix
        experts = {asked.sources for asked in (self.branch_train_merge, mix) if asked is not None}
        runs = len(experts) + sum(asked is not None for asked in (self.diloco, self.wsd))
        return runs * horizon + (0 if mix is None else mix.router_tokens)

    def notes(self, horizon: int) -> Iterator[str]:
        """What they cost, for the plan."""
        asked = [field.key for field in declared(Neighbours) if getattr(self, field.name) is not None]
        if asked:
            yield f"neighbours ({', '.join(asked)}) train {self.trained_tokens(horizon):,} tokens more"
