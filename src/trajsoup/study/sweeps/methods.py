"""Every method on the same checkpoints, tokens and splits: what others do, beside Trajectory Soup.

    one branch of T tokens, the best by validation        N branches of T/N (Limited), or of T (Extended): mean of anchors

The branches of the soups are prescribed: all that the screen admits where they stop. A method of one trajectory stands in
all three, for the paper's claim is that the second level adds something. A method that looks at the end of a branch may end
it earlier, by validation, as one that ranks checkpoints may leave late ones out. Rows of all are scored in the same reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trajsoup.core.budget import Setting
from trajsoup.core.methods.freedom import Stop
from trajsoup.core.methods.table import METHODS, Method, Scope
from trajsoup.core.pool import Unit
from trajsoup.core.selection import usable
from trajsoup.study.choosing.entries import Axis, Chosen, Entry, entry_of
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SOUP
from trajsoup.study.sweeps.table import Pairs, Sweep, sweep

ONE = "one branch of T"
LEVELS = {Setting.LIMITED: "N branches of T/N", Setting.EXTENDED: "N branches of T"}
VARIANTS: tuple[tuple[str, Mapping[str, str]], ...] = (  # the soup first: all others are compared with it
    ("trajectory-soup", {}),
    ("single-merge", {}),
    ("model-soup", {}),
    ("full-soup", {}),
    ("inverse-variance", {}),
    ("quadratic", {}),
    ("quadratic", {"over": "checkpoints"}),
    ("swa", {}),
    ("lawa", {}),
    ("ema", {}),
    ("pma", {"kind": "wma"}),
    ("wsm", {"decay": "cosine"}),
    ("wsm", {"decay": "1-sqrt"}),
    ("extra-merge", {}),
    ("greedy-soup", {}),
    ("learned-soup", {}),
    ("learned-soup", {"by": "layer"}),
    ("trainable-averaging", {}),
    ("trainable-averaging", {"on": "train"}),
    ("model-stock", {}),
)
AT_THE_END = ("model-soup", "swa", "lawa", "ema", "pma", "wsm", "extra-merge", "model-stock")
PARTS = 4  # equal parts of a branch, at each of which such a method may end it
MERGED = 4  # checkpoints in a merged point of Extra-Merge, where a branch has as many


def _pairs(chosen: Sequence[Chosen]) -> Pairs:
    """Every model against the Trajectory Soup of its setting; one branch of T against the Limited one, of T tokens too.

    And what the second level adds: the mean of a method's anchors over branches against the method on the best branch.
    """
    soups = {c.entry.setting: c for c in chosen if c.entry.strategy == SOUP.strategy}
    pairs = ((c, soups.get(c.entry.setting or Setting.LIMITED)) for c in chosen)
    alone = {c.entry.x: c for c in chosen if c.entry.setting is None}
    levels = ((c, alone.get(c.entry.x or "")) for c in chosen if c.entry.setting is not None)
    return [(c, other) for c, other in (*pairs, *levels) if other is not None and c is not other]


@sweep(
    name="methods",
    title="Against the neighbours",
    paper="sec:related",
    axis="method",
    matched="budget when limited, horizon when extended",
    pairs=_pairs,
    default=False,
    own_section=True,
)
def methods(field: Field, asked: Sweep) -> Sequence[Entry]:
    """Every method of the table over saved checkpoints, on one branch and over branches."""
    alone = [Stop(branches=(name,), horizon=field.horizon) for name in field.admitted]
    found: list[Entry] = []
    for setting, level in LEVELS.items():
        stop = _together(field, setting)
        if stop is not None:
            found += _entries(field, asked, [stop], setting, level)
    return [*found, *_entries(field, asked, alone, None, ONE)]


def _together(field: Field, setting: Setting) -> Stop | None:
    """As many of the admitted branches as pass the screen where so many stop."""
    for n in range(len(field.admitted), 1, -1):
        at = field.branch_horizon(field.horizon, n_branches=n, setting=setting)
        team = () if at is None else field.admitted_at(at)[:n]
        if len(team) == n:
            return Stop(branches=team, horizon=at)
    return None


def _entries(field: Field, asked: Sweep, stops: Sequence[Stop], setting: Setting | None, level: str) -> Iterator[Entry]:
    fits = (Scope.ONE, Scope.EITHER) if setting is None else (Scope.SEVERAL, Scope.EITHER)
    for name, given in VARIANTS:
        method = METHODS[name]
        if method.scope not in fits or (settings := _settings(field, method, stops, given)) is None:
            continue
        ends = _ends(field, method, stops)
        free = (*(() if setting else ("branch",)), *(() if ends == stops else ("horizon",)), "k")
        freedom = field.freedom(method, ends, free=free)
        if not freedom.stops:
            continue
        label = method.label + (f" ({', '.join(given.values())})" if given else "")
        key = "/".join([name, *given.values(), "one" if setting is None else setting.value])
        yield entry_of(
            method,
            freedom,
            key=key,
            label=label,
            sweep=asked.name,
            setting=setting,
            at=Axis(series=level, x=label),
            settings=method.settings(settings),
        )


def _ends(field: Field, method: Method, stops: Sequence[Stop]) -> Sequence[Stop]:
    """Where a method may stop: for one that looks at the end of a branch, earlier too."""
    if method.name not in AT_THE_END:
        return stops
    least = MERGED + 1 if method.name == "extra-merge" else 1
    found: list[Stop] = []
    for stop in stops:
        assert stop.horizon is not None
        for part in range(PARTS, 0, -1):  # the longest first: ties go to it
            at = stop.horizon if part == PARTS else field.last_by(stop.horizon * part // PARTS)
            if at is not None and (at == stop.horizon or _have(field, stop.branches, at) >= least):
                found.append(Stop(branches=stop.branches, horizon=at))
    return list(dict.fromkeys(found))


def _have(field: Field, branches: Sequence[str], horizon: int | None) -> int:
    return min(len(usable(pool).until(horizon).candidates) for pool in field.chosen(branches))


def _settings(field: Field, method: Method, stops: Sequence[Stop], given: Mapping[str, str]) -> dict[str, Any] | None:
    """The parameters; None where a method cannot be what it is: without tokens, a fork point, or enough checkpoints."""
    if method.name == "wsm" and field.pools[0].unit is not Unit.TOKENS:
        return None
    if method.name == "model-stock" and field.fork_point is None:
        return None
    if method.name == "quadratic":
        return {**given, "few": "uniform"}  # a comparison of all does not end for one of them
    if method.name == "extra-merge":
        have = min(_have(field, stop.branches, stop.horizon) for stop in stops)
        return None if have < 3 else {"merged": min(MERGED, have - 1)}
    return dict(given)
