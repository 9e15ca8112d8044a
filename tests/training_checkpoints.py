"""Checkpoints as trainers write them, by the real writers: torch.save, torch.distributed.checkpoint with two gloo ranks."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

Tensors = Mapping[str, torch.Tensor]


def on_two_ranks(work: Callable[..., None], *args: Any) -> None:
    """Call `work(rank, *args)` in two forks of this process that share a gloo group over loopback."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_member, (work, f"file://{folder}/rendezvous", args), nprocs=2, start_method="fork")


def _member(rank: int, work: Callable[..., None], rendezvous: str, args: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    try:
        work(rank, *args)
    finally:
        dist.destroy_process_group()


def sharded(tensors: Tensors, *, axis: int) -> dict[str, torch.Tensor]:
    """Each tensor over two ranks along an axis, or its last; scalars stay whole."""
    mesh = init_device_mesh("cpu", (2,))
    return {
        name: distribute_tensor(t.clone(), mesh, [Shard(min(axis, t.dim() - 1))]) if t.dim() else t
        for name, t in tensors.items()
    }


def training_state(model: Tensors, *, step: int) -> dict[str, Any]:
    """What a training script saves: the model among optimizer state and counters."""
    moments = {name: {"exp_avg": t * 0, "step": torch.tensor(float(step))} for name, t in model.items()}
    return {
        "model": dict(model),
        "optimizer": {"state": moments, "param_groups": [{"lr": 0.1, "params": list(model)}]},
        "lr_scheduler": {"last_epoch": step},
        "step": torch.tensor(step),
    }


def _two_rank_folders(rank: int, folder: Path, weights: Mapping[int, Tensors]) -> None:
    for seed, tensors in weights.items():
        for axis in (0, 1):
            state = training_state(sharded(tensors, axis=axis), step=seed)
            dcp.save(state, checkpoint_id=folder / f"dcp{axis}" / f"step-{seed}")
        writer = dcp.HuggingFaceStorageWriter(path=str(folder / "hf" / f"step-{seed}"), save_distributed=True)
        dcp.save(sharded(tensors, axis=0), storage_writer=writer)


def write_training_checkpoints(folder: Path, weights: Mapping[int, Tensors]) -> Path:
    """Every kind of checkpoint that torch itself writes, as KIND/step-SEED, all of the same weights."""
    for kind in ("dcp0", "dcp1", "one-rank", "hf", "bin", "bin-shards", "litgpt"):
        (folder / kind).mkdir(parents=True)
    on_two_ranks(_two_rank_folders, folder, weights)
    for seed, tensors in weights.items():
        name = f"step-{seed}"
        dcp.save(dict(tensors), checkpoint_id=folder / "one-rank" / name, no_dist=True)
        for kind in ("bin", "bin-shards", "litgpt"):
            (folder / kind / name).mkdir()
        torch.save(dict(tensors), folder / "bin" / name / "pytorch_model.bin")
        torch.save({"exp_avg": torch.zeros(3)}, folder / "bin" / name / "optimizer.pt")
        torch.save(
            {"model": dict(tensors), "optimizer": {}, "iter_num": seed}, folder / "litgpt" / name / "lit_model.pth"
        )
        write_shards(folder / "bin-shards" / name, tensors)
    return folder


def write_shards(folder: Path, tensors: Tensors) -> None:
    """pytorch_model-0000N-of-00002.bin with the index that transformers used to write."""
    files = [f"pytorch_model-{i + 1:05d}-of-00002.bin" for i in range(2)]
    for i, file in enumerate(files):
        torch.save({name: tensors[name] for name in list(tensors)[i::2]}, folder / file)
    weight_map = {name: files[i % 2] for i, name in enumerate(tensors)}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
