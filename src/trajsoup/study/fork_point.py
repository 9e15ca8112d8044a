"""Make the fork point theta_0: a fresh embedded model, pretrained once, cached by everything that shapes it.

config + seed -> fresh weights -> a branch job on the pretraining documents -> its last checkpoint -> cache
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.errors import StudyError
from trajsoup.lm.job import BranchJob, fork_point_digest, token_file
from trajsoup.store.lock import holding
from trajsoup.study.file import Study

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus

PIECES = 5  # states saved on the way, so that a killed pretraining goes on


def ensure_fork_point(
    study: Study,
    corpus: Corpus | None,
    *,
    sequence_length: int,
    cache: Path,
    run: Callable[[BranchJob], None],
) -> Path:
    """Return the fork point's folder, pretraining it with `run` unless the cache has it."""
    if study.fork_point is not None:
        return study.fork_point
    if study.pretrain is None or corpus is None:
        raise StudyError(f"{study.path}: a fork point cannot be pretrained without a corpus: name a fork_point")
    from trajsoup.lm.models import Embedded, embedded_config, new_model
    from trajsoup.lm.tokenizer import end_of_text_id, load_tokenizer

    pretrain = study.pretrain
    config = embedded_config(
        Embedded(pretrain.family),
        vocab_size=corpus.vocab_size,
        end_of_text=end_of_text_id(load_tokenizer(corpus.tokenizer), corpus.tokenizer),
        sequence_length=sequence_length,
        changes=dict(pretrain.changes),
    )
    step_tokens = pretrain.recipe.global_batch * sequence_length
    every = max(round(pretrain.tokens / step_tokens / PIECES), 1) * step_tokens
    shape = {
        "config": config.to_json_string(),
        "seed": pretrain.seed,
        "recipe": pretrain.recipe.effective(),
        "corpus": corpus.pretrain.digest,
        "tokens": every * PIECES,
        "sequence_length": sequence_length,
    }
    key = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:20]
    out = cache / f"fork-point-{key}"
    if out.is_dir():
        return out
    with holding(cache / f".pretraining-{key}.lock", patience_seconds=math.inf):  # another study may need the same one
        if out.is_dir():
            return out
        work = cache / f"pretraining-{key}"
        if not (work / "fresh").is_dir():
            work.mkdir(parents=True, exist_ok=True)
            new_model(config, seed=pretrain.seed).save_pretrained(work / ".fresh")
            (work / ".fresh").rename(work / "fresh")
        job = BranchJob(
            branch="fork point",
            folder=work,
            fork_point=work / "fresh",
            fork_point_digest=fork_point_digest(work / "fresh"),
            tokens=token_file(corpus.pretrain.tokens, digest=corpus.pretrain.digest, spare=work / "pretrain.tokens"),
            recipe=pretrain.recipe,
            horizon=every * PIECES,
            checkpoint_every=every,
            sequence_length=sequence_length,
            micro_batch=study.trainer.micro_batch,
            tokenizer=corpus.tokenizer,
        )
        run(job)
        (work / f"checkpoint-{every * PIECES // step_tokens}").rename(out)
        shutil.rmtree(work, ignore_errors=True)
    return out
