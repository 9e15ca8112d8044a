"""What merging two branches gained in a study, and its relation to their directions (app:pair-geometry, fig:direction-gain).

anchors and their pair at every horizon (scored to choose, so known) -> gain of each pair -> relation to the cosine
interpolation sweep -> best lambda, barrier and gains of each path (app:interpolation-protocol)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from trajsoup.core.interpolation import interpolation
from trajsoup.core.pair_gain import PairGain, Relation, pair_gain, relate
from trajsoup.core.pool import RankBy
from trajsoup.core.soup import Row, soup_row
from trajsoup.errors import GeometryError
from trajsoup.study.comparisons import Field, middle_k
from trajsoup.study.record_files import Records
from trajsoup.study.records import MeasuredPair, MeasuredPath, SweepRecord
from trajsoup.study.workbench import Workbench

Cosines = Mapping[str, Mapping[str, float]]


def measured_gains(
    bench: Workbench, field: Field, cosines: Cosines
) -> tuple[tuple[MeasuredPair, ...], Relation | None]:
    """The gain of every pair of branches with a direction, averaged over horizons, and how it goes with the cosine."""
    pairs = list(itertools.combinations([name for name in field.admitted if name in cosines], 2))
    k = middle_k(field, field.chosen(field.admitted))
    if not pairs or k is None:
        return (), None
    branches = list(dict.fromkeys(name for pair in pairs for name in pair))
    rows: dict[tuple[tuple[str, ...], int], Row] = {}
    for tokens in field.horizons:
        if all(len(pool.until(tokens).candidates) >= k for pool in field.chosen(branches)):
            for group in (*((name,) for name in branches), *pairs):
                name = f"gain/{'+'.join(group)}@{tokens}"
                rank_by = field.evaluation.rank_by
                rows[group, tokens] = soup_row(field.chosen(group), k=k, horizon=tokens, rank_by=rank_by, name=name)
    scores = bench.scorer.validate(list(rows.values()), what="gains")
    losses: dict[tuple[str, ...], dict[int, float]] = {}
    for (group, tokens), row in rows.items():
        found = scores[row.name].losses
        if found is not None and math.isfinite(loss := found.loss()):
            losses.setdefault(group, {})[tokens] = loss
    gains = _gains(pairs, losses, cosines)
    return tuple(
        MeasuredPair(
            first=g.first,
            second=g.second,
            cosine=g.cosine,
            gain=g.gain,
            gains={str(tokens): gain for tokens, gain in g.gains.items()},
        )
        for g in gains
    ), relate(gains)


def measured_paths(records: Records) -> tuple[tuple[MeasuredPath, ...], tuple[float, ...]]:
    """Every interpolation path of the study's sweep, and its grid of lambda; nothing where none was swept."""
    sweep: SweepRecord | None = records.read("sweeps/interpolation") if "interpolation" in records.sweeps() else None
    lines: dict[tuple[tuple[str, ...], int], dict[float, float]] = {}
    for p in () if sweep is None else sweep.points:
        if p.horizon is not None and isinstance(p.x, int | float) and p.validation_loss is not None:
            lines.setdefault((p.branches, p.horizon), {})[float(p.x)] = p.validation_loss
    paths: list[MeasuredPath] = []
    grids: set[tuple[float, ...]] = set()
    for ((first, second), tokens), line in sorted(lines.items()):
        grid = tuple(sorted(line))
        try:
            path = interpolation([line[x] for x in grid], first=first, second=second, tokens=tokens, grid=grid)
        except GeometryError:
            continue  # an end is missing: one of the models has no finite loss
        grids.add(grid)
        paths.append(
            MeasuredPath(
                first=first,
                second=second,
                tokens=tokens,
                best_lambda=path.best_lambda,
                gain_over_better_end=path.gain_over_better_end,
                gain_over_mean=path.gain_over_mean,
                barrier=path.barrier,
            )
        )
    return tuple(paths), max(grids, default=())


def _gains(
    pairs: list[tuple[str, str]], losses: Mapping[tuple[str, ...], Mapping[int, float]], cosines: Cosines
) -> list[PairGain]:
    found: list[PairGain] = []
    for a, b in pairs:
        cosine = cosines[a][b]
        known = [losses.get(group, {}) for group in ((a, b), (a,), (b,))]
        if math.isfinite(cosine) and set.intersection(*(set(part) for part in known)):
            merged, first, second = known
            found.append(pair_gain(merged, ends=(first, second), branches=(a, b), cosine=cosine, rank_by=RankBy.LOSS))
    return found
