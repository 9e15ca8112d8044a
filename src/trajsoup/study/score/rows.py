"""The stage that scores: checkpoints and rows of W, on validation or on test, each at most once.

    rows -> identities -> known? -> else: streamed into one live model -> losses, tasks -> record

All rows that are not known yet come out of one read of the checkpoints. Each record is written when its row is done, while
the next is scored, so a killed run goes on from there. A checkpoint that diverged scores NaN, is reported, and is never
chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from trajsoup.core.scores import DocumentLosses, TaskResult, TestScores, ValidationScores
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.engine.workers import Options
from trajsoup.errors import NonfiniteError, ScoreError
from trajsoup.lm.corpus import Corpus, TokenSet, require_same_tokenizer
from trajsoup.lm.harness import Harness, HarnessSettings, find_tasks
from trajsoup.lm.live import load_model, present_device, stream_rows
from trajsoup.lm.tasks.items import Task
from trajsoup.lm.tasks.scoring import PreparedSuite, prepare_suite, score_suite
from trajsoup.lm.validate import ValidationSettings, document_losses
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.identity import Identities
from trajsoup.store.scores import ScoreKey, ScoreStore
from trajsoup.study.train.sums import RunningSum, as_present

KIND = TypeVar("KIND", ValidationScores, TestScores)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """What is scored, the same for every model of a study."""

    validation: ValidationSettings = field(default_factory=ValidationSettings)
    suite: tuple[Task, ...] = ()  # embedded tasks; empty: only the loss
    items_each: int = 100  # per configuration, on test
    validation_items: int | None = None  # the same on validation; None: as many
    sweep_items: int | None = None  # the same on test, of rows of sweeps; None: as many
    items_seed: int = 0
    choose_with: HarnessSettings | None = None  # lm-eval tasks that may rank and choose
    report_with: HarnessSettings | None = None  # lm-eval tasks that are only reported; none of them in choose_with
    dtype: str = "float32"  # of the live model
    device: str = "cpu"

    def identity(self) -> dict[str, Any]:
        """What a record depends on, besides the model, the corpus and the items."""
        return {**self.validation.identity(), "dtype": self.dtype}

    def items_of(self, split: Split) -> int:
        """Items of each configuration on a split."""
        fewer = self.validation_items if split is Split.VALIDATION else None
        return self.items_each if fewer is None else fewer

    def harness(self, split: Split) -> HarnessSettings | None:
        """The lm-eval tasks of a split."""
        if self.choose_with is not None and self.report_with is not None:
            both = sorted(set(self.choose_with.tasks) & set(self.report_with.tasks))
            if both:
                raise ScoreError(
                    f"lm-eval task {', '.join(both)} is named both for choosing and for the report: what chooses a "
                    "model flatters it; name different tasks"
                )
        return self.choose_with if split is Split.VALIDATION else self.report_with


class Work(Protocol):
    """What scoring needs to know; a Scorer is one."""

    @property
    def corpus(self) -> Corpus: ...  # noqa: D102
    @property
    def checkpoints(self) -> Mapping[str, Checkpoint]: ...  # noqa: D102
    @property
    def folder(self) -> Path: ...  # noqa: D102
    @property
    def settings(self) -> ScoreSettings: ...  # noqa: D102
    @property
    def model_source(self) -> Checkpoint | None: ...  # noqa: D102
    @property
    def options(self) -> Options | None: ...  # noqa: D102
    @property
    def gone(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def sums(self) -> Sequence[RunningSum]: ...  # noqa: D102
    @property
    def prepared(self) -> dict[Hashable, PreparedSuite]: ...  # noqa: D102
    @property
    def progress(self) -> Callable[[str, int, int], None]: ...  # noqa: D102


def score_rows(
    rows: Sequence[Row], of: Work, store: ScoreStore[KIND], kind: type[KIND], *, what: str
) -> dict[str, KIND]:
    """Score rows on the split of the store, those that it does not know yet; by row name."""
    if len({row.name for row in rows}) < len(rows):
        raise ScoreError("two rows have the same name, and scores are kept by name: rename one")
    settings, tokens = of.settings, of.corpus.split(store.split)
    suite = _Suite(of, store.split)
    keys = _keys(rows, of, tokens, suite)
    found = {row.name: store.read(keys[row.name]) for row in rows}
    missing = {keys[row.name].digest: row for row in rows if found[row.name] is None}  # a row under two names: once
    of.progress(what, len(rows) - len(missing), len(rows))
    present = {digest: as_present(row, gone=of.gone, sums=of.sums) for digest, row in missing.items()}
    if lost := sorted({key for row in present.values() for key in row.weights.keys() & of.gone.keys()}):
        raise ScoreError(
            f"{lost[0]} and {len(lost) - 1} other checkpoints were deleted by the study's `keep: needed`, and what is asked "
            "now needs their weights: train the study again in another `output`, with `keep: all`"
        )
    if missing:
        first = of.model_source or of.checkpoints[next(iter(next(iter(present.values())).weights))]
        model = load_model(first, device=present_device(settings.device), dtype=settings.dtype)
        require_same_tokenizer(of.corpus, model=Path(str(first.folder)))
        suite.attach(model)
        done = len(rows) - len(missing)
        with ThreadPoolExecutor(1, thread_name_prefix="scores") as writer:  # the disk syncs while the next is scored
            written: list[Future[Any]] = []
            for row, alive in _stream(model, of, list(present.values())):
                scores = (
                    _run(model, tokens, suite, kind, settings) if alive else _nothing(tokens, suite, kind, settings)
                )
                for last in written[-1:]:
                    last.result()  # a disk that is full ends the run here, not after hours
                written.append(writer.submit(store.write, keys[row.name], scores, name=row.name))
                done += 1
                of.progress(what, done, len(rows))
            for last in written[-1:]:
                last.result()
        found = {name: store.read(keys[name]) if known is None else known for name, known in found.items()}
    assert all(scores is not None for scores in found.values())
    return {name: scores for name, scores in found.items() if scores is not None}


def losses_known(rows: Sequence[Row], of: Work, store: ScoreStore[KIND]) -> dict[str, KIND]:
    """The losses of rows whose models were scored together with the tasks, by row name."""
    if not of.settings.suite and of.settings.choose_with is None:
        return {}
    keys = _keys(rows, of, of.corpus.split(store.split), _Suite(of, store.split))
    found = {row.name: store.read(keys[row.name]) for row in rows}
    return {name: replace(scores, tasks=()) for name, scores in found.items() if scores is not None}


class _Suite:
    """The embedded tasks and the lm-eval tasks of one split, either of which may be absent."""

    def __init__(self, of: Work, split: Split) -> None:
        settings, self.tokenizer = of.settings, of.corpus.tokenizer
        named = settings.harness(split)
        self.lm_eval = None if named is None else find_tasks(named)  # refuses what cannot run before anything is read
        self.harness: Harness | None = None
        self.embedded: PreparedSuite | None = None
        if settings.suite:
            asked = (settings.suite, split, settings.items_of(split), settings.items_seed)
            if asked not in of.prepared:  # a study asks some dozen times for the same few
                of.prepared[asked] = prepare_suite(
                    settings.suite,
                    tokenizer=self.tokenizer,
                    split=split,
                    items_each=settings.items_of(split),
                    seed=settings.items_seed,
                    documents=of.corpus.split(split),
                )
            self.embedded = of.prepared[asked]

    @property
    def digest(self) -> str | None:
        parts = [None if self.embedded is None else self.embedded.digest]
        parts += [] if self.lm_eval is None else [self.lm_eval.digest]
        return None if parts == [None] else hashlib.sha256(str(parts).encode()).hexdigest()

    def attach(self, model: Any) -> None:
        """Build what needs the live model, once."""
        if self.lm_eval is not None:
            self.harness = Harness(model, tokenizer=self.tokenizer, tasks=self.lm_eval)

    def score(self, model: Any) -> tuple[TaskResult, ...]:
        embedded = () if self.embedded is None else score_suite(model, self.embedded)
        return embedded + (() if self.harness is None else self.harness.score())

    def nothing(self) -> tuple[TaskResult, ...]:
        """What a model scores that holds NaN."""
        embedded = () if self.embedded is None else self.embedded.tasks
        return (
            *(
                TaskResult(
                    name=t.task.name,
                    category=t.task.category,
                    chance=t.task.chance,
                    correct=np.full(len(t.right), np.nan),
                    document=t.document,
                )
                for t in embedded
            ),
            *(() if self.harness is None else self.harness.nothing()),
        )


def _keys(rows: Sequence[Row], of: Work, tokens: TokenSet, suite: _Suite) -> dict[str, ScoreKey]:
    resident = None if of.options is None else of.options.resident
    identities = Identities(of.folder / "identities.json", resident=resident)
    used = sorted({key for row in rows for key in row.weights})
    if absent := [key for key in used if key not in of.checkpoints and key not in of.gone]:
        raise ScoreError(f"a row names {absent[0]!r}, which is not among the checkpoints: a misspelt key?")
    ingredients = {key: of.gone.get(key) or identities.checkpoint(of.checkpoints[key]) for key in used}
    identities.save()
    return {
        row.name: ScoreKey(
            model=identities.row(row, ingredients),
            corpus=tokens.digest,
            suite=suite.digest,
            settings=of.settings.identity(),
        )
        for row in rows
    }


def _stream(model: Any, of: Work, rows: Sequence[Row]) -> Iterator[tuple[Row, bool]]:
    """Yield every row with whether the model has become it. A diverged ingredient spoils its own rows only.

    A read ends where it meets such an ingredient; the rows without it come out of the next: one more read for each.
    """
    left = {row.name: row for row in rows}
    while left:
        try:
            for row in stream_rows(model, of.checkpoints, list(left.values()), options=of.options):
                del left[row.name]
                yield row, True
        except NonfiniteError as error:
            spoilt = [row for row in left.values() if error.key in row.weights]
            if not spoilt:
                raise
            for row in spoilt:
                del left[row.name]
                yield row, False


def _run(model: Any, tokens: TokenSet, suite: _Suite, kind: type[KIND], settings: ScoreSettings) -> KIND:
    return kind(losses=document_losses(model, tokens, settings=settings.validation), tasks=suite.score(model))


def _nothing(tokens: TokenSet, suite: _Suite, kind: type[KIND], settings: ScoreSettings) -> KIND:
    """The scores of a model that holds NaN."""
    limit = settings.validation.max_documents
    count = tokens.n_documents if limit is None else min(limit, tokens.n_documents)
    losses = DocumentLosses(
        nll=np.full(count, np.nan),
        targets=tokens.targets[:count],
        document_bytes=None if tokens.document_bytes is None else tokens.document_bytes[:count],
        source=None if tokens.source is None else tokens.source[:count],
        source_names=tokens.source_names,
    )
    return kind(losses=losses, tasks=suite.nothing())
