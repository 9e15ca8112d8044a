"""Documents that somebody hands over, without a study: who answers methods in `merge --validation`, scores and gradients."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from trajsoup.core.methods.asking import Descending, Scoring
from trajsoup.core.splits import Split
from trajsoup.merge.branches import Branches
from trajsoup.merge.plan import adapters_of
from trajsoup.store.checkpoint import open_checkpoint, side_files_here
from trajsoup.store.remote import absolute
from trajsoup.study.score.scorer import OnScore, Scorer, window_of


@contextlib.contextmanager
def scoring_on(
    documents: Sequence[Path],
    study: Branches,
    *,
    progress: OnScore = lambda what, done, total: None,
    scratch: Path | None = None,
    lora: bool = False,
) -> Iterator[tuple[Scoring, Descending]]:
    """Tokenise the documents with the model's own tokenizer; every row is then scored on all of them.

    With `lora` the checkpoints are adapters, each scored as the model that it makes of its base. Gradients are those of the
    same documents, a batch at a time. What is kept in `scratch` is not scored again; without it scores live as long as the
    context.
    """
    from trajsoup.lm.corpus import only_validation
    from trajsoup.lm.slopes import Slopes
    from trajsoup.lm.validate import ValidationSettings
    from trajsoup.study.score.rows import ScoreSettings

    keys = [c.key for pool in study.pools() for c in pool.candidates]
    adapters = adapters_of(keys, study.fork_point) if lora else None
    checkpoints = {key: open_checkpoint(key, format=adapters) for key in keys}
    source = open_checkpoint(study.fork_point) if study.fork_point else next(iter(checkpoints.values()))
    if study.fork_point:  # a row may name it
        checkpoints[absolute(study.fork_point)] = source
    with contextlib.ExitStack() as stack:
        folder = scratch or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trajsoup-")))
        (folder / "tokens").mkdir(exist_ok=True)
        tokenizer = side_files_here(source, folder / "tokenizer")
        scorer = Scorer(
            corpus=only_validation(documents, tokenizer=tokenizer, folder=folder / "tokens"),
            checkpoints=checkpoints,
            folder=folder / "scores",
            settings=ScoreSettings(suite=(), validation=ValidationSettings(window=window_of(checkpoints))),
            progress=progress,
            model_source=source,
        )
        slopes = Slopes(
            checkpoints=checkpoints,
            source=source,
            tokens={Split.VALIDATION: scorer.corpus.validation},
            window=scorer.settings.validation.window,
            progress=lambda answered: progress("gradients", answered, None),
        )
        yield lambda rows: scorer.validate(rows, what="choosing"), slopes
