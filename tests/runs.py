"""Small runs on disk: branches of one fork point with scores, as a training run leaves them."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from tests.checkpoints import write_checkpoint
from tests.exact import nearest

CONFIG = {"model_type": "toy", "hidden_size": 8, "dtype": "bfloat16"}
SIDE_FILES = {
    "tokenizer.json": '{"version": "1.0"}\n',
    "tokenizer_config.json": '{"model_max_length": 1000000000000000019884624838656}\n',  # transformers: no limit
    "chat_template.jinja": "{{ messages }}\r\nend",
    "generation_config.json": '{ "top_p":0.9}',
    "modeling_toy.py": "# custom code\n",
    "LICENSE": "Do as you like.\n",
    "assets/notes.txt": "nested",
}
TOKENS_PER_STEP = 1000


def weights(seed: int, *, away: float = 0.01) -> dict[str, torch.Tensor]:
    """The weights of a toy model near the common fork point: mostly bf16, one router bias in fp32, one integer buffer."""
    start, rng = np.random.default_rng(0), np.random.default_rng(seed)

    def drawn(*shape: int) -> torch.Tensor:
        values = start.normal(0, 0.5, shape)
        return torch.from_numpy(values + (away * rng.normal(0, 0.5, shape) if seed else 0))

    return {
        "embed.weight": drawn(40, 8).to(torch.bfloat16),
        "layers.0.gate.bias": drawn(6).to(torch.float32),
        "layers.0.position_ids": torch.arange(5),
        "layers.0.weight": drawn(300, 8).to(torch.bfloat16),
        "norm.weight": drawn(8).to(torch.bfloat16),
    }


def write_run(
    folder: Path,
    *,
    val_losses: Sequence[float],
    train_losses: Sequence[float] | None = None,
    accuracies: Sequence[float] | None = None,
    seed: int = 1,
    shards: int = 1,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Checkpoints 10, 20, ... with a metrics.csv. Without training losses, 2.0 stands everywhere."""
    folder.mkdir(parents=True)
    with (folder / "metrics.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["step", "tokens", "train_loss", "val_loss", *(["accuracy"] if accuracies else [])])
        for i, val_loss in enumerate(val_losses):
            step = 10 * (i + 1)
            tensors = weights(1000 * seed + i + 1)
            write_checkpoint(
                folder / f"checkpoint-{step}", tensors, shards=shards, config=CONFIG, files=files or SIDE_FILES
            )
            row = [step, step * TOKENS_PER_STEP, train_losses[i] if train_losses else 2.0, val_loss]
            table.writerow([*row, *([accuracies[i]] if accuracies else [])])
    return folder


def fork_point(folder: Path) -> Path:
    """The checkpoint that all these runs started from."""
    return write_checkpoint(folder, weights(0), config=CONFIG, files=SIDE_FILES)


def load(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint folder, by the real library."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= safetensors.torch.load_file(file)
    return found


def average(folders: Mapping[Path, float]) -> dict[str, torch.Tensor]:
    """The weighted sum in fp64, rounded once to each tensor's own dtype; integers are copied."""
    loaded = {folder: load(folder) for folder in folders}
    return {
        name: rounded(sum(w * loaded[f][name].double() for f, w in folders.items()), tensor.dtype)  # type: ignore[arg-type]
        if tensor.is_floating_point()
        else tensor
        for name, tensor in next(iter(loaded.values())).items()
    }


def mean(*folders: Path, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """The plain mean as torch computes it: summed in fp32 (fp64 for fp32 tensors), divided once, rounded once."""
    loaded = [load(folder) for folder in folders]
    found: dict[str, torch.Tensor] = {}
    for name, tensor in loaded[0].items():
        if not tensor.is_floating_point():
            found[name] = tensor
            continue
        wide = torch.float64 if tensor.dtype is torch.float32 else torch.float32
        total = torch.stack([one[name].to(wide) for one in loaded]).sum(dim=0) / len(loaded)
        found[name] = (
            rounded(total, dtype or tensor.dtype) if wide is torch.float64 else total.to(dtype or tensor.dtype)
        )
    return found


def rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round fp64 once: torch goes from fp64 to 16 bits by way of fp32, which rounds twice."""
    kind = {torch.bfloat16: "BF16", torch.float16: "F16"}.get(dtype)
    if kind is None:
        return tensor.to(dtype)
    bits = [nearest(Fraction(value), kind) for value in tensor.flatten().tolist()]
    return torch.from_numpy(np.array(bits, np.uint16).view(np.int16)).view(dtype).reshape(tensor.shape)


def equal(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> bool:
    """Whether two checkpoints have the same names, dtypes and bits."""
    return a.keys() == b.keys() and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


def fingerprint(folder: Path) -> dict[str, str]:
    """The sha256 of every file below a folder: equal before and after, nothing was touched."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def three_runs(folder: Path) -> Path:
    """EXP1 (the baseline), EXP2 (sharded) and EXP3, whose training loss is 5 % too high; `base` is the fork point.

    The two best checkpoints of EXP1 are 30 and 20 by loss, 40 and 30 by accuracy; of EXP2 40 and 10, and 10 and 20.
    """
    fork_point(folder / "base")
    falling = [2.5, 2.4, 2.3, 2.2]
    write_run(
        folder / "EXP1",
        val_losses=[2.4, 2.2, 2.1, 2.3],
        train_losses=falling,
        accuracies=[0.1, 0.2, 0.3, 0.4],
        seed=1,
    )
    write_run(
        folder / "EXP2",
        val_losses=[2.15, 2.35, 2.25, 2.05],
        train_losses=falling,
        accuracies=[0.4, 0.35, 0.2, 0.1],
        seed=2,
        shards=2,
    )
    write_run(
        folder / "EXP3",
        val_losses=[2.0, 2.0, 2.0, 2.0],
        train_losses=[1.05 * loss for loss in falling],
        accuracies=[0.5, 0.5, 0.5, 0.5],
        seed=3,
    )
    return folder
