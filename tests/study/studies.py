"""Study files and corpora for tests."""

from __future__ import annotations

import textwrap

from tests.lm.stand_in import END, SEQUENCE, VOCAB, byte_tokens, make_fork_point

FIVE = """
    fork_point: fork
    corpus: builtin
    horizon: 600B
    checkpoint_every: 25B
    sequence_length: 262144
    baseline: {optimizer: muon, momentum: 0.0, peak_lr: 3.39e-4, global_batch: 256, seed: 1234, schedule: constant,
               warmup: 1%, weight_decay: 0.1, clip: 1.0, betas: [0.9, 0.95]}
    branches:
      EXP1: {}
      EXP2: {seed: 1001}
      EXP3: {peak_lr: 2.40e-4, global_batch: 128}
      EXP4: {schedule: {decay_to: 3.39e-5}}
      EXP5: {momentum: 0.9}
    trainer: builtin
"""
SMALL = f"""
    fork_point: fork
    corpus: builtin
    sequence_length: {SEQUENCE}
    horizon: {8 * 8 * SEQUENCE}
    checkpoint_every: {4 * 8 * SEQUENCE}
    baseline: {{peak_lr: 1e-3, global_batch: 8}}
    branches:
      EXP1: {{}}
      EXP2: {{seed: 1001}}
"""


def write_study(folder, text, *, name="study.yaml"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def byte_corpus(folder):
    """The corpus that the stand-in model reads: bytes, and a tokenizer folder with nothing in it."""
    from trajsoup.lm.corpus import Corpus, TokenSet

    sets = {}
    for name, modules in {
        "pretrain": ("ast.py",), "train": ("json/decoder.py", "textwrap.py", "heapq.py"),
        "validation": ("bisect.py",), "test": ("keyword.py",),
    }.items():  # fmt: skip
        made = byte_tokens(modules)
        sets[name] = TokenSet(tokens=made.tokens, starts=made.starts, digest=made.digest)
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir(parents=True, exist_ok=True)
    return Corpus(**sets, tokenizer=tokenizer, vocab_size=VOCAB)


__all__ = ["END", "FIVE", "SMALL", "byte_corpus", "make_fork_point", "write_study"]
