"""A whole study that takes seconds: the stand-in model, bytes, three branches of six checkpoints."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np

from tests.lm.stand_in import END, SEQUENCE
from tests.study.studies import byte_corpus, make_fork_point, write_study
from trajsoup.study.file.study import load_study
from trajsoup.study.run import run_study

TEXT = f"""
    fork_point: fork
    corpus: builtin
    sequence_length: {SEQUENCE}
    horizon: {24 * 8 * SEQUENCE}
    checkpoint_every: {4 * 8 * SEQUENCE}
    max_epochs: 1000
    baseline: {{peak_lr: 3e-3, global_batch: 8}}
    branches:
      EXP1: {{}}
      EXP2: {{seed: 1001}}
      EXP3: {{peak_lr: 2e-3, global_batch: 4}}
    evaluate: {{validation_tokens: 4k, test_tokens: 4k, probe_tokens: 2k, ks: [1, 2, 3], horizons: 2, resamples: 200,
               tolerance: 0.5}}
"""


def small_documents(folder):
    """The byte corpus, its held-out sets cut into documents of thirty bytes: a bootstrap needs several."""
    corpus = byte_corpus(folder)

    def cut(tokens):
        whole = tokens.tokens[tokens.tokens != END][:6000]
        parts = [np.append(whole[i : i + 30], END).astype(np.uint16) for i in range(0, len(whole), 30)]
        joined = np.concatenate(parts)
        starts = np.cumsum([0, *map(len, parts)])
        return dataclasses.replace(
            tokens, tokens=joined, starts=starts, digest=hashlib.sha256(joined.tobytes()).hexdigest()
        )

    return dataclasses.replace(corpus, validation=cut(corpus.validation), test=cut(corpus.test), train=corpus.train)


def make_study(folder, fork_point, *, text=TEXT, more=""):
    """Write the study into a folder and load it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fork").symlink_to(fork_point)
    return load_study(write_study(folder, text + more))


def run_tiny(folder, fork_point, *, text=TEXT, more="", **options):
    """Run it to the end."""
    setup = make_study(folder, fork_point, text=text, more=more)
    return run_study(setup, corpus=small_documents(folder), cache=folder / "cache", **options)


__all__ = ["TEXT", "load_study", "make_fork_point", "make_study", "run_study", "run_tiny", "small_documents"]
