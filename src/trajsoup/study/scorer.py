"""What every stage that scores shares: the documents, the checkpoints, the settings, and where scores are kept.

    rows -> Scorer.validate -> ValidationScores (may choose)        rows -> Scorer.test -> TestScores (reported)

This is the one place where scoring happens, so it is the one place where it can be spread over machines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.core.pool import Pool
from trajsoup.core.scores import TestScores, ValidationScores
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.engine.executor import Executor
from trajsoup.engine.workers import Options
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.remote import absolute
from trajsoup.study.evaluation_section import EvaluationPlan

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus
    from trajsoup.study.score import ScoreSettings

FORK_POINT = "fork-point"  # its key among the checkpoints
OnScore = Callable[[str, int, int], None]  # what, done, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """Scores rows of one study. Keys of checkpoints are relative to the study's folder."""

    corpus: Corpus  # validation and test are cut to what the study scores
    checkpoints: Mapping[str, Checkpoint]
    folder: Path  # of the score records
    settings: ScoreSettings
    progress: OnScore
    model_source: Checkpoint | None = None  # what the live model is built from; None: the first ingredient
    options: Options | None = None
    executor: Executor | None = None  # None: this process scores

    def _share(
        self, rows: Sequence[Row], *, split: Split, corpus: Corpus, records: Path, settings: ScoreSettings
    ) -> None:
        if self.executor is None or len(rows) < 2:
            return
        from trajsoup.study.score_tasks import share_scores

        paths = {key: absolute(checkpoint.path) for key, checkpoint in self.checkpoints.items()}
        share_scores(
            rows,
            split=split,
            paths=paths,
            corpus=corpus,
            records=records.absolute(),
            settings=settings,
            executor=self.executor,
        )

    def validate(self, rows: Sequence[Row], *, what: str = "validation") -> dict[str, ValidationScores]:
        """Score rows on validation documents, each at most once ever; one read of the checkpoints for all of them."""
        from trajsoup.study.score import score_validation

        self._share(rows, split=Split.VALIDATION, corpus=self.corpus, records=self.folder, settings=self.settings)
        return score_validation(
            rows,
            checkpoints=self.checkpoints,
            corpus=self.corpus,
            records=self.folder,
            settings=self.settings,
            model_source=self.model_source,
            options=self.options,
            progress=lambda done, total: self.progress(what, done, total),
        )

    def test(self, rows: Sequence[Row]) -> dict[str, TestScores]:
        """Score chosen rows on test documents."""
        from trajsoup.study.score import score_test

        self._share(rows, split=Split.TEST, corpus=self.corpus, records=self.folder, settings=self.settings)
        return score_test(
            rows,
            checkpoints=self.checkpoints,
            corpus=self.corpus,
            records=self.folder,
            settings=self.settings,
            model_source=self.model_source,
            options=self.options,
            progress=lambda done, total: self.progress("test", done, total),
        )

    def probe(self, rows: Sequence[Row], *, max_tokens: int) -> dict[str, ValidationScores]:
        """Loss of rows on a fixed probe of training documents."""
        from trajsoup.lm.probe import probe_of
        from trajsoup.study.score import score_validation

        there = dataclasses.replace(self.corpus, validation=probe_of(self.corpus.train, max_tokens=max_tokens))
        settings = dataclasses.replace(self.settings, suite=(), choose_with=None, report_with=None)
        self._share(rows, split=Split.VALIDATION, corpus=there, records=self.folder / "probe", settings=settings)
        return score_validation(
            rows,
            checkpoints=self.checkpoints,
            corpus=there,
            records=self.folder / "probe",
            settings=settings,
            model_source=self.model_source,
            options=self.options,
            progress=lambda done, total: self.progress("probe", done, total),
        )


def make_scorer(
    corpus: Corpus,
    checkpoints: Mapping[str, Checkpoint],
    *,
    folder: Path,
    evaluation: EvaluationPlan,
    progress: OnScore = lambda what, done, total: None,
    model_source: Checkpoint | None = None,
    options: Options | None = None,
    executor: Executor | None = None,
) -> Scorer:
    """Cut the corpus to the tokens that the study scores, and choose the suite."""
    from trajsoup.lm.probe import probe_of
    from trajsoup.lm.tasks.mid_training import SUITE
    from trajsoup.lm.validate import ValidationSettings
    from trajsoup.study.score import ScoreSettings

    cut = dataclasses.replace(
        corpus,
        validation=probe_of(corpus.validation, max_tokens=evaluation.validation_tokens),
        test=probe_of(corpus.test, max_tokens=evaluation.test_tokens),
    )
    suite = tuple(SUITE) if evaluation.items else ()
    window = 256
    longest = [c.config.get("max_position_embeddings") for c in checkpoints.values()][:1]
    if longest and isinstance(longest[0], int):
        window = min(window, longest[0])
    settings = ScoreSettings(
        suite=suite, items_each=max(evaluation.items, 1), validation=ValidationSettings(window=window)
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
    )


def single(key: str) -> Row:
    """The row that is one checkpoint."""
    return Row(name=key, weights={key: 1.0})


def singles(pools: Sequence[Pool]) -> list[Row]:
    """A row for every checkpoint."""
    return [single(c.key) for pool in pools for c in pool.candidates]
