"""What merging two branches gained in a study, and its relation to their directions (app:pair-geometry, fig:direction-gain).

anchors and their pair at every horizon (scored to choose, so known) -> gain of each pair -> relation to the cosine
interpolation sweep -> best lambda, barrier and gains of each path (app:interpolation-protocol)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trajsoup.core.interpolation import GRID, interpolation, interpolation_rows
from trajsoup.core.pair_gain import PairGain, Relation, pair_gain, relate
from trajsoup.core.pool import Pool
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row, soup_row
from trajsoup.errors import GeometryError
from trajsoup.study.choosing.field import Field
from trajsoup.study.records.estimate import BandPoint
from trajsoup.study.records.geometry import MeasuredPair, MeasuredPath
from trajsoup.study.sweeps.table import Sweep
from trajsoup.study.workbench import Workbench

Cosines = Mapping[str, Mapping[str, float]]
LINE_POINTS = 21  # of the drawn line and its band


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """What merging pairs gained, and how it goes with their cosines, by each signal that was scored."""

    pairs: tuple[MeasuredPair, ...] = ()
    k: int | None = None  # of the anchors
    loss: Relation | None = None
    accuracy: Relation | None = None


def gain_rows(field: Field, branches: Sequence[str], *, k: int) -> dict[tuple[tuple[str, ...], int], Row]:
    """The anchors and soups of pairs that gains are measured with: by branches and horizon."""
    rows: dict[tuple[tuple[str, ...], int], Row] = {}
    for tokens in field.horizons:
        if all(len(pool.until(tokens).candidates) >= k for pool in field.chosen(branches)):
            for group in (*((name,) for name in branches), *itertools.combinations(branches, 2)):
                name = f"gain/{'+'.join(group)}@{tokens}"
                rank_by = field.rank_by
                rows[group, tokens] = soup_row(field.chosen(group), k=k, horizon=tokens, rank_by=rank_by, name=name)
    return rows


def measured_gains(bench: Workbench, field: Field, cosines: Cosines) -> Gains:
    """The gain of every pair of branches with a direction, averaged over horizons, in loss and in Overall Average."""
    branches = [name for name in field.admitted if name in cosines]
    pairs = list(itertools.combinations(branches, 2))
    k = middle_k(field, field.chosen(field.admitted))
    if not pairs or k is None:
        return Gains()
    rows = gain_rows(field, branches, k=k)
    scores = bench.scorer.validate(list(rows.values()), what="gains")
    known: dict[Signal, dict[tuple[str, ...], dict[int, float]]] = {signal: {} for signal in Signal}
    for (group, tokens), row in rows.items():
        found = scores[row.name]
        values = {
            Signal.LOSS: None if found.losses is None else found.losses.loss(),
            Signal.ACCURACY: found.overall_average,
        }
        for signal, value in values.items():
            if value is not None and math.isfinite(value):
                known[signal].setdefault(group, {})[tokens] = value
    by_loss = _gains(pairs, known[Signal.LOSS], cosines, Signal.LOSS)
    by_accuracy = _gains(pairs, known[Signal.ACCURACY], cosines, Signal.ACCURACY)
    points = {(g.first, g.second): g for g in by_accuracy}
    return Gains(
        pairs=tuple(_measured(g, points.get((g.first, g.second))) for g in by_loss),
        k=k,
        loss=relate(by_loss),
        accuracy=relate(by_accuracy) if by_accuracy else None,
    )


def _measured(loss: PairGain, accuracy: PairGain | None) -> MeasuredPair:
    return MeasuredPair(
        first=loss.first,
        second=loss.second,
        cosine=loss.cosine,
        gain=loss.gain,
        gains={str(tokens): gain for tokens, gain in loss.gains.items()},
        accuracy_gain=None if accuracy is None else accuracy.gain,
        accuracy_gains={} if accuracy is None else {str(tokens): gain for tokens, gain in accuracy.gains.items()},
    )


def relation_line(relation: Relation | None, pairs: Sequence[MeasuredPair]) -> tuple[BandPoint, ...]:
    """The fitted line of gain over cosine with its band, from the lowest cosine to the highest; empty without a line."""
    if relation is None or relation.slope is None:
        return ()
    low, high = min(p.cosine for p in pairs), max(p.cosine for p in pairs)
    cosines = [low + (high - low) * i / (LINE_POINTS - 1) for i in range(LINE_POINTS)]
    return tuple(
        BandPoint(x=x, y=mean, low=least, high=most)
        for x, mean, least, most in zip(cosines, *relation.line(cosines).tolist(), strict=True)
    )


def interpolation_sweep(bench: Workbench) -> Sweep | None:
    """The study's interpolation, if it asks for one."""
    return next((sweep for sweep in bench.setup.sweeps if sweep.kind == "interpolation"), None)


def measured_paths(bench: Workbench, field: Field) -> tuple[tuple[MeasuredPath, ...], tuple[float, ...]]:
    """The path between two anchors at every matched horizon, scored in memory, where the study asks for interpolation."""
    sweep = interpolation_sweep(bench)
    names: tuple[str, ...] = () if sweep is None else sweep.branches or field.admitted[:2]
    pools = [field.chosen([name])[0] for name in names]
    k = middle_k(field, pools) if len(pools) == 2 else None
    if k is None:
        return (), ()
    rows: dict[tuple[int, float], Row] = {}
    for tokens in field.horizons:
        if all(len(pool.until(tokens).candidates) >= k for pool in pools):
            a, b = (soup_row([pool], k=k, horizon=tokens, rank_by=field.rank_by) for pool in pools)
            for x, row in zip(GRID, interpolation_rows(a, b), strict=True):
                rows[tokens, x] = replace(row, name=f"path/{'~'.join(names)}@{tokens}/{x:g}")
    scores = bench.scorer.validate(list(rows.values()), what="paths")
    paths: list[MeasuredPath] = []
    for tokens in sorted({tokens for tokens, _ in rows}):
        losses = [scores[rows[tokens, x].name].losses for x in GRID]
        found = [math.nan if loss is None else loss.loss() for loss in losses]
        try:
            path = interpolation(found, first=pools[0].branch, second=pools[1].branch, tokens=tokens)
        except GeometryError:
            continue  # one of the models has no finite loss
        paths.append(
            MeasuredPath(
                first=path.first,
                second=path.second,
                tokens=tokens,
                best_lambda=path.best_lambda,
                gain_over_better_end=path.gain_over_better_end,
                gain_over_mean=path.gain_over_mean,
                barrier=path.barrier,
                k=k,
                losses=path.scores,
            )
        )
    return tuple(paths), GRID if paths else ()


def middle_k(field: Field, pools: Sequence[Pool]) -> int | None:
    """The K in the middle of those that all these branches have at the full horizon; None where they have none."""
    have = min(len(pool.until(field.horizon).candidates) for pool in pools)
    usable = [k for k in field.ks if k <= have]
    return usable[len(usable) // 2] if usable else None


def _gains(
    pairs: list[tuple[str, str]],
    scores: Mapping[tuple[str, ...], Mapping[int, float]],
    cosines: Cosines,
    signal: Signal,
) -> list[PairGain]:
    found: list[PairGain] = []
    for a, b in pairs:
        cosine = cosines[a][b]
        known = [scores.get(group, {}) for group in ((a, b), (a,), (b,))]
        if math.isfinite(cosine) and set.intersection(*(set(part) for part in known)):
            merged, first, second = known
            found.append(pair_gain(merged, ends=(first, second), branches=(a, b), cosine=cosine, rank_by=signal))
    return found
