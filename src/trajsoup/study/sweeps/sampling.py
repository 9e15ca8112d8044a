"""A dense single trajectory against a sparse soup (fig:traj-soup-sample-ablation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trajsoup.core.methods.freedom import Stop
from trajsoup.errors import SelectionError
from trajsoup.study.choosing.entries import Axis, Chosen, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SINGLE, SOUP, point, two_branches
from trajsoup.study.sweeps.table import Pairs, Sweep, sweep

SIZE = 12  # the paper's


def _pairs(chosen: Sequence[Chosen]) -> Pairs:
    """The sparse soup against both dense merges, at the last horizon."""
    last = [c for c in chosen if c.option.horizon == chosen[-1].option.horizon]
    return [(last[-1], c) for c in last[:-1]]


@sweep(
    name="sampling",
    title="Dense single trajectory, sparse soup",
    paper="fig:traj-soup-sample-ablation",
    axis="tokens each",
    settings=("branches", "merge_size"),
    pairs=_pairs,
    curve=True,
)
def sampling(field: Field, asked: Sweep) -> Sequence[Entry]:
    """All checkpoints of one branch against every second one of two, at every horizon; pool and merge size are the same."""
    pair = two_branches(field, asked, field.admitted[:2])
    if pair is None:
        return ()
    count = min(len(pool.until(field.horizon).candidates) for pool in pair)
    size = asked.merge_size or max(min(SIZE, count // 2) // 2 * 2, 2)
    if asked.merge_size is not None and (size % 2 or size > count // 2 * 2):
        raise SelectionError(f"sweep {asked.name!r}: merge_size {size} must be even and at most {count // 2 * 2}")
    sparse = replace(field, pools=tuple(pool.over(lambda found: found[1::2]) for pool in pair), ks=(size // 2,))
    dense = replace(field, pools=pair, ks=(size,))
    both = tuple(pool.branch for pool in pair)
    entries: list[Entry] = []
    for h in field.horizons:
        if any(len(pool.until(h).candidates) < size for pool in pair):
            continue
        for kind, within, names, method in (
            *(("dense", dense, (name,), SINGLE) for name in both),
            ("sparse", sparse, both, SOUP),
        ):
            at = Axis(series=f"{kind} {'+'.join(names)}", x=float(h))
            for option in within.freedom(method, [Stop(branches=names, horizon=h)]).options("top-k"):
                entries.append(point(asked, f"{kind}/{'+'.join(names)}@{h}", option, at, method=method))
    return entries
