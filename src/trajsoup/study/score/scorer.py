"""What every stage that scores shares: the documents, the checkpoints, the settings, and where scores are kept.

    rows -> Scorer.validate -> ValidationScores (may choose)        rows -> Scorer.test -> TestScores (reported)

This is the one place where scoring happens, so it is the one place where it can be spread over machines.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trajsoup.core.pool import Pool
from trajsoup.core.scores import TestScores, ValidationScores
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.engine.executor import TASK_SECONDS, Executor
from trajsoup.engine.workers import Options
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.store.remote import absolute
from trajsoup.store.scores import ScoreStore, test_store, validation_store
from trajsoup.study.file.evaluation import EvaluationPlan
from trajsoup.study.file.lm_eval import harness_settings
from trajsoup.study.train.sums import RunningSum

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus
    from trajsoup.lm.tasks.prepared import PreparedSuite
    from trajsoup.study.score.rows import ScoreSettings

ROWS_EACH = 8  # of one task of an executor: a model is loaded once for them
FORK_POINT = "fork-point"  # its key among the checkpoints
WINDOW = 256  # of models of up to SMALL_CONTEXT positions, which the embedded ones are
SMALL_CONTEXT = 512
LARGEST_WINDOW = 8192
Scores = TypeVar("Scores", ValidationScores, TestScores)
OnScore = Callable[[str, int, int | None], None]  # what, done, total; None: nobody knows yet


def silent(what: str, done: int, total: int | None) -> None:
    """For who does not watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """Scores rows of one study, each at most once ever; all that are new come out of one read of the checkpoints."""

    corpus: Corpus  # validation and test are cut to what the study scores
    checkpoints: Mapping[str, Checkpoint]
    folder: Path  # of the score records
    settings: ScoreSettings
    progress: OnScore = silent
    model_source: Checkpoint | None = None  # what the live model is built from; None: the first ingredient
    options: Options | None = None
    executor: Executor | None = None  # None: this process scores
    gone: Mapping[str, str] = field(default_factory=dict[str, str])  # key -> identity of one that is no longer there
    sums: tuple[RunningSum, ...] = ()  # of those that are gone
    prepared: dict[Hashable, PreparedSuite] = field(default_factory=dict[Hashable, Any])  # suites that were asked for

    def validate(
        self, rows: Sequence[Row], *, what: str = "validation", tasks: bool = True
    ) -> dict[str, ValidationScores]:
        """Score rows on validation documents: the scores that may choose. Without `tasks`, their loss alone."""
        from trajsoup.study.score.rows import losses_known

        store = validation_store(self.folder)
        if tasks:
            return self._score(rows, store, ValidationScores, what=what)
        known = losses_known(rows, self, store)  # of models that have answered items too
        rest = [row for row in rows if row.name not in known]
        return {**known, **self.without_tasks()._score(rest, store, ValidationScores, what=what)}

    def test(self, rows: Sequence[Row]) -> dict[str, TestScores]:
        """Score chosen rows on test documents: for the report, never for a choice."""
        return self._score(rows, test_store(self.folder), TestScores, what="test")

    def test_losses(self, rows: Sequence[Row]) -> dict[str, TestScores]:
        """The same for the loss alone, known from a record with items where there is one."""
        from trajsoup.study.score.rows import losses_known

        store, found = test_store(self.folder), dict[str, TestScores]()
        for scorer in (self, self.for_sweeps):
            found |= losses_known([row for row in rows if row.name not in found], scorer, store)
        return {**found, **self.without_tasks().test([row for row in rows if row.name not in found])}

    @property
    def for_sweeps(self) -> Scorer:
        """What scores the rows of sweeps on test: the same, with as many items as those answer."""
        items = self.settings.sweep_items
        return self if items is None else replace(self, settings=replace(self.settings, items_each=items))

    def probe(self, rows: Sequence[Row], *, max_tokens: int, source: str | None = None) -> dict[str, ValidationScores]:
        """Loss of rows on a fixed probe of training documents, of all or of one source."""
        from trajsoup.lm.mixture import of_source
        from trajsoup.lm.probe import probe_of

        train = self.corpus.train if source is None else of_source(self.corpus.train, source)
        on_probe = replace(
            self,
            corpus=replace(self.corpus, validation=probe_of(train, max_tokens=max_tokens)),
            folder=self.folder / "probe",
        )
        return on_probe.validate(rows, what="probe", tasks=False)

    def without_tasks(self) -> Scorer:
        """The same for the loss alone."""
        settings = replace(self.settings, suite=(), choose_with=None, report_with=None)
        return replace(self, settings=settings)

    def _score(
        self, rows: Sequence[Row], store: ScoreStore[Scores], kind: type[Scores], *, what: str
    ) -> dict[str, Scores]:
        """What the machines of the executor have not scored into the records, this process does."""
        from trajsoup.study.score.rows import score_rows

        if self.executor is not None and len(rows) > 1:
            share_scores(rows, self, split=store.split, what=what)
        return score_rows(rows, self, store, kind, what=what)


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
    light = replace(
        scorer,
        corpus=replace(scorer.corpus, train=scorer.corpus.validation),
        checkpoints={},
        folder=scorer.folder.absolute(),
        progress=silent,
        model_source=None,
        options=None,
        executor=None,
        prepared={},
    )
    paths = {key: absolute(checkpoint.path) for key, checkpoint in scorer.checkpoints.items()}
    rows = [row for row in rows if not row.weights.keys() & scorer.gone.keys()]  # those are known, or of sums: few
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
    scorer = replace(task.scorer, checkpoints={key: open_checkpoint(task.paths[key]) for key in keys})
    if task.split is Split.TEST:
        scorer.test(task.rows)
    else:
        scorer.validate(task.rows)
    return len(task.rows)


def make_scorer(
    corpus: Corpus,
    checkpoints: Mapping[str, Checkpoint],
    *,
    folder: Path,
    evaluation: EvaluationPlan,
    base: Path,
    progress: OnScore = silent,
    model_source: Checkpoint | None = None,
    options: Options | None = None,
    executor: Executor | None = None,
    gone: Mapping[str, str] | None = None,
    sums: tuple[RunningSum, ...] = (),
) -> Scorer:
    """Cut the corpus to the tokens that the study scores, and choose the suite. Task files are relative to `base`."""
    from trajsoup.lm.probe import probe_of
    from trajsoup.lm.tasks.mid_training import SCORED
    from trajsoup.lm.validate import ValidationSettings
    from trajsoup.study.score.rows import ScoreSettings

    cut = replace(
        corpus,
        validation=probe_of(corpus.validation, max_tokens=evaluation.validation_tokens),
        test=probe_of(corpus.test, max_tokens=evaluation.test_tokens),
    )
    suite = SCORED if evaluation.items else ()
    named = evaluation.lm_eval
    choose_with, report_with = (None, None) if named is None else harness_settings(named, base=base)
    settings = ScoreSettings(
        suite=suite,
        items_each=max(evaluation.items, 1),
        validation_items=evaluation.validation_items,
        sweep_items=evaluation.sweep_items,
        validation=ValidationSettings(window=evaluation.window or window_of(checkpoints)),
        dtype=dtype_of(checkpoints) if evaluation.dtype == "auto" else evaluation.dtype,
        device=evaluation.device,
        choose_with=choose_with,
        report_with=report_with,
    )
    return Scorer(
        corpus=cut,
        checkpoints=checkpoints,
        folder=folder,
        settings=settings,
        progress=progress,
        model_source=model_source,
        options=options,
        executor=executor,
        gone={} if gone is None else gone,
        sums=sums,
    )


def window_of(checkpoints: Mapping[str, Checkpoint]) -> int:
    """Tokens that a model is given at once: its own context, as far as one pass holds it; less for the embedded models."""
    longest = [c.config.get("max_position_embeddings") for c in checkpoints.values()][:1]
    if not longest or not isinstance(longest[0], int):
        return WINDOW
    return min(longest[0], WINDOW if longest[0] <= SMALL_CONTEXT else LARGEST_WINDOW)


def dtype_of(checkpoints: Mapping[str, Checkpoint]) -> str:
    """What a model is scored in: bfloat16 where most of its weights are, else float32."""
    sizes: dict[str, int] = {}
    for tensor in next(iter(checkpoints.values())).tensors.values():
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.nbytes
    return "bfloat16" if max(sizes, key=lambda kind: sizes[kind]) == "BF16" else "float32"


def single(key: str) -> Row:
    """The row that is one checkpoint."""
    return Row(name=key, weights={key: 1.0})


def singles(pools: Sequence[Pool]) -> list[Row]:
    """A row for every checkpoint."""
    return [single(c.key) for pool in pools for c in pool.candidates]
