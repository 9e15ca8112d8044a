"""Run in an environment with megatron-core: write torch_dist checkpoints with two ranks, or load one. Not a test module.

python megatron_checkpoints.py save FOLDER      FOLDER/iter_000000{1,2}, and the same weights as {1,2}.pt beside it
python megatron_checkpoints.py load FOLDER OUT  what two ranks load from FOLDER, put together, as OUT; `resume`: with the
optimizer's state and the iteration
"""

import sys
import warnings
from pathlib import Path

import torch
from megatron.core import dist_checkpointing, parallel_state  # once, before the ranks fork
from megatron.core.dist_checkpointing import ShardedTensor
from megatron.core.dist_checkpointing.mapping import ShardedObject

from tests.training_checkpoints import on_two_ranks

FC1, FC2, NORM = (
    "decoder.layers.mlp.linear_fc1.weight",
    "decoder.layers.mlp.linear_fc2.weight",
    "decoder.final_layernorm.weight",
)


def weights(seed):
    chance = torch.Generator().manual_seed(seed)
    return {
        FC1: torch.randn(2, 8, 6, generator=chance).bfloat16(),
        FC2: torch.randn(2, 6, 8, generator=chance).bfloat16(),
        NORM: torch.randn(6, generator=chance),
    }


def sharded(full, rank, world):
    """Layers stacked along axis 0, cut over ranks along rows and along columns; an object for each layer; optimizer state."""
    found = {}
    for layer in range(2):
        rows = full[FC1][layer].chunk(world, 0)[rank].contiguous()
        columns = full[FC2][layer].chunk(world, 1)[rank].contiguous()
        at = ((0, layer, 2),)
        found[f"r{layer}"] = ShardedTensor.from_rank_offsets(FC1, rows, *at, (1, rank, world), prepend_axis_num=1)
        found[f"c{layer}"] = ShardedTensor.from_rank_offsets(FC2, columns, *at, (2, rank, world), prepend_axis_num=1)
        extra = "decoder.layers.mlp.linear_fc1._extra_state"
        found[f"x{layer}"] = ShardedObject(extra, b"extra", (2, world), (layer, rank))
    found["norm"] = ShardedTensor.from_rank_offsets(NORM, full[NORM], replica_id=rank)
    return found


def moment(rank, value):
    """State of the optimizer."""
    return ShardedTensor.from_rank_offsets(f"optimizer.state.exp_avg.{NORM}", torch.full((6,), value), replica_id=rank)


def work(rank, command, folder, out):
    warnings.simplefilter("ignore")
    torch.cuda.synchronize = lambda *_: None  # as NVIDIA's own tests do on a CPU
    torch.cuda.current_device = lambda: "cpu"
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    if command == "save":
        for seed in (1, 2):
            state = sharded(weights(seed), rank, 2) | {"moment": moment(rank, float(seed)), "iteration": seed}
            path = Path(folder) / f"iter_{seed:07d}"
            path.mkdir(exist_ok=True)
            dist_checkpointing.save(state, str(path))
        return
    empty = {name: torch.zeros_like(tensor) for name, tensor in weights(1).items()}
    state = sharded(empty, rank, 2) | ({"moment": moment(rank, 0.0)} if command == "resume" else {})
    found = dist_checkpointing.load(state, folder)
    kept = {key: value for key, value in found.items() if torch.is_tensor(value)}
    torch.save(kept | {"iteration": found.get("iteration")}, f"{out}.{rank}")


def main(command, folder, out=None):
    Path(folder).mkdir(parents=True, exist_ok=True)
    on_two_ranks(work, command, folder, out)
    if command == "save":
        for seed in (1, 2):
            torch.save(weights(seed), Path(folder).parent / f"{seed}.pt")
        return
    parts = [torch.load(f"{out}.{rank}") for rank in range(2)]
    whole = {
        FC1: torch.stack([torch.cat([p[f"r{i}"].reshape(4, 6) for p in parts]) for i in range(2)]),
        FC2: torch.stack([torch.cat([p[f"c{i}"].reshape(6, 4) for p in parts], dim=1) for i in range(2)]),
        NORM: parts[0]["norm"],
    }
    if command == "resume":
        whole |= {"moment": parts[0]["moment"], "iteration": parts[0]["iteration"]}
    torch.save(whole, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
