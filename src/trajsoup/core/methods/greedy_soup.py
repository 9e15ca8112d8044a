"""Greedy soup (Wortsman 2022): checkpoints from best to worst, each kept if the mean gets strictly better."""

from __future__ import annotations

from trajsoup.core.choosing import choose
from trajsoup.core.methods.asking import Asking, Decision, Option, Score
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.window import newest


@method(
    name="greedy-soup",
    label="Greedy Soup",
    reference="wortsman2022",
    scope=Scope.EITHER,
    takes_window=True,
    default=False,
)
def greedy_soup(freedom: Freedom) -> Asking:
    """Checkpoints from best to worst, as long as the mean of those taken gets strictly better."""
    found: list[Decision] = []
    for stop in freedom.stops:
        found.append((yield from _greedy(freedom, stop)))
    best = min(found, key=lambda decision: freedom.rank_by.cost(decision.score))
    compared = tuple(option for decision in found for option in decision.compared)
    return Decision(
        option=best.option,
        free=tuple(dict.fromkeys((*freedom.free, "checkpoints"))),
        among=len(compared),
        score=best.score,
        compared=compared,
    )


def _greedy(freedom: Freedom, stop: Stop) -> Asking:
    """At one stop: score every checkpoint, order them, then one row after the other."""
    singles = {
        c.key: freedom.option({c.key: 1.0}, stop=stop)
        for pool in freedom.at(stop)
        for c in sorted(newest(pool, freedom.window), key=lambda c: (c.tokens, c.branch))
    }
    scores = yield Score(options=tuple(singles.values()))
    costs = {
        key: freedom.rank_by.cost(choose({"it": scores[option.name]}, rank_by=freedom.rank_by).score)
        for key, option in singles.items()
    }
    order = sorted(costs, key=costs.__getitem__)  # stable: ties stay in order of tokens, then of branches
    taken, best = [order[0]], singles[order[0]]
    winner = choose({best.name: scores[best.name]}, rank_by=freedom.rank_by)
    compared: list[Option] = list(singles.values())
    for key in order[1:]:
        option = freedom.option(dict.fromkeys([*taken, key], 1 / (len(taken) + 1)), stop=stop)
        compared.append(option)
        scores = yield Score(options=(option,))
        tried = choose({option.name: scores[option.name]}, rank_by=freedom.rank_by)
        if freedom.rank_by.cost(tried.score) < freedom.rank_by.cost(winner.score):
            taken, best, winner = [*taken, key], option, tried
    return Decision(option=best, score=winner.score, among=len(compared), compared=tuple(compared))
