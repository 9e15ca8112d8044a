"""The connectivity stage: the loss on the way between models, straight and bent.

    anchors of every pair -> rows -> validation -> instability with its interval, in words (Frankle 2020)
    baseline at some depth -> two copies trained on -> the same
    two anchors -> a trained bend, written as a checkpoint -> rows along the curve -> validation (Garipov 2018)

A bend is a checkpoint, so a point of a curve is a row of W like any other.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from trajsoup.core.curves import CURVE_GRID, CURVES, curve_rows
from trajsoup.core.interpolation import GRID, STABLE, interpolation, interpolation_rows
from trajsoup.core.quantity import format_tokens
from trajsoup.core.scores import DocumentLosses, ValidationScores
from trajsoup.core.soup import Row, soup_row
from trajsoup.core.statistics import compare_losses
from trajsoup.errors import StudyError, TrainError
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.study.choosing.field import Field
from trajsoup.study.file.connectivity import ConnectivityPlan
from trajsoup.study.file.study import Limited, Study
from trajsoup.study.records.connectivity import ConnectivityRecord, JoinedPair
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.score.scorer import FORK_POINT, single
from trajsoup.study.stages.estimates import FEWEST, finite
from trajsoup.study.stages.pair_gains import middle_k
from trajsoup.study.train.branches import train_study
from trajsoup.study.workbench import Workbench

DEPTHS, BENDS = "depths", "bends"  # below the study
COPIES = ("copy-1", "copy-2")
STRAIGHT = "straight"
RESTART = "a copy starts with a fresh optimizer and its recipe's schedule over its own tokens"


def connectivity_stage(bench: Workbench) -> bool:
    """Measure the paths that the study asks for."""
    plan = bench.setup.connectivity
    assert plan is not None
    inputs = bench.records.digests(TrainRecord, ScreenRecord)
    inputs["settings"] = digest_of(dataclasses.asdict(plan))
    return bench.records.ensure(ConnectivityRecord, inputs, lambda: _measure(bench, plan, inputs))


def _measure(bench: Workbench, plan: ConnectivityPlan, inputs: dict[str, str]) -> ConnectivityRecord:
    field = bench.field()
    k = middle_k(field, field.chosen(field.admitted))
    if k is None or len(field.admitted) < 2:
        return ConnectivityRecord(inputs=inputs, pairs=(), notes=("fewer than two branches have an anchor",))
    anchors = {
        pool.branch: soup_row([pool], k=k, horizon=field.horizon, rank_by=field.rank_by, name=pool.branch)
        for pool in field.chosen(field.admitted)
    }
    ways = [
        _Way(rows=interpolation_rows(anchors[a], anchors[b]), ends=(a, b), tokens=field.horizon, k=k)
        for a, b in itertools.combinations(field.admitted, 2)
    ]
    pairs = _joined(bench, ways, {})
    depths, copies = _copies(bench, plan, field)
    curves, bends = _curves(bench, plan, anchors, field.horizon, k)
    return _recorded(inputs, pairs, _joined(bench, depths, copies), _joined(bench, curves, bends))


def _recorded(
    inputs: dict[str, str], pairs: Sequence[JoinedPair], depths: Sequence[JoinedPair], curves: Sequence[JoinedPair]
) -> ConnectivityRecord:
    words: list[str] = []
    if pairs:
        stable = sum(p.stable for p in pairs)
        worst = max(pairs, key=lambda p: p.instability)
        words.append(
            f"{stable} of {len(pairs)} pairs of anchors are linearly connected; the least stable: {worst.words}"
        )
    if depths:
        first = next((p for p in sorted(depths, key=lambda p: p.depth or 0) if p.stable), None)
        since = "at none of the depths" if first is None else f"from {format_tokens(first.depth or 0)} tokens on"
        words.append(f"Two copies of the baseline that differ in their data order alone stay connected {since}.")
    return ConnectivityRecord(
        inputs=inputs,
        pairs=tuple(pairs),
        depths=tuple(depths),
        curves=tuple(dataclasses.replace(c, words=_curve_words(c, pairs)) for c in curves),
        words=tuple(words),
        notes=(RESTART,) if depths else (),
    )


def _curve_words(curve: JoinedPair, pairs: Sequence[JoinedPair]) -> str:
    """The curve beside the straight segment of the same ends."""
    straight = next((p for p in pairs if (p.first, p.second) == (curve.first, curve.second)), None)
    beside = "no number" if straight is None else f"{max(straight.losses):.4f} and {straight.best_loss:.4f}"
    return (
        f"{curve.path.title()} curve from {curve.first} to {curve.second}, bend trained on "
        f"{format_tokens(curve.gradient_tokens)} tokens: highest loss {max(curve.losses):.4f}, lowest {curve.best_loss:.4f} "
        f"at {curve.best:.0%}; on the straight segment {beside}."
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Rows along one path, not yet scored."""

    rows: tuple[Row, ...]
    ends: tuple[str, str]
    tokens: int
    k: int
    path: str = STRAIGHT
    depth: int | None = None
    gradient_tokens: int = 0


def _joined(bench: Workbench, ways: Sequence[_Way], more: Mapping[str, Checkpoint]) -> tuple[JoinedPair, ...]:
    """Score all rows of all ways from one read. A way with a loss that is no number is left out."""
    if not ways:
        return ()
    scorer = dataclasses.replace(bench.scorer, checkpoints={**bench.checkpoints, **more}, executor=None)
    named = [
        dataclasses.replace(row, name=f"{way.path}/{'~'.join(way.ends)}/{way.depth}/{i}")
        for way in ways
        for i, row in enumerate(way.rows)
    ]
    scores = scorer.validate(named, what="connectivity", tasks=False)
    found: list[JoinedPair] = []
    for way in ways:
        mine = [scores[row.name] for row in named[: len(way.rows)]]
        del named[: len(way.rows)]
        if (joined := _pair(way, mine, bench.setup.evaluation.resamples)) is not None:
            found.append(joined)
    return tuple(found)


def _pair(way: _Way, scores: Sequence[ValidationScores], resamples: int) -> JoinedPair | None:
    losses = [s.losses for s in scores if s.losses is not None]
    values = [loss.loss() for loss in losses]
    if not values or not all(map(math.isfinite, values)):
        return None
    grid = GRID if way.path == STRAIGHT else CURVE_GRID
    path = interpolation(values, first=way.ends[0], second=way.ends[1], tokens=way.tokens, grid=grid)
    mean = dataclasses.replace(losses[0], nll=(losses[0].nll + losses[-1].nll) / 2)
    low, high = _interval(losses[path.worst], mean, resamples)
    between = "" if low is None or high is None else f" [{low:+.4f}, {high:+.4f}]"
    ends = (values[0] + values[-1]) / 2
    depth = "" if way.depth is None else f" forked at {format_tokens(way.depth)} tokens"
    where = "at an end, no barrier" if grid[path.worst] in (0, 1) else f"at {grid[path.worst]:.0%} of the way"
    words = (
        f"{path.first} and {path.second}{depth}: instability {path.instability:+.4f}{between} nats {where} "
        f"({path.instability / ends:+.2%} of the ends' mean), {'stable' if path.stable else 'not stable'} by the "
        f"{STABLE:.0%} rule."
    )
    return JoinedPair(
        first=path.first,
        second=path.second,
        path=way.path,
        depth=way.depth,
        tokens=way.tokens,
        k=way.k,
        grid=path.grid,
        losses=path.scores,
        instability=path.instability,
        low=low,
        high=high,
        worst=grid[path.worst],
        best=path.best_lambda,
        best_loss=path.best_score,
        stable=path.stable,
        gradient_tokens=way.gradient_tokens,
        words=words,
    )


def _interval(worst: DocumentLosses, ends: DocumentLosses, resamples: int) -> tuple[float | None, float | None]:
    if worst.effective_documents < FEWEST:
        return None, None
    found = compare_losses(worst, ends, resamples=resamples)
    return finite(found.low), finite(found.high)


def _copies(bench: Workbench, plan: ConnectivityPlan, field: Field) -> tuple[list[_Way], dict[str, Checkpoint]]:
    """From each depth of the baseline, two copies with data orders of their own; what is trained already stays."""
    study, ways, opened = bench.setup, list[_Way](), dict[str, Checkpoint]()
    if not plan.depths:
        return ways, opened
    assert isinstance(study, Study)  # others are refused where the file is read
    (pool,) = field.chosen([field.baseline])
    saved = {c.tokens: c.key for c in pool.candidates} | ({0: FORK_POINT} if FORK_POINT in bench.checkpoints else {})
    recipe = study.recipes[field.baseline]
    for depth in plan.depths:
        if depth not in saved:
            raise StudyError(
                f"connectivity.depths has {depth:,}, where the baseline {field.baseline} saved nothing: use one of "
                f"{', '.join(f'{tokens:,}' for tokens in sorted(saved))}"
            )
        tokens = plan.depth_tokens or field.horizon - depth
        deeper = dataclasses.replace(
            study,
            fork_point=bench.place(saved[depth]),
            pretrain=None,
            recipes={name: dataclasses.replace(recipe, seed=recipe.seed + 1 + i) for i, name in enumerate(COPIES)},
            baseline=recipe,
            horizon=tokens,
            checkpoint_every=tokens,
            output=study.output / DEPTHS / f"{depth}-{tokens}",
            limited=Limited.PREFIX,
            connectivity=None,
            neighbours=None,
            retention=None,
            report_to=(),
            evaluation=dataclasses.replace(study.evaluation, baseline=None, force=()),
        )
        trained = train_study(
            deeper,
            jobs=bench.jobs,
            cache=bench.cache,
            corpus=bench.corpus,
            on_progress=bench.on_train,
            executor=bench.executor,
        )
        if trained.failed:
            raise TrainError(f"a copy that forks at {depth:,} tokens did not finish: {trained.failed[0].message}")
        keys: list[str] = []
        for name in COPIES:
            (last,) = (deeper.output / "branches" / name).glob("checkpoint-*")
            keys.append(f"{DEPTHS}/{deeper.output.name}/{name}")
            opened[keys[-1]] = open_checkpoint(last)
        rows = interpolation_rows(single(keys[0]), single(keys[1]))
        ways.append(
            _Way(rows=rows, ends=(COPIES[0], COPIES[1]), tokens=trained.plan.positions.horizon, k=1, depth=depth)
        )
    return ways, opened


def _curves(
    bench: Workbench, plan: ConnectivityPlan, anchors: Mapping[str, Row], tokens: int, k: int
) -> tuple[list[_Way], dict[str, Checkpoint]]:
    ways, opened = list[_Way](), dict[str, Checkpoint]()
    for ends in list(itertools.combinations(anchors, 2))[: plan.curves]:
        from trajsoup.lm.curves import Bending, train_bend

        first, second = (anchors[name] for name in ends)
        for kind in CURVES:
            window = bench.scorer.settings.validation.window
            settings = Bending(kind=kind, tokens=plan.curve_tokens, peak_lr=plan.curve_lr, window=window)
            shape = [dataclasses.asdict(settings), dict(first.weights), dict(second.weights)]
            key = f"{BENDS}/{digest_of(shape)[:16]}"
            learned = train_bend(
                (first, second),
                bench.checkpoints,
                bench.corpus.train,
                bench.setup.output / key,
                source=bench.model_source,
                settings=settings,
                progress=lambda done, kind=kind: bench.progress(f"{kind} curve, tokens", done, plan.curve_tokens),
            )
            opened[key] = open_checkpoint(bench.setup.output / key)
            rows = curve_rows(first, single(key), second, kind=kind)
            ways.append(_Way(rows=rows, ends=ends, tokens=tokens, k=k, path=kind, gradient_tokens=learned))
    return ways, opened
