"""Branches that adapt: with what is left of the budget, extend all, open a new one, or stop one (sec:discussion).

    losses of anchors and pairs at the last looks, by document -> draws over documents and branches
        -> what dC tokens gain: extending a(t) - a(t + dC / N), opening b [1/N - 1/(N + r)] with r = dC / t
        -> one decision with its reasons

a(t) = A + alpha t^-p is the law of the price (core/price.py), fitted to the soup's loss at the last looks; b is what branches
average away, twice the gap of a pair. A branch of t tokens costs t whether it is opened now or later, so nothing is lost by
opening late: what cannot be undone is t that went too far for more branches. The two gains are therefore compared at dC = t,
the price of one more branch. Where the last stretch took nothing off, the soup does not need it: new branches stop before.
A branch is stopped where the soup is better without it, where the screen will reject it, or where all that is left of the
budget can be length of the others and is worth more: a(t_N) - a(t_(N-1)) > b [1/(N-1) - 1/N], t_N = t + left / N.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.drift import drift
from trajsoup.core.price import ASSUMED_P

Array = NDArray[np.float64]
P_TRIED: list[float] = np.geomspace(0.05, 4.0, 24).tolist()


class Move(StrEnum):
    """What is done with the next tokens."""

    EXTEND = "extend all"
    BACK = "go back"  # to the position before: new branches run to there
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
    looks: int = 3  # the last ones, which a(t) is fitted to
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """J of a branch on its way."""

    gaps: Sequence[tuple[int, float]]  # J against tokens
    spread: float = 0.0  # what the screen allows J to lie above the tolerance: it may as well be below


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """All that a decision knows."""

    live: tuple[str, ...]
    tables: tuple[Table, ...]  # of these branches; the last is now
    left: int  # tokens
    step: int | None  # tokens to the next position; None: every branch is at its last one
    waiting: int  # recipes that were not opened yet
    courses: Mapping[str, Course] = field(default_factory=dict[str, Course])  # of each branch but the baseline
    suspected: Collection[str] = ()  # branches that the look before would have dropped
    spread: float | None = None  # b at the last look that had two branches: one alone shows none


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """What the price of one more branch buys, in nats."""

    extend: float | None = None  # None: one look shows no slope
    open: float | None = None  # None: one branch shows no spread, and none of infinite loss
    sure: float | None = None  # share of draws in which opening gains more
    beta: float | None = None  # da / d(log t)
    spread: float | None = None  # b
    fewer: float | None = None  # share of draws in which one branch fewer is better for all that is left


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is done, and why."""

    tokens: int  # t at the look
    live: tuple[str, ...]  # before it
    k: int
    loss: float | None  # of the soup, on validation; None: not finite
    left: int
    move: Move
    stopped: Mapping[str, str]  # branch -> why
    suspected: tuple[str, ...]  # would be dropped if the next look agrees
    gains: Gains
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trend:
    """a(t) = A + alpha (t / now)^-p in every draw."""

    now: int
    alpha: Array
    p: Array
    lean: float

    def gain(self, tokens: float) -> Array:
        """What the soup's loss is taken to fall by from now to there."""
        return self.lean * self.alpha * (1 - (tokens / self.now) ** -self.p)


def draw_documents(table: Table, policy: Policy, *, seed: int = 0) -> Array:
    """Weights of documents in every draw: the Bayesian bootstrap."""
    return np.random.default_rng([seed, table.tokens]).exponential(size=(policy.draws, len(table.targets)))


def decide(look: Look, policy: Policy, *, tolerance: float, horizon: int, seed: int = 0) -> Decision:
    """One decision. The first branch is the baseline, which others are judged by: it is never stopped."""
    now, n = look.tables[-1], len(look.live)
    drawn = draw_documents(now, policy, seed=seed)
    among = np.random.default_rng([seed, now.tokens, n]).exponential(size=(policy.draws, n))
    plain = np.ones((1, len(now.targets))), np.ones((1, n))
    trends = [_trend(look.tables[-policy.looks :], *draws, lean=policy.lean) for draws in ((drawn, among), plain)]
    spreads = [_spread(now, *draws) if n > 1 and np.isfinite(now.loss) else None for draws in ((drawn, among), plain)]
    gains = _gains(look, trends, spreads, horizon=horizon)
    suspected = _suspected(now, range(n), drawn, share=policy.drop)
    stopped = _stopped(look, policy, gains, [look.live[i] for i in suspected], tolerance=tolerance, horizon=horizon)
    going = n - len(stopped)
    if not stopped and _back(look, gains):
        earlier = look.tables[-2].tokens
        words = f"the last {now.tokens - earlier:,} tokens took nothing off the soup's loss"
        move, reasons = Move.BACK, (f"{words}: its branches are taken up to {earlier:,}, and new ones stop there",)
    else:
        move, reasons = _move(look, policy, gains, n=going)
    if move is Move.EXTEND:
        move, reasons = _spends(look, trends[1], spreads[1], reasons, n=going, horizon=horizon)
    elif move is Move.END:
        fewer, reasons = _fewer(look, policy, trends[0], spreads[0], reasons, n=going)
        if fewer:
            move, others = Move.EXTEND, [i for i in range(1, n) if look.live[i] not in stopped]
            for i in sorted(others, key=lambda i: -float(now.anchors[i].sum()))[: going - fewer]:
                stopped[look.live[i]] = f"what is left extends {fewer} of {_branches(going)}"
        else:
            out = spoilers(now, [i for i in range(n) if look.live[i] not in stopped], drawn, share=policy.drop)
            stopped |= {look.live[i]: f"the soup without it is better in {p:.0%} of draws" for i, p in out.items()}
            going -= len(out)
            if out and look.step is not None and going * look.step <= look.left:
                move, reasons = Move.EXTEND, (f"{look.left:,} tokens are enough for a step of {_branches(going)}",)
    return Decision(
        tokens=now.tokens,
        live=look.live,
        k=now.k,
        loss=now.loss if np.isfinite(now.loss) else None,
        left=look.left,
        move=move,
        stopped=stopped,
        suspected=tuple(name for i in suspected if (name := look.live[i]) not in stopped),
        gains=gains,
        reasons=(*(f"{name} is stopped: {why}" for name, why in stopped.items()), *reasons),
    )


def _back(look: Look, gains: Gains) -> bool:
    """Whether the last stretch took nothing off, and a branch without it can be opened and would average something away."""
    if len(look.tables) < 2 or not look.waiting or (gains.open is not None and not gains.open > 0):
        return False
    before, now = look.tables[-2:]
    return before.loss <= now.loss and before.tokens <= look.left


def _stopped(
    look: Look, policy: Policy, gains: Gains, suspected: Sequence[str], *, tolerance: float, horizon: int
) -> dict[str, str]:
    """Branches that are not worth their next tokens, and why."""
    found: dict[str, str] = {}
    if look.step is None:
        return found
    for name, course in look.courses.items():
        going = drift(course.gaps, horizon=horizon)
        if going is not None and (p := going.above(tolerance + course.spread)) > policy.abandon:
            found[name] = (
                f"P(J > {tolerance + course.spread:.1%} at the horizon) = {p:.2f}, J = {course.gaps[-1][1]:+.2%} now"
            )
    for name in suspected:
        if name in look.suspected and name not in found:
            found[name] = f"the soup without it is better in more than {policy.drop:.0%} of draws, at two looks on end"
    can_extend = (len(look.live) - 1) * look.step <= look.left
    if not found and can_extend and policy.shorten is not None and (gains.fewer or 0) > policy.shorten:
        worst = max(range(1, len(look.live)), key=lambda i: float(look.tables[-1].anchors[i].sum()))
        found[look.live[worst]] = f"what is left is worth more as length of the others in {gains.fewer:.0%} of draws"
    return found


def spoilers(table: Table, members: Collection[int], drawn: Array, *, share: float) -> dict[int, float]:
    """Branches without which the soup is better, in which share of draws, one after another."""
    left, found = list(members), dict[int, float]()
    while suspected := _suspected(table, left, drawn, share=share):
        worst = next(iter(suspected))
        left.remove(worst)
        found[worst] = suspected[worst]
    return found


def _move(look: Look, policy: Policy, gains: Gains, *, n: int) -> tuple[Move, tuple[str, ...]]:
    """Extend or open, whichever the budget allows and the draws prefer."""
    t = look.tables[-1].tokens
    can_extend = look.step is not None and n * look.step <= look.left
    can_open = look.waiting > 0 and t <= look.left
    if not can_extend and not can_open:
        return Move.END, (f"{look.left:,} tokens are left: neither a step of {_branches(n)} nor a branch of {t:,}",)
    if not can_open:
        why = "no recipe waits" if not look.waiting else f"a branch of {t:,} tokens is more than is left"
        return Move.EXTEND, (why,)
    last = "every branch is at its last position"
    stuck = last if look.step is None else f"a step of {_branches(n)} costs more than is left"
    if gains.open is None:
        if can_extend:
            return Move.EXTEND, ("nothing shows yet what one more branch would average away",)
        return Move.OPEN, (stuck,)
    if not can_extend:
        if gains.open > 0:
            return Move.OPEN, (stuck,)
        return Move.END, ("no step is left, and branches average nothing away",)
    if gains.extend is None or gains.sure is None:
        return Move.EXTEND, ("one look shows no slope yet",)
    words = f"{t:,} tokens take {gains.extend:.2g} nats off as length and {gains.open:.2g} as a branch"
    if gains.sure > policy.sure:
        return Move.OPEN, (f"{words}: a branch gains more in {gains.sure:.0%} of draws",)
    return Move.EXTEND, (f"{words}: a branch gains more in only {gains.sure:.0%} of draws",)


def _spends(
    look: Look, trend: Trend | None, spread: Array | None, reasons: tuple[str, ...], *, n: int, horizon: int
) -> tuple[Move, tuple[str, ...]]:
    """Extend, unless that ends with tokens that buy no branch, and one branch more, all of less length, is promised more."""
    t, b = look.tables[-1].tokens, look.spread if spread is None else float(spread[0])
    rest = look.left - n * (horizon - t)
    later = min(look.waiting, max(rest, 0) // horizon)  # branches that can still be opened at the end
    idle, needed = rest - later * horizon, (later + 1) * t
    if idle <= 0 or later >= look.waiting or needed > look.left or trend is None or b is None:
        return Move.EXTEND, reasons
    ends, more = n + later, n + later + 1
    length = min(t + (look.left - needed) / more, horizon)
    change = float((trend.gain(horizon) - trend.gain(length))[0]) + b * (1 / more - 1 / ends)
    words = f"{_branches(ends)} to the end leave{'s' * (ends == 1)} {idle:,} tokens; {more} of {length:,.0f} instead"
    if change < 0:
        return Move.OPEN, (f"{words} take {-change:.2g} nats off",)
    return Move.EXTEND, (*reasons, f"{words} would cost {change:.2g} nats")


def _fewer(
    look: Look, policy: Policy, trend: Trend | None, spread: Array | None, reasons: tuple[str, ...], *, n: int
) -> tuple[int, tuple[str, ...]]:
    """How many branches go on with what is left; 0: it ends here, since that is not promised to be better."""
    fewer = 0 if look.step is None else min(look.left // look.step, n - 1)
    if not fewer or look.step is None or policy.shorten is None or trend is None or spread is None:
        return 0, reasons
    better = float(np.mean(trend.gain(trend.now + look.step) > spread * (1 / fewer - 1 / n)))
    words = f"{look.left:,} tokens extend {fewer} of {n} branches, which is better in {better:.0%} of draws"
    return (fewer, (words,)) if better > policy.shorten else (0, (*reasons, words))


def _gains(look: Look, trends: Sequence[Trend | None], spreads: Sequence[Array | None], *, horizon: int) -> Gains:
    """At the price of one more branch, dC = t, so r = 1. Branches are drawn by weights, as documents are."""
    (trend, plain), (spread, b), n = trends, spreads, len(look.live)
    if spread is None or b is None:
        return Gains()
    share = 1 / n - 1 / (n + 1)
    if trend is None or plain is None:
        return Gains(open=float(b[0]) * share, spread=float(b[0]))
    t = trend.now
    length, shorter = (min(t + look.left / m, horizon) for m in (n - 1, n))
    return Gains(
        extend=float(plain.gain(t * (1 + 1 / n))[0]),
        open=float(b[0]) * share,
        sure=float(np.mean(spread * share > trend.gain(t * (1 + 1 / n)))),
        beta=-float((plain.alpha * plain.p)[0]),
        spread=float(b[0]),
        fewer=float(np.mean(trend.gain(length) - trend.gain(shorter) > spread * (1 / (n - 1) - 1 / n))),
    )


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


def _trend(tables: Sequence[Table], drawn: Array, among: Array, *, lean: float) -> Trend | None:
    """alpha and p in every draw, of the mean anchor less b (1 - 1/N); None where one look shows no slope."""
    if len(tables) < 2 or not all(np.isfinite(table.loss) for table in tables):
        return None
    n, share = among.shape[1], among / among.sum(axis=1, keepdims=True)

    def soup(t: Table) -> Array:
        mean = np.einsum("dn,nd->d", share, _losses(t.anchors, t.targets, drawn))
        return mean - _spread(t, drawn, among) * (1 - 1 / n) if n > 1 else mean

    curve = np.array([soup(t) for t in tables])
    curve = curve - curve.mean(axis=0)
    tried = np.array(P_TRIED if len(tables) > 2 else [ASSUMED_P])
    x = np.array([t.tokens / tables[-1].tokens for t in tables])[:, None] ** -tried
    x = x - x.mean(axis=0)
    alpha = np.maximum((x.T @ curve) / np.sum(x**2, axis=0)[:, None], 0.0)  # powers x draws: a longer run loses nothing
    error = np.sum((curve[:, None] - x[:, :, None] * alpha) ** 2, axis=0)
    best = error.argmin(axis=0)
    return Trend(now=tables[-1].tokens, alpha=alpha[best, np.arange(len(best))], p=tried[best], lean=lean)


def _soup(table: Table, drawn: Array, members: Collection[int]) -> Array:
    """The loss of the equal soup of some branches, from their anchors and pairs (prediction.predicted_loss).

    Infinite where one of these is not finite: so the soup without that branch is better.
    """
    pairs = list(itertools.combinations(sorted(members), 2))
    if not all(
        np.isfinite(row).all() for row in (table.anchors[list(members)], *(table.pairs[pair] for pair in pairs))
    ):
        return np.full(len(drawn), np.inf)
    anchors = _losses(table.anchors, table.targets, drawn)
    n = len(members)
    total = sum(anchors[i] for i in members) / n
    for i, j in pairs:
        gap = (anchors[i] + anchors[j]) / 2 - _losses(table.pairs[i, j], table.targets, drawn)
        total = total - 4 / n**2 * gap
    return np.asarray(total, np.float64)


def _branches(n: int) -> str:
    return f"{n} branch{'es' * (n != 1)}"


def _suspected(table: Table, members: Sequence[int], drawn: Array, *, share: float) -> dict[int, float]:
    """Members but the baseline without which the soup is better in more than this share of draws; the surest first."""
    if len(members) < 2:
        return {}
    whole = _soup(table, drawn, members)
    better = {i: float(np.mean(_soup(table, drawn, [j for j in members if j != i]) < whole)) for i in members if i}
    return {i: better[i] for i in sorted(better, key=lambda i: -better[i]) if better[i] > share}
