"""A fork point, a token set and a job small enough for a test, made from the standard library's own bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajsoup.core.recipe import Recipe
from trajsoup.lm.job import BranchJob, TokenFile, fork_point_digest

VOCAB = 257  # bytes, and end of text
END = 256
SEQUENCE = 32
TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "n_routed_experts": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSet:
    """The interface of trajsoup.lm.corpus.TokenSet."""

    tokens: Any
    starts: Any
    digest: str


def byte_tokens(modules: tuple[str, ...] = ("json/decoder.py", "textwrap.py", "heapq.py")) -> TokenSet:
    """The bytes of some library sources, one document each."""
    root = Path(json.__file__).parent.parent
    documents = [np.frombuffer((root / name).read_bytes(), np.uint8).astype(np.uint16) for name in modules]
    parts = [part for d in documents for part in (d, np.array([END], np.uint16))]
    tokens = np.concatenate(parts)
    starts = np.cumsum([0, *(len(d) + 1 for d in documents)])
    return TokenSet(tokens=tokens, starts=starts, digest=hashlib.sha256(tokens.tobytes()).hexdigest())


def make_fork_point(folder: Path, **changes: Any) -> Path:
    """Save a freshly initialised tiny model."""
    from trajsoup.lm.models import embedded_config, new_model

    config = embedded_config(vocab_size=VOCAB, end_of_text=END, sequence_length=SEQUENCE, changes={**TINY, **changes})
    new_model(config, seed=0).save_pretrained(folder)
    return folder


def make_job(folder: Path, fork_point: Path, **changes: Any) -> BranchJob:
    """A job of 12 steps with a checkpoint every 4."""
    tokens = byte_tokens()
    path = folder.parent / "train.tokens"
    if not path.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        tokens.tokens.tofile(path)
    settings: dict[str, Any] = {
        "branch": "EXP1",
        "folder": folder,
        "fork_point": fork_point,
        "fork_point_digest": fork_point_digest(fork_point),
        "tokens": TokenFile(path=path, dtype="<u2", offset=0, length=len(tokens.tokens), digest=tokens.digest),
        "recipe": Recipe(peak_lr=1e-3, global_batch=8, momentum=0.9),
        "horizon": 12 * 8 * SEQUENCE,
        "checkpoint_every": 4 * 8 * SEQUENCE,
        "sequence_length": SEQUENCE,
        "log_every": 1,
        **changes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    return BranchJob(**settings)
