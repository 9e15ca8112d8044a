"""Score rows on documents that somebody hands over, without a study: who answers methods in `merge --validation`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from trajsoup.core.methods.asking import Scoring
from trajsoup.merge.branches import Branches
from trajsoup.store.checkpoint import open_checkpoint, side_files_here
from trajsoup.study.score.scorer import OnScore, Scorer, window_of


@contextlib.contextmanager
def scoring_on(
    documents: Sequence[Path], study: Branches, *, progress: OnScore = lambda what, done, total: None
) -> Iterator[Scoring]:
    """Tokenise the documents with the model's own tokenizer; every row is then scored on all of them."""
    from trajsoup.lm.corpus import only_validation
    from trajsoup.lm.validate import ValidationSettings
    from trajsoup.study.score.rows import ScoreSettings

    checkpoints = {c.key: open_checkpoint(c.key) for pool in study.pools() for c in pool.candidates}
    source = open_checkpoint(study.fork_point) if study.fork_point else next(iter(checkpoints.values()))
    with tempfile.TemporaryDirectory(prefix="trajsoup-") as scratch:
        folder = Path(scratch)
        (folder / "tokens").mkdir()
        tokenizer = side_files_here(source, folder / "tokenizer")
        scorer = Scorer(
            corpus=only_validation(documents, tokenizer=tokenizer, folder=folder / "tokens"),
            checkpoints=checkpoints,
            folder=folder / "scores",
            settings=ScoreSettings(suite=(), validation=ValidationSettings(window=window_of(checkpoints))),
            progress=progress,
            model_source=source,
        )
        yield lambda rows: scorer.validate(rows, what="choosing")
