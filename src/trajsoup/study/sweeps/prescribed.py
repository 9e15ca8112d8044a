"""The paper's own protocol as rows: branches and K are prescribed, nothing is chosen (app:protocol).

    EXP1..EXPN with K = 4 -> Trajectory Soup, Model Soup, Full Soup        each branch alone with K = 4 N

Ranked by loss and, where items are scored, by accuracy. N is three, as in the paper's tables, and all that are admitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trajsoup.core.budget import Setting
from trajsoup.core.methods.freedom import Stop
from trajsoup.core.methods.table import METHODS, Method
from trajsoup.study.choosing.entries import Axis, Chosen, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SINGLE, SOUP, K, clipped, fixed_k, point
from trajsoup.study.sweeps.table import Pairs, Sweep, sweep

N = 3  # branches in the paper's tables
UNRANKED = (METHODS["model-soup"], METHODS["full-soup"])


def _pairs(chosen: Sequence[Chosen]) -> Pairs:
    """Each Trajectory Soup against each single merge of its N and ranking, and the other soups of its setting."""
    soups = [c for c in chosen if c.entry.strategy == SOUP.strategy]
    return [
        (soup, other)
        for soup in soups
        for other in chosen
        if other.entry.strategy != SOUP.strategy
        and other.entry.setting in (None, soup.entry.setting)
        and other.entry.beside == soup.entry.beside
        and other.entry.rank_by in (None, soup.entry.rank_by)
    ]


@sweep(
    name="prescribed",
    title="The paper's protocol: branches and K prescribed",
    paper="app:protocol",
    axis="model",
    matched="budget when limited, horizon when extended",
    pairs=_pairs,
    own_section=True,
)
def prescribed(field: Field, asked: Sweep) -> Sequence[Entry]:
    """EXP1 to EXPN with K = 4 against each single merge with K = 4 N, and Model Soup and Full Soup of the same branches."""
    entries: list[Entry] = []
    for n in sorted({min(N, len(field.admitted)), len(field.admitted)} - {0, 1}):
        for setting in Setting:
            at = field.branch_horizon(field.horizon, n_branches=n, setting=setting)
            team = () if at is None else field.admitted_at(at)[:n]
            if len(team) == n:
                stop = Stop(branches=team, horizon=at)
                for method in (*UNRANKED, SOUP):
                    key = f"{method.name}/{setting.value}/{'+'.join(team)}"
                    label = f"{method.label} ({setting.value.title()})"
                    made = _rows(field, asked, method, stop, n=n, k=K, key=key, label=label)
                    entries += [replace(entry, setting=setting) for entry in made]
        for branch in field.admitted[:n]:
            stop = Stop(branches=(branch,), horizon=field.horizon)
            label = f"Single EXP Merge ({branch})"
            entries += _rows(field, asked, SINGLE, stop, n=n, k=K * n, key=f"single/{branch}/N={n}", label=label)
    return entries


def _rows(
    field: Field, asked: Sweep, method: Method, stop: Stop, *, n: int, k: int, key: str, label: str
) -> list[Entry]:
    """One row, or one for each ranking where the method ranks."""
    found: list[Entry] = []
    for signal in field.signals if method.takes_k else (None,):
        ranked = "" if signal is None else f", ranked by {signal.value}"
        within, merged = fixed_k(replace(field, rank_by=signal or field.rank_by), stop, k=k)
        (option,) = within.freedom(method, [stop]).options(method.select or "")
        name = key + ("" if signal is None else f"/{signal.value}")
        x = label + (clipped(merged, k) if method.takes_k else "")
        made = point(asked, name, option, Axis(series=f"N = {n}{ranked}", x=x), method=method)
        found.append(replace(made, rank_by=signal, beside=(n,)))
    return found
