"""Scores as tasks of an executor: rows are dealt out, every machine writes its score records, and then all are known.

The records are named by content, so it does not matter who wrote one, or whether it was written twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.engine.executor import TASK_SECONDS, Executor
from trajsoup.store.checkpoint import open_checkpoint

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus
    from trajsoup.study.score.rows import ScoreSettings

ROWS_EACH = 8  # of one task: a model is loaded once for them


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTask:
    """Some rows to score on one split."""

    rows: tuple[Row, ...]
    split: Split
    paths: Mapping[str, str]  # key -> path of a checkpoint
    corpus: Corpus
    records: Path
    settings: ScoreSettings


def share_scores(
    rows: Sequence[Row],
    *,
    split: Split,
    paths: Mapping[str, str],
    corpus: Corpus,
    records: Path,
    settings: ScoreSettings,
    executor: Executor,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Have every row scored by some machine. Reading the records afterwards is the caller's part."""
    light = dataclasses.replace(corpus, train=corpus.validation)  # training documents need not travel
    tasks = [
        ScoreTask(
            rows=tuple(rows[i : i + ROWS_EACH]),
            split=split,
            paths=paths,
            corpus=light,
            records=records,
            settings=settings,
        )
        for i in range(0, len(rows), ROWS_EACH)
    ]
    done = 0

    def count(number: int, scored: int) -> None:
        nonlocal done
        done += scored
        progress(done, len(rows))

    executor.map(score_some, tasks, timeout_seconds=TASK_SECONDS, progress=count)


def score_some(task: ScoreTask) -> int:
    """Score the rows of one task; return their number."""
    from trajsoup.study.score.rows import score_test, score_validation

    keys = {key for row in task.rows for key in row.weights}
    score = score_test if task.split is Split.TEST else score_validation
    score(
        task.rows,
        checkpoints={key: open_checkpoint(task.paths[key]) for key in keys},
        corpus=task.corpus,
        records=task.records,
        settings=task.settings,
    )
    return len(task.rows)
