"""Checkpoints that Orbax itself wrote, sharded over two devices, and a log that W&B itself wrote."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.command import succeeds
from tests.runs import equal, load
from trajsoup.store.runs import scan_run
from trajsoup.store.wandb_files import read_wandb_files

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("ORBAX_PYTHON", ROOT / ".venv-orbax" / "bin" / "python"))
pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not PYTHON.exists(), reason="Orbax is not installed: `make test-peers`"),
]


def run(script, *args):
    done = subprocess.run([PYTHON, Path(__file__).with_name(script), *map(str, args)], capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


def weights(seed):
    chance = torch.Generator().manual_seed(seed)
    return {
        "decoder.layers.mlp.kernel": torch.randn(6, 40, 30, generator=chance),
        "decoder.norm.scale": torch.randn(30, generator=chance).bfloat16(),
        "token_embedder.embedding": torch.randn(64, 30, generator=chance).bfloat16(),
        "odd.bias": torch.randn(7, generator=chance),
        "count": torch.arange(4, dtype=torch.int32),
    }


@pytest.mark.parametrize("kind", ["standard", "manager", "zarr3", "plain"])
def test_the_soup_of_orbax_is_that_of_the_same_weights(tmp_path, kind):
    for seed in (1, 2):
        arrays = {
            n: t.view(torch.int16).numpy().view("u2") if t.dtype is torch.bfloat16 else t.numpy()
            for n, t in weights(seed).items()
        }
        np.savez(tmp_path / f"weights-{seed}.npz", **arrays)
        torch.save(weights(seed), tmp_path / f"{seed}.pt")
    run("orbax_checkpoints.py", tmp_path, kind)
    assert [saved.step for saved in scan_run(tmp_path / kind).checkpoints] == [1, 2]
    succeeds("merge", *(f"{tmp_path}/{kind}/{seed}=0.5" for seed in (1, 2)), "-o", tmp_path / "soup")
    succeeds("merge", *(f"{tmp_path}/{seed}.pt=0.5" for seed in (1, 2)), "-o", tmp_path / "expected")
    assert equal(load(tmp_path / "soup"), load(tmp_path / "expected"))
    succeeds("verify", tmp_path / "soup", "--full")


def test_wandbs_own_log_is_read(tmp_path):
    run("wandb_run.py", tmp_path)
    (path,) = tmp_path.rglob("*.wandb")
    rows = [(step, row["train/loss"], row["eval/loss"]) for step, row in read_wandb_files([path])]
    assert rows == [(10, 2.9, 1.9), (20, 2.8, 1.8), (30, 2.7, 1.7)]
