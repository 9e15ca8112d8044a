"""What a method asks, what it is told, and what it answers; and the driver that runs many methods in rounds.

    method(freedom) -> yields Score(options)   -> is sent ValidationScores by name
                       yields Measure(keys)    -> is sent the Gram matrix of these checkpoints
                       yields Descend(option)  -> is sent the slope of the loss along every weight
                    -> ... -> returns a Decision
    settle: the open requests of all methods -> ONE call of who scores -> the answers, sent -> next round

So the checkpoints are read once for the first questions of all methods together. Only validation scores are ever sent.
What each method consumed on the way is counted, for the budget column of its table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.errors import SelectionError, UnansweredError

if TYPE_CHECKING:
    from trajsoup.core.gram import Gram
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
    apart: bool = False  # made of runs that end at its horizon, so that no longer run contains them

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
    counted: bool = True  # False: for the report, no part of choosing


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A request: the Gram matrix of these checkpoints about a centre, whole and by parts (`tensor_groups.PARTS`)."""

    keys: tuple[str, ...]
    centre: str | None  # one of the keys; None: their mean
    parts: str | None = None  # None: the whole alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Descend:
    """A request: the gradient of the loss of a row with respect to its weights, on one batch of tokens."""

    option: Option
    keys: tuple[str, ...]  # with respect to the weights of these, whether they are in the row or not
    batch: int  # its number: the same number is the same tokens
    on: Split = Split.VALIDATION  # or training documents
    parts: str | None = None  # as in Measure: a gradient for each part


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slope:
    """The answer to Descend."""

    loss: float  # of the row, on the batch
    tokens: int  # in the batch
    along: Mapping[str, NDArray[np.float64]]  # part, or WHOLE -> dL/dw by key, in the order of the keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What choosing consumed, besides training."""

    validation_passes: int = 0  # rows scored on all validation documents
    gradient_tokens: int = 0  # through forward and backward passes

    def __str__(self) -> str:
        return f"{self.validation_passes} validation passes and {self.gradient_tokens:,} gradient tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a model of the loss promised of the weights it found, and what was measured: nats below the uniform soup."""

    promised: float  # on the documents that it was fitted on
    measured: float  # on the others
    error: float  # of `measured`: its standard error over these others
    documents: float  # the others: as many of equal size
    strength: float  # of the pull towards the uniform soup, chosen on the first documents
    kept: bool  # False: the uniform soup stands

    def __str__(self) -> str:
        return (
            f"promised {self.promised:.4f} nats below the uniform soup, measured {self.measured:.4f} (standard error "
            f"{self.error:.4f}) on {self.documents:.0f} documents it had not seen: "
            + ("its weights are kept" if self.kept else "no clear gain, so the uniform soup stands")
        )


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
    spent: Spent = Spent()  # filled in by `settle`
    promise: Promise | None = None  # of a method that predicts what its weights gain

    @property
    def trained(self) -> dict[str, int]:
        """Branch -> the tokens that had to be trained so that this could be chosen: of all that was compared."""
        furthest: dict[tuple[str, int | None], int] = {}  # by run: one for each horizon apart, and the long one
        for option in (self.option, *self.compared):
            for name, tokens in option.trained.items():
                run = name, tokens if option.apart else None
                furthest[run] = max(tokens, furthest.get(run, 0))
        return {name: sum(n for (of, _), n in furthest.items() if of == name) for name, _ in furthest}


Request = Score | Measure | Descend
Answers = Mapping[str, "ValidationScores"]
Asking = Generator[Request, Any, Decision]  # what is sent is the answer to what was yielded
Scoring = Callable[[Sequence[Row]], Answers]  # who scores: a study, or the logs of runs (UnansweredError: cannot)
Measuring = Callable[[Measure], "Gram"]
Descending = Callable[[Descend], Slope]


def settle(
    askings: Sequence[Asking],
    scoring: Scoring,
    *,
    measuring: Measuring | None = None,
    descending: Descending | None = None,
) -> tuple[Decision, ...]:
    """Run all generators to their ends, in rounds; a round is at most one call of `scoring`, for rows not yet known.

    Matrices of a round about one centre come out of one read too. Who cannot answer raises UnansweredError, which the
    method hears.
    """
    known: dict[str, ValidationScores] = {}
    decided: dict[int, Decision] = {}
    waiting: dict[int, Request] = {}
    rows_of: list[set[str]] = [set() for _ in askings]
    tokens_of = [0] * len(askings)

    def advance(number: int, step: Callable[[], Request]) -> None:
        try:
            waiting[number] = step()
        except StopIteration as end:
            spent = Spent(validation_passes=len(rows_of[number]), gradient_tokens=tokens_of[number])
            decided[number] = replace(end.value, spent=spent)

    for number, asking in enumerate(askings):
        advance(number, asking.__next__)
    while waiting:
        asked, waiting = waiting, {}
        scored = _scored([r for r in asked.values() if isinstance(r, Score)], scoring, known)
        measured = _measured([r for r in asked.values() if isinstance(r, Measure)], measuring)
        for number, request in asked.items():
            answer: Any
            match request:
                case Score():
                    answer = scored or {option.name: known[option.name] for option in request.options}
                    rows_of[number] |= {option.name for option in request.options if request.counted}
                case Measure():
                    answer = measured[request]
                case Descend():
                    answer = _descended(request, descending)
                    tokens_of[number] += answer.tokens if isinstance(answer, Slope) else 0
            if isinstance(answer, UnansweredError):
                advance(number, lambda of=askings[number], error=answer: of.throw(error))
            else:
                advance(number, lambda of=askings[number], answer=answer: of.send(answer))
    return tuple(decided[number] for number in range(len(askings)))


def _scored(requests: Sequence[Score], scoring: Scoring, known: dict[str, ValidationScores]) -> UnansweredError | None:
    """Have every row scored that is not known yet, all in one call."""
    from trajsoup.core.choosing import require_validation

    rows = {o.name: o.row for request in requests for o in request.options if o.name not in known}
    try:
        found: Answers = scoring(list(rows.values())) if rows else {}
    except UnansweredError as error:
        return error
    require_validation(found)
    known |= found
    return None


def _measured(requests: Sequence[Measure], measuring: Measuring | None) -> dict[Measure, Gram | UnansweredError]:
    """One matrix for all requests about one centre, and its part for each of them."""
    from trajsoup.core.gram import subset

    found: dict[Measure, Gram | UnansweredError] = {}
    for request in requests:
        alike = [r for r in requests if (r.centre, r.parts) == (request.centre, request.parts)]
        if request in found:
            continue
        try:
            if measuring is None:
                raise UnansweredError(
                    "nobody measures distances between checkpoints here: use a method that asks nothing"
                )
            if request.centre is None:  # about their own mean
                found[request] = measuring(request)
                continue
            union = tuple(dict.fromkeys(key for r in alike for key in r.keys))
            whole = measuring(replace(request, keys=union))
            found |= {r: subset(whole, r.keys) for r in alike}
        except UnansweredError as error:
            found |= dict.fromkeys(alike, error)
    return found


def _descended(request: Descend, descending: Descending | None) -> Slope | UnansweredError:
    try:
        if descending is None:
            raise UnansweredError(
                "a method asks for gradients, and nobody trains here: hand over documents (--validation FILE, with the extra "
                "[train]), or use a method that asks for none"
            )
        return descending(request)
    except UnansweredError as error:
        return error


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
    scores = yield Score(options=(decision.option,), counted=False)
    return replace(decision, validation=scores[decision.option.name])


def _exact(weights: Mapping[str, float]) -> list[tuple[str, str]]:
    return sorted((key, float(weight).hex()) for key, weight in weights.items())
