"""The validation stage: score every checkpoint on validation documents and on the probe of training documents."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trajsoup.core.pool import Candidate
from trajsoup.core.splits import Split
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.records.validation import ScoredCheckpoint, ValidationRecord
from trajsoup.study.score.scorer import FORK_POINT, single, singles
from trajsoup.study.workbench import Workbench


def validation_stage(bench: Workbench) -> bool:
    """Score every checkpoint on validation documents and on the probe of training documents."""
    evaluation = bench.setup.evaluation
    inputs = {"train": bench.records.digest(TrainRecord), "evaluate": digest_of(evaluation.identity())}

    def make() -> ValidationRecord:
        pools = bench.bare_pools()
        runs = [run for pool in pools for run in pool.runs]
        rows = singles(runs)
        start = [single(FORK_POINT)] if FORK_POINT in bench.checkpoints else []
        scores = bench.scorer.validate([*rows, *start])
        probe = (
            bench.scorer.probe(rows, max_tokens=evaluation.probe_tokens, source=evaluation.probe_source)
            if bench.has_probe
            else {}
        )
        losses = {name: s.losses.loss() if s.losses is not None else None for name, s in scores.items()}
        on_probe = {name: s.losses for name, s in probe.items() if s.losses is not None}
        fork = scores.get(FORK_POINT)

        def scored(c: Candidate) -> ScoredCheckpoint:
            training = on_probe.get(c.key)
            return ScoredCheckpoint(
                key=c.key,
                branch=c.branch,
                tokens=c.tokens,
                loss=losses[c.key],
                accuracy=scores[c.key].overall_average,
                probe_loss=None if training is None else training.loss(),
                probe_pieces=() if training is None else training.pieces(),
                categories=scores[c.key].category_means,
            )

        checkpoints = tuple(scored(c) for pool in pools for c in pool.candidates)
        return ValidationRecord(
            inputs=inputs,
            split=Split.VALIDATION,
            documents=bench.scorer.corpus.validation.n_documents,
            fork_point_loss=losses.get(FORK_POINT),
            fork_point_accuracy=None if fork is None else fork.overall_average,
            checkpoints=checkpoints,
            apart=tuple(scored(c) for pool in pools for found in pool.apart.values() for c in found),
            saturation=saturation(checkpoints),
        )

    return bench.records.ensure(ValidationRecord, inputs, make)


def saturation(checkpoints: Sequence[ScoredCheckpoint]) -> dict[str, float]:
    """Branch -> share of its improvement in loss that its first half brought (fig:midtraining-saturation).

    A branch that does not improve, or has fewer than three checkpoints with a loss, is left out.
    """
    curves: dict[str, list[tuple[int, float]]] = {}
    for c in checkpoints:
        if c.loss is not None and math.isfinite(c.loss):
            curves.setdefault(c.branch, []).append((c.tokens, c.loss))
    found: dict[str, float] = {}
    for branch, curve in curves.items():
        (begin, first), *_, (end, last) = sorted(curve) if len(curve) > 2 else [(0, 0.0), (0, 0.0)]
        if last < first:
            middle = min(curve, key=lambda point: abs(point[0] - (begin + end) / 2))[1]
            found[branch] = (middle - first) / (last - first)
    return found
