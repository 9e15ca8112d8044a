"""Checkpoints laid out as nanotron, DeepSpeed and Orbax lay them out, written without them.

The peers' own writers are in tests/peers; these follow what they wrote, file by file and key by key.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

Tensors = Mapping[str, torch.Tensor]


def weights(seed: int, *, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    shapes = {
        "decoder.0.mlp.gate_up_proj.weight": (12, 5),
        "decoder.0.mlp.down_proj.weight": (5, 6),
        "decoder.0.norm.weight": (5,),
        "embed.weight": (14, 5),
    }
    return {name: torch.randn(shape, generator=chance).to(dtype) for name, shape in shapes.items()}


def write_nanotron(folder: Path, tensors: Tensors, *, ranks: int = 2) -> Path:
    """Tensor-parallel as its layers are: fused gate and up in two chunks by rows, down by columns, norms whole."""
    for name, tensor in tensors.items():
        *outer, last = name.split(".")
        inner = folder.joinpath("model", *outer)
        inner.mkdir(parents=True, exist_ok=True)
        if tensor.dim() == 1 or ranks == 1:
            save_file({"data": tensor}, inner / f"model_{last}.safetensors")
            continue
        axis, chunks = (0, 2) if "gate_up" in name else (1 if "down" in name else 0, 1)
        for rank in range(ranks):
            size = tensor.shape[axis] // chunks
            each = size // ranks
            parts, pairs = [], []
            for chunk in range(chunks):
                begin = chunk * size + rank * each
                parts.append(tensor.narrow(axis, begin, each))
                local = _slices(tensor.dim(), axis, chunk * each, (chunk + 1) * each)
                pairs.append(f"{local}#{_slices(tensor.dim(), axis, begin, begin + each)}")
            metadata = {
                "version": "1.4",
                "local_global_slices_pairs": ";".join(pairs),
                "unsharded_shape": str(tuple(tensor.shape)),
            }
            file = inner / f"model_{last}_pp-rank-0-of-1_tp-rank-{rank}-of-{ranks}.safetensors"
            save_file({"data": torch.cat(parts, axis).contiguous()}, file, metadata=metadata)
    for name in ("optimizer", "lr_scheduler", "random"):
        (folder / name).mkdir()
    (folder / "optimizer" / "optimizer_config.json").write_text("{}")
    (folder / "model_config.json").write_text("{}")
    meta = {"version": "1.4", "tp": ranks, "dp": 1, "metas": {"last_train_step": 1}}
    (folder / "checkpoint_metadata.json").write_text(json.dumps(meta))
    return folder


def _slices(axes: int, axis: int, begin: int, end: int) -> str:
    return "|".join(f"{begin},{end},None" if k == axis else "None,None,None" for k in range(axes))


def write_zero(
    folder: Path,
    tensors: Tensors,
    *,
    stage: int,
    ranks: int = 2,
    buffers: Tensors | None = None,
    frozen: Tensors | None = None,
) -> Path:
    """Two groups of parameters, flattened and cut as DeepSpeed does it, with what it keeps beside them."""
    folder.mkdir(parents=True)
    tensors, buffers, frozen = dict(tensors), dict(buffers or {}), dict(frozen or {})
    groups = [{n: t for n, t in tensors.items() if (t.dim() > 1) is matrix} for matrix in (True, False)]
    shapes = [OrderedDict((name, t.shape) for name, t in group.items()) for group in groups]
    for rank in range(ranks):
        fragments = {n: _part(t, rank, ranks) if stage == 3 else t for n, t in frozen.items()}
        state: dict[str, Any] = {
            "module": OrderedDict(
                {**({} if stage == 3 else {n: t.bfloat16() for n, t in (tensors | frozen).items()}), **buffers}
            ),
            "buffer_names": list(buffers),
            "optimizer": None,
            "param_shapes": shapes,
            "frozen_param_shapes": (OrderedDict((n, t.shape) for n, t in frozen.items()) or None)
            if stage > 1
            else None,
            "frozen_param_fragments": (OrderedDict(fragments) or None) if stage > 1 else None,
            "shared_params": {"head.weight": "embed.weight"},
            "lr_scheduler": None,
            "global_steps": 1,
            "dp_world_size": ranks,
            "ds_config": {"zero_optimization": {"stage": stage}},
            "ds_version": "0.19.8",
        }
        if stage == 3:
            torch.save(state, folder / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        elif rank == 0:
            torch.save(state, folder / "mp_rank_00_model_states.pt")
        if stage == 3:
            flat = [torch.cat([_part(t, rank, ranks) for t in group.values()]) for group in groups]
            for one in flat:
                one.ds_numel = len(one)  # type: ignore[attr-defined]  # with an attribute it is pickled in another way
            own: dict[str, Any] = {"fp32_flat_groups": flat}
        else:
            flat = [_cut(torch.cat([t.flatten() for t in group.values()]), rank, ranks) for group in groups]
            own = {"single_partition_of_fp32_groups": flat}
        moments = {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": []}
        state = {
            "optimizer_state_dict": {
                "zero_stage": stage,
                "partition_count": ranks if stage == 3 else [ranks] * len(groups),
                "base_optimizer_state": moments,
                **own,
            },
            "ds_version": "0.19.8",
        }
        torch.save(state, folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    return folder


def _part(tensor: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """Stage 3: every tensor padded to whole parts."""
    flat = tensor.flatten()
    each = math.ceil(len(flat) / ranks)
    return torch.nn.functional.pad(flat, (0, each * ranks - len(flat)))[rank * each : (rank + 1) * each].clone()


def _cut(flat: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """Stages 1 and 2: a group padded to a multiple of twice the ranks."""
    align = 2 * ranks
    padded = torch.nn.functional.pad(flat, (0, -len(flat) % align))
    each = len(padded) // ranks
    return padded[rank * each : (rank + 1) * each].clone()


def write_orbax(
    folder: Path, tensors: Tensors, *, ocdbt: bool = True, zarr3: bool = False, prefix: Sequence[str] = ("params",)
) -> Path:
    """By tensorstore, as Orbax calls it: chunks of at most half of the first axis, zstd."""
    import tensorstore as ts

    folder.mkdir(parents=True)
    state = {**{(*prefix, *n.split(".")): t for n, t in tensors.items()}, ("opt_state", "mu", "x"): torch.zeros(3)}
    listed: dict[str, Any] = {}
    for keys, tensor in state.items():
        array = tensor.view(torch.int16).numpy().view("V2") if tensor.dtype is torch.bfloat16 else tensor.numpy()
        kind = "bfloat16" if tensor.dtype is torch.bfloat16 else str(array.dtype)
        chunk = [max(-(-tensor.shape[0] // 2), 1), *tensor.shape[1:]]
        name = ".".join(keys)
        base: dict[str, Any] = {"driver": "ocdbt", "base": f"file://{folder}/", "path": f"{name}/"}
        spec: dict[str, Any] = {
            "driver": "zarr3" if zarr3 else "zarr",
            "kvstore": base if ocdbt else {"driver": "file", "path": f"{folder}/{name}/"},
        }
        if zarr3:
            grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
            spec["metadata"] = {
                "shape": list(tensor.shape),
                "chunk_grid": grid,
                "data_type": kind,
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}],
            }
        else:
            spec["dtype"] = kind
            spec["metadata"] = {"shape": list(tensor.shape), "chunks": chunk, "compressor": {"id": "zstd", "level": 1}}
        opened = ts.open(spec, create=True, open=True).result()
        opened.write(np.asarray(array).view(opened.dtype.numpy_dtype)).result()
        keys_said = [{"key": key, "key_type": 2} for key in keys]
        value = {"value_type": "jax.Array", "skip_deserialize": False, "write_shape": chunk}
        listed[str(keys)] = {"key_metadata": keys_said, "value_metadata": value}
    metadata = {"tree_metadata": listed, "use_ocdbt": ocdbt, "use_zarr3": zarr3}
    (folder / "_METADATA").write_text(json.dumps(metadata | {"store_array_data_equal_to_fill_value": True}))
    return folder
