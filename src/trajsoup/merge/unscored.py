"""Runs that nobody evaluated: scored on documents that are at hand, or chosen from without a score, and said so."""

from __future__ import annotations

from dataclasses import replace

from trajsoup.core.methods.asking import Scoring
from trajsoup.core.selection import SELECTIONS, TAIL_K
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.errors import SelectionError
from trajsoup.merge.branches import Branches
from trajsoup.merge.choice import Choice


def with_what_is_known(
    study: Branches, choice: Choice, *, scoring: Scoring | None
) -> tuple[Branches, Choice, tuple[str, ...]]:
    """The study and the choice where checkpoints lack the score that ranks them, and what there is to say about it.

    With documents (`scoring`) every checkpoint is scored: two validation sets must not be ranked together. Without any score
    the usual soup takes the end of each branch. Where some have a score, where several could be meant, or where the user
    asked for a ranking, it stays an error.
    """
    candidates = [c for pool in study.pools() for c in pool.candidates]
    missing = [c for c in candidates if c.score(choice.rank_by) is None]
    rule = None if choice.rule is None else SELECTIONS[choice.rule]
    if not missing or choice.rank_by is not Signal.LOSS or (rule is not None and not rule.ranked):
        return study, choice, ()
    what = f"{len(missing)} of {len(candidates)} checkpoints have no validation loss in their logs"
    if scoring is not None:
        return scored(study, scoring), choice, (f"{what}: all are scored on the documents of --validation",)
    if study.unnamed:
        raise SelectionError(study.unnamed[0])
    if len(missing) == len(candidates) and choice.strategy is None and choice.select is None:
        told = f"{what}, so the last of each branch are taken (--select {TAIL_K}); --validation FILE would rank them"
        return study, replace(choice, select=TAIL_K), (told,)
    return study, choice, ()


def scored(study: Branches, scoring: Scoring) -> Branches:
    """Every checkpoint with its loss on the documents that merges are scored on."""
    pools = study.pools()
    scores = scoring([Row(name=c.key, weights={c.key: 1.0}) for pool in pools for c in pool.candidates])
    branches = [
        replace(
            branch,
            checkpoints=tuple(
                replace(saved, val_loss=None if (found := scores[c.key].losses) is None else found.loss())
                for saved, c in zip(branch.checkpoints, pool.candidates, strict=True)
            ),
        )
        for branch, pool in zip(study.branches, pools, strict=True)
    ]
    return replace(study, branches=tuple(branches))
