"""What a method asks, what it is told, and what it answers; and the driver that runs many methods in rounds.

    method(freedom) -> yields Score(options) -> is sent ValidationScores by name -> ... -> returns a Decision
    settle: the open requests of all methods -> ONE call of who scores -> the answers, sent -> next round

So the checkpoints are read once for the first questions of all methods together. Only validation scores are ever sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.errors import SelectionError, UnansweredError

if TYPE_CHECKING:
    from trajsoup.core.scores import ValidationScores


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row that a method may choose, and what training it stands for."""

    weights: Mapping[str, float]
    k: int | None
    horizon: int | None  # tokens per branch; None: each branch where it ended
    branches: tuple[str, ...]
    budget_tokens: int  # of all branches together
    groups: Mapping[str, Mapping[str, float]] | None = None  # see Row

    @property
    def name(self) -> str:
        """Unique for its weights, and readable in the score records."""
        k = "" if self.k is None else f" K={self.k}"
        return f"{'+'.join(self.branches)} t={self.horizon}{k} #{self._digest()}"

    @property
    def row(self) -> Row:
        """The row of W."""
        return Row(name=self.name, weights=self.weights, groups=self.groups)

    @property
    def trained(self) -> dict[str, int]:
        """Branch -> the tokens that it was trained for."""
        return {name: self.horizon or self.budget_tokens // len(self.branches) for name in self.branches}

    def _digest(self) -> str:
        listed: list[object] = [*_exact(self.weights)]
        if self.groups:
            listed += [[group, _exact(weights)] for group, weights in sorted(self.groups.items())]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A request: score these rows on validation. The answer is by `Option.name`."""

    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The row that a method chose, and on what."""

    option: Option
    free: tuple[str, ...] = ()  # what validation chose: k, branch, horizon, ...; empty: prescribed
    among: int = 1  # how many rows were compared
    score: float | None = None  # of the winner
    notes: tuple[str, ...] = ()
    compared: tuple[Option, ...] = ()  # with what; empty: with nothing
    validation: ValidationScores | None = None  # of the chosen row, where somebody asked (`with_scores_of_the_chosen`)

    @property
    def trained(self) -> dict[str, int]:
        """Branch -> the tokens that had to be trained so that this could be chosen: of all that was compared."""
        furthest: dict[str, int] = {}
        for option in (self.option, *self.compared):
            for name, tokens in option.trained.items():
                furthest[name] = max(tokens, furthest.get(name, 0))
        return furthest


Request = Score  # a method may one day ask for more: the gradient of a loss with respect to w, the Gram matrix
Answers = Mapping[str, "ValidationScores"]
Asking = Generator[Request, Answers, Decision]
Scoring = Callable[[Sequence[Row]], Answers]  # who scores: a study, or the logs of runs (UnansweredError: cannot)


def settle(askings: Sequence[Asking], scoring: Scoring) -> tuple[Decision, ...]:
    """Run all generators to their ends, in rounds; a round is at most one call of `scoring`, for rows not yet known."""
    from trajsoup.core.choosing import require_validation

    known: dict[str, ValidationScores] = {}
    decided: dict[int, Decision] = {}
    waiting: dict[int, Request] = {}

    def advance(number: int, step: Callable[[], Request]) -> None:
        try:
            waiting[number] = step()
        except StopIteration as end:
            decided[number] = end.value

    for number, asking in enumerate(askings):
        advance(number, asking.__next__)
    while waiting:
        asked, waiting = waiting, {}
        rows = {o.name: o.row for request in asked.values() for o in request.options if o.name not in known}
        try:
            found: Answers = scoring(list(rows.values())) if rows else {}
        except UnansweredError as error:
            for number in asked:
                advance(number, lambda of=askings[number], error=error: of.throw(error))
            continue
        require_validation(found)
        known |= found
        for number, request in asked.items():
            answers = {option.name: known[option.name] for option in request.options}
            advance(number, lambda of=askings[number], answers=answers: of.send(answers))
    return tuple(decided[number] for number in range(len(askings)))


def best_of(options: Sequence[Option], *, rank_by: Signal, free: tuple[str, ...] = ()) -> Asking:
    """Choose the option that validates best; ties go to the first. One alone is prescribed: nothing is asked."""
    from trajsoup.core.choosing import choose

    each = {option.name: option for option in options}
    if not each:
        raise SelectionError("there is no row to choose from: lower K, extend the horizon, or admit more branches")
    if len(each) == 1:
        return Decision(option=options[0])
    scores = yield Score(options=tuple(each.values()))
    winner = choose({name: scores[name] for name in each}, rank_by=rank_by)
    return Decision(
        option=each[winner.name], free=free, among=len(each), score=winner.score, compared=tuple(each.values())
    )


def with_scores_of_the_chosen(asking: Asking) -> Asking:
    """The same method; the scores of the row that it chooses are asked for too, whatever it asked."""
    decision = yield from asking
    scores = yield Score(options=(decision.option,))
    return replace(decision, validation=scores[decision.option.name])


def _exact(weights: Mapping[str, float]) -> list[tuple[str, str]]:
    return sorted((key, float(weight).hex()) for key, weight in weights.items())
