"""Branches that adapt: with what is left of the budget, extend all, open a new one, or stop one (sec:discussion).

    losses of anchors and pairs at the last looks, by document -> draws over documents and branches
        -> what dC tokens gain: extending -beta log(1 + dC / (N t)), opening b [1/N - 1/(N + r)] with r = dC / t
        -> one decision with its reasons

A branch of t tokens costs t whether it is opened now or later, so nothing is lost by opening late: what cannot be undone is
t that went too far for more branches. The two gains are therefore compared at dC = t, the price of one more branch.
beta is the slope of the soup's loss over log t at the last looks, b what branches average away, twice the gap of a pair.
A branch is stopped where the soup is better without it, where its J will leave the tolerance, or where all that is left of
the budget is worth more as length of the others: -beta [log t_(N-1) - log t_N] > b [1/(N-1) - 1/N], t_N = t + left / N.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.drift import drift

Array = NDArray[np.float64]
Curve = Sequence[tuple[int, float]]  # J against tokens


class Move(StrEnum):
    """What is done with the next tokens."""

    EXTEND = "extend all"
    OPEN = "open one"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How decisions are made."""

    start: int = 2  # branches at the first look: one alone does not show what branches average away
    sure: float = 0.5  # share of draws in which opening must gain more than extending
    lean: float = 1.0  # times the gain of extending: above 1 leans towards long runs
    drop: float = 0.9  # share of draws in which the soup without a branch must be better, at two looks on end
    shorten: float | None = 0.9  # share of draws in which fewer and longer branches must be better; None: never
    abandon: float = 0.95  # P(J_T > epsilon) from which a branch is given up
    looks: int = 3  # the last ones, over which beta is a slope
    draws: int = 400


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """What was scored of the live branches at one look: sums of loss by document, all at one K."""

    tokens: int  # t
    k: int
    anchors: Array  # branches x documents
    pairs: Mapping[tuple[int, int], Array]  # the soup of branches i < j
    targets: Array  # predicted tokens of each document

    @property
    def loss(self) -> float:
        """Of the equal soup of all branches, from anchors and pairs: exact for two, the quadratic model's for more."""
        return float(_soup(self, np.ones((1, len(self.targets))), range(len(self.anchors)))[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """All that a decision knows."""

    live: tuple[str, ...]
    tables: tuple[Table, ...]  # of these branches; the last is now
    left: int  # tokens
    step: int | None  # tokens to the next position; None: every branch is at its last one
    waiting: int  # recipes that were not opened yet
    loss_gaps: Mapping[str, Curve] = field(default_factory=dict[str, Curve])  # of each branch but the baseline
    suspected: Collection[str] = ()  # branches that the look before would have dropped
    shown: Gains | None = None  # of the last look that had two branches: one alone shows no gain


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """What the price of one more branch buys, in nats."""

    extend: float | None  # None: one look shows no slope
    open: float | None  # None: one branch shows no spread
    sure: float | None  # share of draws in which opening gains more
    beta: float | None
    spread: float | None  # b
    fewer: float | None = None  # share of draws in which one branch fewer is better for all that is left


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is done, and why."""

    tokens: int  # t at the look
    live: tuple[str, ...]  # before it
    k: int
    loss: float  # of the soup, on validation
    left: int
    move: Move
    stopped: Mapping[str, str]  # branch -> why
    suspected: tuple[str, ...]  # would be dropped if the next look agrees
    gains: Gains
    reasons: tuple[str, ...]


def decide(look: Look, policy: Policy, *, tolerance: float, horizon: int, seed: int = 0) -> Decision:
    """One decision. The first branch is the baseline, which others are judged by: it is never stopped."""
    now = look.tables[-1]
    random = np.random.default_rng([seed, now.tokens, len(look.live)])
    drawn = random.exponential(size=(policy.draws, len(now.targets)))  # Bayesian bootstrap
    among = random.exponential(size=(policy.draws, len(look.live)))
    stopped = _abandoned(look, policy, tolerance=tolerance, horizon=horizon)
    suspected = _suspected(now, look.live, drawn, share=policy.drop)
    for name, share in suspected.items():
        if name in look.suspected and name not in stopped:
            stopped[name] = f"the soup without it is better in {share:.0%} of draws, at two looks on end"
    gains = _gains(look, policy, drawn, among, horizon=horizon)
    if not stopped and policy.shorten is not None and gains.fewer is not None and gains.fewer > policy.shorten:
        worst = max(range(1, len(look.live)), key=lambda i: float(now.anchors[i].sum()))
        stopped[look.live[worst]] = f"what is left is worth more as length of the others in {gains.fewer:.0%} of draws"
    n = len(look.live) - len(stopped)
    shown = gains if gains.beta is not None else look.shown
    move, reasons = _move(look, policy, gains, n=n)
    if move is Move.EXTEND and shown is not None:
        move, reasons = _spends(look, policy, shown, reasons, n=n, horizon=horizon)
    elif move is Move.END and len(look.tables) > 1 and n > 1:
        fewer, reasons = _fewer(look, policy, drawn, among, reasons, n=n)
        if fewer:
            move, left = Move.EXTEND, [i for i in range(1, len(look.live)) if look.live[i] not in stopped]
            for i in sorted(left, key=lambda i: -float(now.anchors[i].sum()))[: n - fewer]:
                stopped[look.live[i]] = f"what is left extends {fewer} of {n} branches"
    return Decision(
        tokens=now.tokens,
        live=look.live,
        k=now.k,
        loss=now.loss,
        left=look.left,
        move=move,
        stopped=stopped,
        suspected=tuple(name for name in suspected if name not in stopped),
        gains=gains,
        reasons=(*(f"{name} is stopped: {why}" for name, why in stopped.items()), *reasons),
    )


def _move(look: Look, policy: Policy, gains: Gains, *, n: int) -> tuple[Move, tuple[str, ...]]:
    """Extend or open, whichever the budget allows and the draws prefer."""
    t = look.tables[-1].tokens
    can_extend = look.step is not None and n * look.step <= look.left
    can_open = look.waiting > 0 and t <= look.left
    if not can_extend and not can_open:
        return Move.END, (f"{look.left:,} tokens are left: neither a step of {n} branches nor a branch of {t:,}",)
    if not can_open:
        why = "no recipe waits" if not look.waiting else f"a branch of {t:,} tokens is more than is left"
        return Move.EXTEND, (why,)
    if gains.open is None:
        if can_extend:
            return Move.EXTEND, ("one branch does not show what another would average away",)
        return Move.OPEN, ("every branch is at its last position",)
    if not can_extend:
        if gains.open > 0:
            return Move.OPEN, ("every branch is at its last position, or a step of all costs more than is left",)
        return Move.END, ("no step is left, and branches average nothing away",)
    if gains.extend is None or gains.sure is None:
        return Move.EXTEND, ("one look shows no slope yet",)
    words = f"{t:,} tokens take {gains.extend:.2g} nats off as length and {gains.open:.2g} as a branch"
    if gains.sure > policy.sure:
        return Move.OPEN, (f"{words}: a branch gains more in {gains.sure:.0%} of draws",)
    return Move.EXTEND, (f"{words}: a branch gains more in only {gains.sure:.0%} of draws",)


def _spends(
    look: Look, policy: Policy, gains: Gains, reasons: tuple[str, ...], *, n: int, horizon: int
) -> tuple[Move, tuple[str, ...]]:
    """Extend, unless that ends with tokens that buy no branch, and one branch more, all of less length, is promised more."""
    t = look.tables[-1].tokens
    rest = look.left - n * (horizon - t)
    later = min(look.waiting, max(rest, 0) // horizon)  # branches that can still be opened at the end
    idle, needed = rest - later * horizon, (later + 1) * t
    if idle <= 0 or later >= look.waiting or needed > look.left or gains.beta is None or gains.spread is None:
        return Move.EXTEND, reasons
    ends, more = n + later, n + later + 1
    length = min(t + (look.left - needed) / more, horizon)
    change = policy.lean * gains.beta * math.log(length / horizon) + gains.spread * (1 / more - 1 / ends)
    words = f"{ends} branches to the end leave {idle:,} tokens; {more} of {length:,.0f} instead"
    if change < 0:
        return Move.OPEN, (f"{words} take {-change:.2g} nats off",)
    return Move.EXTEND, (*reasons, f"{words} would cost {change:.2g} nats")


def _fewer(
    look: Look, policy: Policy, drawn: Array, among: Array, reasons: tuple[str, ...], *, n: int
) -> tuple[int, tuple[str, ...]]:
    """How many branches go on with what is left; 0: it ends here, since that is not promised to be better."""
    fewer = 0 if look.step is None else min(look.left // look.step, n - 1)
    if not fewer or look.step is None or policy.shorten is None:
        return 0, reasons
    tables = look.tables[-policy.looks :]
    length = math.log(1 + look.step / tables[-1].tokens)
    change = policy.lean * _slope(tables, drawn, among) * length + _spread(tables[-1], drawn, among) * (
        1 / fewer - 1 / n
    )
    better = float(np.mean(change < 0))
    words = f"{look.left:,} tokens extend {fewer} of {n} branches, which is better in {better:.0%} of draws"
    return (fewer, (words,)) if better > policy.shorten else (0, (*reasons, words))


def _gains(look: Look, policy: Policy, drawn: Array, among: Array, *, horizon: int) -> Gains:
    """At the price of one more branch, dC = t, so r = 1. Branches are drawn by weights, as documents are."""
    n, tables = len(look.live), look.tables[-policy.looks :]
    even = np.ones((1, n))
    every = np.ones((1, drawn.shape[1]))
    if n < 2:
        return Gains(extend=None, open=None, sure=None, beta=None, spread=None)
    spread = _spread(tables[-1], drawn, among)
    opened = spread * (1 / n - 1 / (n + 1))
    plain = float(_spread(tables[-1], every, even)[0])
    beta, extended, sure, fewer = None, None, None, None
    if len(tables) > 1:
        slopes = _slope(tables, drawn, among)
        beta = float(_slope(tables, every, even)[0])
        extended = -policy.lean * beta * math.log(1 + 1 / n)
        sure = float(np.mean(opened > -policy.lean * slopes * math.log(1 + 1 / n)))
        t = tables[-1].tokens
        length, shorter = (min(t + look.left / m, horizon) for m in (n - 1, n))
        fewer = float(np.mean(-policy.lean * slopes * math.log(length / shorter) > spread * (1 / (n - 1) - 1 / n)))
    opening = plain * (1 / n - 1 / (n + 1))
    return Gains(extend=extended, open=opening, sure=sure, beta=beta, spread=plain, fewer=fewer)


def _losses(sums: Array, targets: Array, drawn: Array) -> Array:
    """Mean losses in every draw: (draws,) of one row, (branches, draws) of several."""
    return sums @ drawn.T / (drawn @ targets)


def _spread(table: Table, drawn: Array, among: Array) -> Array:
    """b: twice the mean gap of pairs, in every draw."""
    anchors = _losses(table.anchors, table.targets, drawn)
    total, weight = np.zeros(len(drawn)), np.zeros(len(drawn))
    for (i, j), sums in table.pairs.items():
        w = among[:, i] * among[:, j]
        total += w * ((anchors[i] + anchors[j]) / 2 - _losses(sums, table.targets, drawn))
        weight += w
    return 2 * total / weight


def _slope(tables: Sequence[Table], drawn: Array, among: Array) -> Array:
    """beta: the slope of the soup's loss over log t, in every draw; mean anchor less b (1 - 1/N)."""
    n = among.shape[1]
    share = among / among.sum(axis=1, keepdims=True)
    curve = np.array(
        [
            np.einsum("dn,nd->d", share, _losses(t.anchors, t.targets, drawn)) - _spread(t, drawn, among) * (1 - 1 / n)
            for t in tables
        ]
    )
    x = np.log([t.tokens for t in tables])
    x = x - x.mean()
    return x @ curve / (x @ x)


def _soup(table: Table, drawn: Array, members: Collection[int]) -> Array:
    """The loss of the equal soup of some branches, from their anchors and pairs (prediction.predicted_loss)."""
    anchors = _losses(table.anchors, table.targets, drawn)
    n = len(members)
    total = sum(anchors[i] for i in members) / n
    for i, j in itertools.combinations(sorted(members), 2):
        gap = (anchors[i] + anchors[j]) / 2 - _losses(table.pairs[i, j], table.targets, drawn)
        total = total - 4 / n**2 * gap
    return np.asarray(total, np.float64)


def _suspected(table: Table, live: Sequence[str], drawn: Array, *, share: float) -> dict[str, float]:
    """Branches but the baseline without which the soup is better in more than this share of draws; the surest first."""
    every = range(len(live))
    if len(live) < 2:
        return {}
    whole = _soup(table, drawn, every)
    better = {live[i]: float(np.mean(_soup(table, drawn, [j for j in every if j != i]) < whole)) for i in every if i}
    return {name: better[name] for name in sorted(better, key=lambda name: -better[name]) if better[name] > share}


def _abandoned(look: Look, policy: Policy, *, tolerance: float, horizon: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in look.live[1:]:
        expected = drift(look.loss_gaps.get(name, ()), horizon=horizon)
        if expected is not None and (p := expected.above(tolerance)) > policy.abandon:
            found[name] = f"P(J > {tolerance:.1%} at the horizon) = {p:.2f}, J = {look.loss_gaps[name][-1][1]:+.2%} now"
    return found
