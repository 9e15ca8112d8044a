"""Scores as tasks of an executor: rows are dealt out, every machine writes its score records, and then all are known.

The records are named by content, so it does not matter who wrote one, or whether it was written twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.engine.executor import TASK_SECONDS
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.remote import absolute
from trajsoup.study.score.scorer import Scorer, silent

ROWS_EACH = 8  # of one task: a model is loaded once for them


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTask:
    """Some rows to score on one split."""

    rows: tuple[Row, ...]
    split: Split
    paths: Mapping[str, str]  # key -> path of a checkpoint
    scorer: Scorer  # without what does not travel: open checkpoints, memory, training documents


def share_scores(rows: Sequence[Row], scorer: Scorer, *, split: Split, what: str) -> None:
    """Have every row scored by some machine. Reading the records afterwards is the caller's part."""
    assert scorer.executor is not None
    light = dataclasses.replace(
        scorer,
        corpus=dataclasses.replace(scorer.corpus, train=scorer.corpus.validation),
        checkpoints={},
        folder=scorer.folder.absolute(),
        progress=silent,
        model_source=None,
        options=None,
        executor=None,
    )
    paths = {key: absolute(checkpoint.path) for key, checkpoint in scorer.checkpoints.items()}
    shares = [tuple(rows[i : i + ROWS_EACH]) for i in range(0, len(rows), ROWS_EACH)]
    tasks = [ScoreTask(rows=share, split=split, paths=paths, scorer=light) for share in shares]
    done = 0

    def count(number: int, scored: int) -> None:
        nonlocal done
        done += scored
        scorer.progress(what, done, len(rows))

    scorer.executor.map(score_some, tasks, timeout_seconds=TASK_SECONDS, progress=count)


def score_some(task: ScoreTask) -> int:
    """Score the rows of one task; return their number."""
    keys = {key for row in task.rows for key in row.weights}
    scorer = dataclasses.replace(task.scorer, checkpoints={key: open_checkpoint(task.paths[key]) for key in keys})
    if task.split is Split.TEST:
        scorer.test(task.rows)
    else:
        scorer.validate(task.rows)
    return len(task.rows)
