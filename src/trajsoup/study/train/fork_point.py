"""Make the fork point theta_0: a fresh embedded model, pretrained once, cached by everything that shapes it.

config + seed -> fresh weights -> a branch job on the pretraining documents -> its last checkpoint -> cache
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajsoup.errors import StudyError
from trajsoup.lm.builtin import FORK_POINTS
from trajsoup.lm.job import BranchJob, fork_point_digest, token_file
from trajsoup.store.lock import holding
from trajsoup.study.file.pretrain import Pretrain
from trajsoup.study.file.study import Study
from trajsoup.study.file.trainer import Builtin

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
    out, job = find_fork_point(study, corpus, sequence_length=sequence_length, cache=cache)
    if job is None:
        return out
    with holding(cache / f".{job.folder.name}.lock", patience_seconds=math.inf):  # another study may need it too
        if not out.is_dir():
            run(job)
            (job.folder / f"checkpoint-{job.horizon // job.step_tokens}").rename(out)
            shutil.rmtree(job.folder, ignore_errors=True)
    return out


def find_fork_point(
    study: Study, corpus: Corpus | None, *, sequence_length: int, cache: Path
) -> tuple[Path, BranchJob | None]:
    """The fork point's folder, and the job that makes it where it is not there yet."""
    if study.fork_point is not None and study.fork_point.parent == FORK_POINTS:
        from trajsoup.lm.models import as_float32

        return as_float32(study.fork_point, cache / f"fork-point-{fork_point_digest(study.fork_point)[:20]}"), None
    if study.fork_point is not None:
        return study.fork_point, None
    if study.pretrain is None or corpus is None:
        raise StudyError(f"{study.path}: a fork point cannot be pretrained without a corpus: name a fork_point")
    from trajsoup.lm.models import Embedded, embedded_config, new_model
    from trajsoup.lm.tokenizer import end_of_text_id, load_tokenizer

    pretrain = study.pretrain
    config = embedded_config(
        Embedded(pretrain.model.family),
        vocab_size=corpus.vocab_size,
        end_of_text=end_of_text_id(load_tokenizer(corpus.tokenizer), corpus.tokenizer),
        sequence_length=sequence_length,
        changes=dict(pretrain.model.changes),
    )
    shape = {
        "config": config.to_json_string(),
        "seed": pretrain.seed,
        "recipe": pretrain.recipe.effective(),
        "corpus": corpus.pretrain.digest,
        "tokens": _every(pretrain, sequence_length) * PIECES,
        "sequence_length": sequence_length,
    }
    key = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:20]
    out = cache / f"fork-point-{key}"
    if out.is_dir():
        return out, None
    fresh = functools.partial(new_model, config, seed=pretrain.seed)
    with holding(cache / f".fresh-{key}.lock", patience_seconds=math.inf):
        work = cache / f"pretraining-{key}"
        return out, _job(study, pretrain, corpus, fresh=fresh, work=work, length=sequence_length)


def _job(
    study: Study, pretrain: Pretrain, corpus: Corpus, *, fresh: Callable[[], Any], work: Path, length: int
) -> BranchJob:
    """The job that pretrains in `work`, from fresh weights that are made once."""
    if not (work / "fresh").is_dir():
        work.mkdir(parents=True, exist_ok=True)
        fresh().save_pretrained(work / ".fresh")
        (work / ".fresh").rename(work / "fresh")
    every = _every(pretrain, length)
    return BranchJob(
        branch="fork point",
        folder=work,
        fork_point=work / "fresh",
        fork_point_digest=fork_point_digest(work / "fresh"),
        tokens=token_file(corpus.pretrain.tokens, digest=corpus.pretrain.digest, spare=work / "pretrain.tokens"),
        recipe=pretrain.recipe,
        horizon=every * PIECES,
        checkpoint_every=every,
        sequence_length=length,
        micro_batch=study.trainer.micro_batch if isinstance(study.trainer, Builtin) else None,
        threads=1,  # then the fork point's last bits depend on no machine
        tokenizer=corpus.tokenizer,
    )


def _every(pretrain: Pretrain, length: int) -> int:
    """Tokens between two states: whole steps, about a fifth of all."""
    step_tokens = pretrain.recipe.global_batch * length
    return max(round(pretrain.tokens / step_tokens / PIECES), 1) * step_tokens
