"""The corpus of a study, checked against the model that will read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trajsoup.errors import StudyError
from trajsoup.lm.corpus import Corpus, load_corpus, require_same_tokenizer, require_vocabulary
from trajsoup.store.checkpoint import load_json
from trajsoup.store.formats import hub_hint
from trajsoup.study.file.study import Study


def load_data(study: Study, *, cache: Path) -> Corpus | None:
    """Tokenise the corpus, or take it from the cache; None for a command that brings its own data."""
    if study.corpus is None:
        return None
    spec, fork_point = study.corpus, study.fork_point
    if not spec.can_train:
        raise StudyError(
            f"{study.path}: the corpus names a set but no training documents: add corpus.train, or leave all out for builtin"
        )
    if fork_point is not None and spec.tokenizer is None and (fork_point / "tokenizer.json").is_file():
        spec = replace(spec, tokenizer=fork_point)
    if fork_point is not None and spec.is_builtin:
        spec = replace(spec, pretrain_bytes=0)  # nobody reads it, and it is most of the text
    corpus = load_corpus(spec, cache=cache)
    if fork_point is not None:
        vocab_size = fork_config(fork_point).get("vocab_size")
        if isinstance(vocab_size, int):
            require_vocabulary(corpus, vocab_size=vocab_size, model=str(fork_point))
        require_same_tokenizer(corpus, model=fork_point)
    if study.pretrain is not None and len(corpus.pretrain.tokens) == 0:
        raise StudyError(f"{study.path}: `pretrain` needs documents: add corpus.pretrain, or name a fork_point")
    return corpus


def fork_config(fork_point: Path) -> dict[str, object]:
    """config.json of the fork point."""
    path = fork_point / "config.json"
    if not path.is_file():
        if not fork_point.exists():
            hint = hub_hint(Path(*fork_point.parts[-2:]), into=fork_point)
            raise StudyError(f"there is no fork point at {fork_point}: name a Hugging Face model folder{hint}")
        raise StudyError(f"the fork point {fork_point} has no config.json: name a Hugging Face model folder")
    return load_json(path)
