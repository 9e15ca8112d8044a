"""The corpus of a study, checked against the model that will read it, and where caches live."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.errors import StudyError
from trajsoup.store.checkpoint import load_json
from trajsoup.study.file.study import Study

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus


def cache_folder() -> Path:
    """Where corpora and fork points are cached: TRAJSOUP_CACHE, else the user's cache folder."""
    if folder := os.environ.get("TRAJSOUP_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trajsoup"


def load_data(study: Study, *, cache: Path) -> Corpus | None:
    """Tokenise the corpus, or take it from the cache; None for a command that brings its own data."""
    if study.corpus is None:
        return None
    from trajsoup.lm.corpus import CorpusSpec, load_corpus, require_same_tokenizer, require_vocabulary

    fields = dict(study.corpus)
    fork_point = study.fork_point
    if fork_point is not None and "tokenizer" not in fields and (fork_point / "tokenizer.json").is_file():
        fields["tokenizer"] = fork_point
    corpus = load_corpus(CorpusSpec(**fields), cache=cache)
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
        raise StudyError(f"the fork point {fork_point} has no config.json: name a Hugging Face model folder")
    return load_json(path)
