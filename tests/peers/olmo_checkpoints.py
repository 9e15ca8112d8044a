"""Run in an environment with OLMo-core: write checkpoints by its own checkpointer, or load one. Not a test module.

python olmo_checkpoints.py save FOLDER      FOLDER/step{1,2} of two ranks, the same weights as {1,2}.pt beside it
python olmo_checkpoints.py load FOLDER OUT  the model that two ranks load from FOLDER, and what it computes, as OUT
"""

import sys
from pathlib import Path

import torch
from olmo_core.distributed.checkpoint import load_model_and_optim_state, save_model_and_optim_state
from olmo_core.nn.transformer import TransformerConfig
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh

from tests.training_checkpoints import on_two_ranks


def config():
    return TransformerConfig.llama_like(
        d_model=32, vocab_size=64, n_layers=2, n_heads=4, n_kv_heads=2, rope_theta=10_000
    )


def sharded(seed):
    torch.manual_seed(seed)
    model = config().build(init_device="cpu")
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) * 0.2
    mesh = init_device_mesh("cpu", (2,))
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def stepped(model, value):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)
    optimizer.step()
    return optimizer


def whole(model):
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def save(rank, folder):
    for seed in (1, 2):
        model = sharded(seed)
        optimizer = stepped(model, float(seed))
        save_model_and_optim_state(f"{folder}/step{seed}/model_and_optim", model, optimizer)
        state = whole(model)
        if rank == 0:
            torch.save(dict(state), Path(folder).parent / f"{seed}.pt")


def load(rank, folder, out):
    model = sharded(3)
    optimizer = stepped(model, 0.0) if out.endswith("resumed.pt") else None
    load_model_and_optim_state(folder, model, optimizer)
    state = whole(model)
    moments = (
        {}
        if optimizer is None
        else {"moments": sum(s["exp_avg"].full_tensor().sum() for s in optimizer.state.values())}
    )
    if rank == 0:
        torch.save({"model": dict(state), **moments}, out)


def main(command, folder, out=None):
    Path(folder).mkdir(parents=True, exist_ok=True)
    if command == "save":
        on_two_ranks(save, folder)
        return
    on_two_ranks(load, folder, out)
    found = torch.load(out)
    model = config().build(init_device="cpu")
    model.load_state_dict(found["model"])
    with torch.no_grad():
        torch.save(found | {"logits": model(torch.arange(32).reshape(1, 32))}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
