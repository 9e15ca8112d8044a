"""A study over runs that numpy makes, on a corpus that numpy makes: the same on every machine but for rounding.

python -m tests.golden.study    writes what the records say now; a change of the numbers must be meant
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tests.lm.stand_in import END, VOCAB, make_fork_point

GOLDEN = Path(__file__).with_name("records.json")
SETTINGS = """
corpus: {train: documents.txt}
evaluate: {baseline: run0, validation_tokens: 3k,
           test_tokens: 3k, probe_tokens: 1k, ks: [1, 2, 4], horizons: 2, resamples: 100, tolerance: 0.5}
sweeps: paper
"""
KEPT = {  # of every record: what says which model was made of what, and how it scored
    "screen": ("baseline", "tolerance", "verdicts"),
    "rows": ("rows",),
    "evaluations": ("evaluations",),
    "comparisons": ("comparisons", "ties"),
    "geometry": ("cosines", "pairs", "paths", "directions", "plane_variance_share"),
    "theory": ("counts", "cells", "soups", "best", "held_out"),
    "frontier": ("points", "laws", "annotations"),
}
NOT_NUMBERS = ("question", "matched", "label", "name", "title", "completion", "words", "kept", "p", "p_holm")


def _corpus(folder: Path) -> Any:
    from trajsoup.lm.corpus import Corpus, TokenSet

    rng = np.random.default_rng(7)
    words = [rng.integers(97, 123, size=rng.integers(2, 9)).astype(np.uint16) for _ in range(60)]

    def made(documents: int) -> TokenSet:
        parts: list[np.ndarray] = []
        for _ in range(documents):
            chosen = [part for i in rng.zipf(1.4, size=20) % 60 for part in (words[i], np.array([32], np.uint16))]
            parts.append(np.append(np.concatenate(chosen), END).astype(np.uint16))
        tokens = np.concatenate(parts)
        starts = np.cumsum([0, *map(len, parts)])
        import hashlib

        return TokenSet(tokens=tokens, starts=starts, digest=hashlib.sha256(tokens.tobytes()).hexdigest())

    tokenizer = folder / "tokenizer"
    tokenizer.mkdir(parents=True, exist_ok=True)
    return Corpus(
        pretrain=made(5), train=made(40), validation=made(40), test=made(40), tokenizer=tokenizer, vocab_size=VOCAB
    )


def _write_runs(folder: Path) -> tuple[Path, list[Path]]:
    """A fork point with numpy's weights, and three branches that wander from it, each in a direction of its own."""
    fork_point = make_fork_point(folder / "fork")
    shapes = safetensors.numpy.load_file(fork_point / "model.safetensors")
    rng = np.random.default_rng(11)
    start = {n: (1 if t.ndim == 1 else 0) + rng.normal(0, 0.05, t.shape) for n, t in sorted(shapes.items())}
    _save(fork_point, start, like=fork_point)
    runs: list[Path] = []
    for branch in range(3):
        point = {name: tensor.copy() for name, tensor in start.items()}
        drift = {name: rng.normal(0, 0.002, tensor.shape) for name, tensor in start.items()}
        run = folder / f"run{branch}"
        for step in range(1, 9):
            for name in point:
                point[name] = point[name] + drift[name] + rng.normal(0, 0.004, point[name].shape)
            _save(run / f"step_{step}", point, like=fork_point)
        runs.append(run)
    return fork_point, runs


def _save(folder: Path, point: dict[str, np.ndarray], *, like: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in point.items()}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for side in like.glob("*.json"):
        if side.parent != folder:
            (folder / side.name).write_bytes(side.read_bytes())


def run_golden(folder: Path) -> Path:
    """Run the study; return the folder of its records."""
    from tests.golden.entry import run_found

    fork_point, runs = _write_runs(folder)
    return run_found(folder, fork_point, runs, settings=SETTINGS, corpus=_corpus(folder))


def said(records: Path) -> dict[str, Any]:
    """What the records say, without hashes and words."""
    found: dict[str, Any] = {}
    for name, fields in KEPT.items():
        record = json.loads((records / f"{name}.json").read_text())
        found[name] = {field: _numbers(record[field]) for field in fields}
    for path in sorted((records / "sweeps").glob("*.json")):
        record = json.loads(path.read_text())
        found[f"sweeps/{path.stem}"] = _numbers(
            {"points": record["points"], "comparisons": record["comparisons"], "x_label": record["x_label"]}
        )
    return found


def _numbers(data: Any) -> Any:
    match data:
        case dict():
            return {key: _numbers(value) for key, value in data.items() if key not in NOT_NUMBERS}
        case list():
            return [_numbers(value) for value in data]
        case float():
            return float(f"{data:.9g}")
        case _:
            return data


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        GOLDEN.write_text(json.dumps(said(run_golden(Path(temporary))), indent=None, separators=(",", ":")) + "\n")
