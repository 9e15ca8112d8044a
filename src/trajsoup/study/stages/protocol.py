"""How models were chosen and scored: the "Completion fields" of app:protocol, as the records state them."""

from __future__ import annotations

from collections.abc import Mapping

from trajsoup.core.completion import ProtocolFields
from trajsoup.core.pool import TIES
from trajsoup.core.scores import Scores
from trajsoup.core.splits import Split
from trajsoup.study.workbench import Workbench

MASKING = "none: every token of a document counts, its end of text too, each predicted once from the window before it"
NORMALISATION = "nats per token: summed over all documents, divided by their tokens; a document weighs what it is long"


def protocol_fields(bench: Workbench, scores: Mapping[Split, Scores]) -> ProtocolFields:
    """What was asked for, and how much was scored: counted in the scores of one model on each split."""
    field = bench.field()
    losses = {split.value: found.losses for split, found in scores.items() if found.losses is not None}
    tasks = {len(found.tasks): sum(len(t.correct) for t in found.tasks) for found in scores.values() if found.tasks}
    return ProtocolFields(
        k_grid=field.ks,
        horizons=field.horizons,
        rank_by=field.rank_by.value,
        tie_rule=TIES,
        held_out=f"{Split.VALIDATION.value} ranks and chooses, {Split.TEST.value} is reported and chooses nothing",
        scored_tokens={split: int(found.targets.sum()) for split, found in losses.items()},
        scored_documents={split: len(found.nll) for split, found in losses.items()},
        effective_documents={split: found.effective_documents for split, found in losses.items()},
        largest_share={split: found.largest_share for split, found in losses.items()},
        masking=MASKING,
        normalisation=NORMALISATION,
        overall_average="; ".join(
            f"mean over {count} configurations, each weighing the same; {items:,} items"
            for count, items in tasks.items()
        )
        or None,
    )
