"""What to merge: the branches that pass the screen, and the row of W that a method chooses from them.

Branches, Choice -> screen -> admitted pools -> method (core/methods) -> Row
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trajsoup.core.coefficients import EQUAL, WEIGHTINGS
from trajsoup.core.methods.asking import Answers, Decision, Descending, Measuring, Scoring, Spent, settle
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import METHODS, Method, Scope
from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.reach import LARGEST_MERGE, WITHOUT_SCORES, WON_BACK, auto_k, too_far
from trajsoup.core.scores import DocumentLosses, TaskResult, ValidationScores
from trajsoup.core.screening import Verdict, median_branch, screen
from trajsoup.core.selection import SELECTIONS, TOP_K
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.core.window import Window
from trajsoup.errors import ScreenError, SelectionError, UnansweredError, UncomparableError
from trajsoup.merge.branches import Branches
from trajsoup.store.remote import absolute

DEFAULT = "trajectory-soup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to merge. A method and a selection that contradict each other are refused."""

    strategy: str | None = None  # name of a method; None: the one that `select` defines, or else trajectory-soup
    k: int | None = None  # None: what the curves or the scores allow (core/reach.py)
    select: str | None = None  # None: what the method prescribes
    coefficients: str = EQUAL
    window: Window | None = None  # None: what the method prescribes
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the method, as they were written
    rank_by: Signal = Signal.LOSS
    horizon: int | None = None  # in the study's unit of positions
    branch: str | None = None  # for single-merge
    screened: bool = True
    baseline: str | None = None
    tolerance: float | None = None
    force: tuple[str, ...] = ()  # branches to admit whatever the screen says, besides those of the study

    def __post_init__(self) -> None:
        method, rule = self.method, self.select
        WEIGHTINGS.find(self.coefficients)
        allowed = [name for name in (method.select, *method.selects) if name is not None]
        if rule is not None and SELECTIONS.find(rule).name not in allowed:
            own = f"is defined by --select {' or '.join(allowed)}" if allowed else "has weights of its own"
            raise SelectionError(
                f"{method.name} {own}, and --select {rule} would make it another method: leave out one of --method and "
                "--select"
            )
        if self.coefficients != EQUAL and not method.takes_weights:
            raise SelectionError(
                f"coefficients {self.coefficients!r} weigh ranks inside a branch, which {method.name} does not: leave out "
                "--weights"
            )
        if self.window is not None and not method.takes_window:
            looking = ", ".join(m.name for m in METHODS.values() if m.takes_window)
            raise SelectionError(
                f"--window is the end of a branch that a method looks at, and {method.name} has none: use --horizon, --k, or "
                f"one of {looking}"
            )
        method.settings(self.params)

    @property
    def method(self) -> Method:
        """The method in force."""
        if self.strategy is not None:
            return METHODS.find(self.strategy)
        usual = METHODS[DEFAULT]
        if self.select is None or self.select in usual.selects:
            return usual
        several = (m for m in METHODS.values() if m.scope is Scope.SEVERAL and m.select == self.select)
        return next(several, usual)

    @property
    def rule(self) -> str | None:
        """The selection in force; None: the method has weights of its own."""
        return self.select or self.method.select

    @property
    def takes_k(self) -> bool:
        """Whether a K means something to it."""
        return self.method.takes_k and self.rule is not None and SELECTIONS[self.rule].needs_k


def decide(
    study: Branches,
    choice: Choice,
    *,
    scoring: Scoring | None = None,
    measuring: Measuring | None = None,
    descending: Descending | None = None,
) -> tuple[Decision, tuple[Verdict, ...], tuple[str, ...]]:
    """Screen the branches and let the method decide. Reads no weight by itself.

    `scoring` answers methods that ask for scores of merges; without it only the logged scores of checkpoints are known.
    `measuring` and `descending` answer those that ask for products of checkpoints and for gradients.
    """
    pools, verdicts, notes = _admitted(study, choice)
    method = choice.method
    takes_k = choice.takes_k
    if choice.k is not None and not takes_k:
        what = method.name if choice.rule is None else f"selection {choice.rule!r}"
        notes.append(f"--k {choice.k} has no effect on {what}")
    freedom = Freedom(
        pools=pools,
        stops=_stops(pools, study, choice),
        ks=_ks(pools, choice, notes, scored=scoring is not None) if takes_k else (),
        rank_by=choice.rank_by,
        select=choice.select,
        weights=choice.coefficients,
        window=choice.window,
        fork_point=None if study.fork_point is None else absolute(study.fork_point),
        free=("branch",) if method.scope is Scope.ONE else (),
    )
    (decision,) = settle(
        [method.ask(freedom, **method.settings(choice.params))],
        scoring or logged_scores(pools, method, rank_by=choice.rank_by),
        measuring=measuring,
        descending=descending,
    )
    if scoring is not None and decision.spent != Spent():
        notes.append(f"{method.name} consumed {decision.spent}")
    return decision, verdicts, (*notes, *decision.notes)


def row_of(decision: Decision, choice: Choice) -> Row:
    """What was decided, under the name of its method."""
    return Row(name=choice.method.name, weights=decision.option.weights, groups=decision.option.groups)


def _ks(pools: Sequence[Pool], choice: Choice, notes: list[str], *, scored: bool) -> tuple[int, ...]:
    """The K that is given; else every K that may be tried where merges are scored, else the one that the curves allow."""
    until = [pool.until(choice.horizon) for pool in pools if choice.branch in (None, pool.branch)]
    shape = {"rank_by": choice.rank_by, "select": choice.rule or TOP_K}
    if choice.k is not None:
        if (said := too_far(until, k=choice.k, **shape)) is not None:
            notes.append(said)
        return (choice.k,)
    together = [[pool] for pool in until] if choice.method.scope is Scope.ONE else [until]
    k = min(auto_k(group, **shape) for group in together)
    if scored:
        most = min((len(pool.candidates) for pool in until), default=1)
        return tuple(range(1, max(min(most, LARGEST_MERGE // max(map(len, together))), 1) + 1))
    known = all(c.score(choice.rank_by) is not None for pool in until for c in pool.candidates)
    why = f"the most whose members lie within {WON_BACK:.0%} of the best on average"
    if not known:
        why = "as in the paper" if k == WITHOUT_SCORES else f"what every branch has, with N K up to {LARGEST_MERGE}"
    notes.append(f"K = {k}: {why} (--k K takes another)")
    return (k,)


def logged_scores(pools: Sequence[Pool], method: Method, *, rank_by: Signal) -> Scoring:
    """Answer from the logs of the runs: what single checkpoints scored."""
    known = {c.key: c for pool in pools for c in pool.candidates}

    def answer(rows: Sequence[Row]) -> Answers:
        merged = [row for row in rows if len(row.weights) > 1 or row.total != 1]
        if merged:
            raise UnansweredError(
                f"{method.name} asks how {len(merged)} merged models score, and the logs of the runs know only their "
                "checkpoints: hand over documents to score them on (--validation FILE), or use a method that asks nothing"
            )
        asked = [known[next(iter(row.weights))] for row in rows]
        silent = sum(c.score(rank_by) is None for c in asked)
        if silent:
            raise UnansweredError(
                f"{method.name} asks how single checkpoints score, and the logs of the runs have no validation "
                f"{rank_by.value} of {silent} of {len(asked)}: hand over documents to score them on (--validation FILE), or "
                "use a method that asks nothing"
            )
        return {row.name: _logged(c) for row, c in zip(rows, asked, strict=True)}

    return answer


def _logged(candidate: Candidate) -> ValidationScores:
    loss, accuracy = candidate.val_loss, candidate.accuracy
    return ValidationScores(
        losses=None if loss is None else DocumentLosses(nll=np.array([loss]), targets=np.array([1])),
        tasks=()
        if accuracy is None
        else (TaskResult(name="logged", category="logged", correct=np.array([accuracy], np.float64)),),
    )


def _stops(pools: Sequence[Pool], study: Branches, choice: Choice) -> tuple[Stop, ...]:
    """All branches together, or each by itself, or the one that is named."""
    names, scope = tuple(pool.branch for pool in pools), choice.method.scope
    if choice.branch is not None and scope not in (Scope.ONE, Scope.EITHER):
        raise SelectionError(
            f"--branch names the one branch of a method that merges one, and {choice.method.name} merges all: drop it"
        )
    if scope is Scope.SEVERAL or (scope is Scope.EITHER and choice.branch is None):
        return (Stop(branches=names, horizon=choice.horizon),)
    wanted = choice.branch
    if scope is Scope.BASELINE:
        wanted = wanted or choice.baseline or study.baseline or median_branch(pools, horizon=choice.horizon)
    if wanted is not None and wanted not in names:
        raise SelectionError(f"there is no admitted branch {wanted!r}: choose from {', '.join(names)}")
    return tuple(Stop(branches=(name,), horizon=choice.horizon) for name in names if wanted in (None, name))


def _admitted(study: Branches, choice: Choice) -> tuple[tuple[Pool, ...], tuple[Verdict, ...], list[str]]:
    """The pools that pass the screen, its verdicts, and what there is to say about them."""
    pools = study.pools()
    if not choice.screened or len(pools) == 1:
        return pools, (), []
    try:
        verdicts = screen(
            pools,
            baseline=choice.baseline or study.baseline,
            tolerance=study.tolerance if choice.tolerance is None else choice.tolerance,
            horizon=choice.horizon,
            force={*study.force, *choice.force},
        )
    except UncomparableError as error:
        raise UncomparableError(f"{error}, or pass --no-screen: then all are merged") from error
    admitted = {v.branch for v in verdicts if v.admitted}
    if not admitted:
        raise ScreenError(
            "no branch passed the screen: raise --tolerance, choose another --baseline, --force a branch, or --no-screen"
        )
    notes: list[str] = []
    if rejected := [v for v in verdicts if not v.admitted]:
        names = ", ".join(f"{v.branch} (J {v.gap}, tolerance {v.tolerance:.1%})" for v in rejected)
        notes.append(f"left out by the screen: {names}; --force BRANCH admits one, --no-screen all")
    notes += [
        f"{v.branch} is undecided, so it is admitted: J is {v.gap} and the tolerance {v.tolerance:.1%} lies within that; "
        f"{'' if v.noise is None else v.noise.cure} would decide it"
        for v in verdicts
        if v.undecided and v.admitted
    ]
    notes += [
        f"{v.branch} is forced in although its training loss is {v.loss_gap:+.1%} off the baseline's"
        for v in verdicts
        if v.forced
    ]
    notes += [
        f"{v.branch} trains to a much lower loss than the baseline ({v.loss_gap:+.1%}): check it for overfitting"
        for v in verdicts
        if v.suspiciously_low
    ]
    return tuple(pool for pool in pools if pool.branch in admitted), verdicts, notes
