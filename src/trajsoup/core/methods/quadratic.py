"""Quadratic weights: those of least loss in the local quadratic model, where documents it has not seen agree.

    uniform soups -> K -> anchors and their midpoints (or checkpoints and their products) -> LocalModel -> weights
    first half of the documents: K, model, strength of the pull       second half: better than the uniform soup, or dropped

The strength of the pull towards the uniform soup is the one that does best crosswise: weights fitted on a quarter of the
documents, scored on the other quarter. Weights are never negative. A gain counts where it is larger than its standard error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.gram import WHOLE, Gram
from trajsoup.core.methods.asking import Answers, Asking, Measure, Option, Promise, Request, Score, best_of
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.quadratic import LocalModel, from_pairs, from_products
from trajsoup.core.scores import FEWEST, DocumentLosses
from trajsoup.core.selection import TOP_K
from trajsoup.errors import SelectionError

Mask = NDArray[np.bool_]
Fit = Callable[[Answers, Mask], LocalModel]  # the model as these documents show it
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  # tau, in units of the model's scale; the last hardly moves


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """What is weighed: each point a row of its own, and the rows that tell how they lie."""

    rows: tuple[Option, ...]
    uniform: NDArray[np.float64]  # the weights of the uniform soup
    asked: tuple[Option, ...]  # to be scored besides the points
    fit: Fit


Seeking = Generator[Request, Any, Points]


@method(
    name="quadratic",
    label="Quadratic weights",
    reference="sec:local-model",
    scope=Scope.SEVERAL,
    select=TOP_K,
    takes_k=True,
    default=False,
)
def quadratic(
    freedom: Freedom,
    *,
    over: Annotated[
        Literal["anchors", "checkpoints"], "What is weighed: the branches' anchors, or every checkpoint of its own."
    ] = "anchors",
    few: Annotated[
        Literal["refuse", "uniform"], "With too few documents: end there, or take the uniform soup."
    ] = "refuse",
) -> Asking:
    """Weights of least loss in the local quadratic model, kept where unseen documents find them better than equal ones."""
    found: list[tuple[Option, Promise | None]] = []
    compared: list[Option] = []
    for stop in _largest(freedom.stops):
        chosen, promise, asked = yield from _at(freedom, stop, over, few)
        found.append((chosen, promise))
        compared += asked
    decision = yield from best_of([option for option, _ in found], rank_by=freedom.rank_by, free=freedom.free)
    promise = next(promise for option, promise in found if option.name == decision.option.name)
    return replace(
        decision,
        free=(*freedom.free, "weights"),
        among=len({option.name for option in compared}),
        compared=tuple(compared),
        promise=promise,
        notes=(f"quadratic weights: {promise or 'too few documents, so the uniform soup stands'}",),
    )


def _largest(stops: Sequence[Stop]) -> Iterator[Stop]:
    """Without those whose branches are part of another's at the same horizon: a weight may be zero."""
    for stop in stops:
        others = (o for o in stops if o.horizon == stop.horizon)
        if not any(set(stop.branches) < set(o.branches) for o in others):
            yield stop


def _at(
    freedom: Freedom, stop: Stop, over: str, few: str
) -> Generator[Request, Any, tuple[Option, Promise | None, tuple[Option, ...]]]:
    """The weights at one stop, or the uniform soup; what they promised; and all that was scored."""
    soups = replace(freedom, stops=(stop,)).options(TOP_K)
    scores = yield Score(options=soups)
    losses = {option.name: _documents(scores, option) for option in soups}
    plain = min(soups, key=lambda option: losses[option.name].loss())  # as trajectory-soup chooses
    everything = losses[plain.name]
    if everything.effective_documents < FEWEST and few == "uniform":
        return plain, None, soups
    if everything.effective_documents < FEWEST:
        raise SelectionError(
            f"quadratic fits weights to documents, and these validation documents say as much as "
            f"{everything.effective_documents:.0f} of one size, of {FEWEST} at least: hand over more documents, or use "
            "trajectory-soup"
        )
    place = np.arange(len(everything.nll))
    seen, unseen = place % 2 == 0, place % 2 == 1
    quarters = place % 4 == 0, place % 4 == 2
    uniform = min(soups, key=lambda option: _loss(losses[option.name], seen))
    points = yield from (_anchors if over == "anchors" else _checkpoints)(freedom, stop, uniform, soups)
    scores = dict(scores) | (yield Score(options=(*points.rows, *points.asked)))
    models = [points.fit(scores, half) for half in quarters]
    trials = {
        (strength, side): _weighed(
            freedom, stop, uniform, points, models[side].best(around=points.uniform, tau=strength)
        )
        for strength in STRENGTHS
        for side in (0, 1)
    }
    tried = yield Score(options=tuple({option.name: option for option in trials.values()}.values()))

    def crosswise(strength: float) -> float:
        return math.fsum(_loss(_documents(tried, trials[strength, side]), quarters[1 - side]) for side in (0, 1))

    strength = min(reversed(STRENGTHS), key=crosswise)  # ties: the stronger pull
    model = points.fit(scores, seen)
    weights = model.best(around=points.uniform, tau=strength)
    option = _weighed(freedom, stop, uniform, points, weights)
    scores |= yield Score(options=(option,))
    gain, error, documents = _gain(losses[uniform.name].only(unseen), _documents(scores, option).only(unseen))
    promise = Promise(
        promised=model.loss(points.uniform) - model.loss(weights),
        measured=gain,
        error=error,
        documents=documents,
        strength=strength,
        kept=gain > error,
    )
    asked = (*soups, *points.rows, *points.asked, *trials.values(), option)
    return option if promise.kept else plain, promise, asked


def _anchors(freedom: Freedom, stop: Stop, uniform: Option, soups: Sequence[Option]) -> Seeking:
    """The anchors of the branches at the K of the uniform soup; their midpoints tell their distances."""
    anchors = _alone(freedom, uniform)
    n = len(anchors)
    if n < 2:
        raise SelectionError("quadratic weighs branches against each other, and there is one: use over=checkpoints")
    pairs = {
        (i, j): freedom.option(_mixed((0.5, anchors[i]), (0.5, anchors[j])), stop=stop, k=uniform.k)
        for i, j in itertools.combinations(range(n), 2)
    }

    def fit(scores: Answers, on: Mask) -> LocalModel:
        midpoints = {pair: _loss(_documents(scores, option), on) for pair, option in pairs.items()}
        return from_pairs([_loss(_documents(scores, anchor), on) for anchor in anchors], midpoints)

    yield from ()
    return Points(rows=anchors, uniform=np.full(n, 1 / n), asked=tuple(pairs.values()), fit=fit)


def _checkpoints(freedom: Freedom, stop: Stop, uniform: Option, soups: Sequence[Option]) -> Seeking:
    """Every checkpoint of the widest soup; anchors, pairs and soups that were scored tell the curvature of each layer."""
    widest = max(soups, key=lambda option: len(option.weights))
    singles = tuple(freedom.option({key: 1.0}, stop=stop) for key in widest.weights)
    keys = list(widest.weights)
    scored = list(soups)
    for soup in {option.name: option for option in (uniform, widest)}.values():
        anchors = _alone(freedom, soup)
        mixed = (_mixed((0.5, a), (0.5, b)) for a, b in itertools.combinations(anchors, 2))
        scored += [*anchors, *(freedom.option(weights, stop=stop, k=soup.k) for weights in mixed)]
    scored = [option for option in scored if len(option.weights) > 1]
    gram: Gram = yield Measure(keys=tuple(keys), centre=keys[0], parts="layer")
    parts = [products.inner for name, products in gram.groups.items() if name != WHOLE] or [gram.whole.inner]
    rows = np.array([_vector(option.weights, keys) for option in scored])

    def fit(scores: Answers, on: Mask) -> LocalModel:
        losses = [_loss(_documents(scores, option), on) for option in singles]
        return from_products(
            losses, parts, rows=rows, merged=[_loss(_documents(scores, option), on) for option in scored]
        )

    return Points(rows=singles, uniform=_vector(uniform.weights, keys), asked=tuple(scored), fit=fit)


def _alone(freedom: Freedom, soup: Option) -> tuple[Option, ...]:
    """The anchor of every branch of a soup."""
    stops = tuple(Stop(branches=(name,), horizon=soup.horizon) for name in soup.branches)
    return replace(freedom, stops=stops, ks=() if soup.k is None else (soup.k,)).options(TOP_K)


def _weighed(freedom: Freedom, stop: Stop, uniform: Option, points: Points, weights: NDArray[np.float64]) -> Option:
    parts = zip(weights.tolist(), points.rows, strict=True)
    return freedom.option(_mixed(*((w, row) for w, row in parts if w)), stop=stop, k=uniform.k)


def _mixed(*parts: tuple[float, Option]) -> dict[str, float]:
    """The weights of a weighted mean of rows."""
    found: dict[str, float] = {}
    for share, option in parts:
        for key, weight in option.weights.items():
            found[key] = found.get(key, 0.0) + share * weight
    return found


def _vector(weights: Mapping[str, float], keys: Sequence[str]) -> NDArray[np.float64]:
    return np.array([weights.get(key, 0.0) for key in keys])


def _documents(scores: Answers, option: Option) -> DocumentLosses:
    losses = scores[option.name].losses
    if losses is None:
        raise SelectionError("quadratic fits losses, and these scores have none: score documents, or use greedy-soup")
    return losses


def _loss(losses: DocumentLosses, on: Mask) -> float:
    return losses.only(on).loss()


def _gain(uniform: DocumentLosses, mine: DocumentLosses) -> tuple[float, float, float]:
    """How much lower the second is, the standard error of that over documents, and their effective number."""
    size = uniform.measure()
    lower = uniform.nll - mine.nll
    gain = float(lower.sum() / size.sum())
    n = len(size)
    error = math.sqrt(n / (n - 1) * float(np.sum((lower - gain * size) ** 2))) / float(size.sum())
    return gain, error, uniform.effective_documents
