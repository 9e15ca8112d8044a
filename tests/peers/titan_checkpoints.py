"""Run in an environment with torchtitan: write checkpoints by its own manager, or resume from one. Not a test module.

python titan_checkpoints.py save FOLDER        FOLDER/checkpoint/step-{1,2} of two ranks, the same weights as {1,2}.pt
python titan_checkpoints.py resume FOLDER OUT  what two ranks hold after resuming from FOLDER/checkpoint/step-3, as OUT,
with the model as torchtitan itself tells it to Hugging Face
"""

import sys
from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh
from torchtitan.components.checkpointer.base import ModelWrapper
from torchtitan.components.checkpointer.dcp import CheckpointManager
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.models.llama3 import llama3_configs
from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter

from tests.training_checkpoints import on_two_ranks


class Counter:
    """What torchtitan keeps beside the model: the step."""

    def __init__(self, step):
        self.step = step

    def state_dict(self):
        return {"step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        self.step = int(state["step"])


def config():
    return llama3_configs["debugmodel"](attn_backend="flex")


def trainer(folder, seed):
    torch.manual_seed(seed)
    model = config().build()
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) * 0.1
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizers = default_adamw(lr=1e-3).build(model_parts=[model])
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float(seed))
    optimizers.step()
    schedulers = LRSchedulersContainer.Config(warmup_steps=5).build(optimizers=optimizers, training_steps=10)
    counter = Counter(seed)
    manager = CheckpointManager(
        CheckpointManager.Config(enable=True, interval=1, keep_latest_k=0),
        dataloader=None,
        model_parts=[model],
        optimizers=optimizers,
        lr_schedulers=schedulers,
        states={"train_state": counter},
        sd_adapter=None,
        base_folder=folder,
    )
    return model, optimizers, counter, manager


def whole(model):
    return {name: t.full_tensor() for name, t in ModelWrapper(model).state_dict().items()}


def save(rank, folder):
    for seed in (1, 2):
        model, _, _, manager = trainer(folder, seed)
        manager.save(seed)
        state = whole(model)
        if rank == 0:
            torch.save(state, Path(folder) / f"{seed}.pt")


def resume(rank, folder, out):
    model, optimizers, counter, manager = trainer(folder, 5)
    manager.load(step=3)
    moments = {key: value for key, value in optimizers.state_dict().items() if key.endswith("exp_avg")}
    state = whole(model)
    total = sum(float(t.full_tensor().double().sum()) for t in moments.values())
    count = sum(t.numel() for t in moments.values())
    if rank == 0:
        torch.save({"model": state, "step": counter.step, "moment": total / count}, out)


def main(command, folder, out=None):
    Path(folder).mkdir(parents=True, exist_ok=True)
    if command == "save":
        on_two_ranks(save, folder)
        return
    on_two_ranks(resume, folder, out)
    found = torch.load(out)
    told = Llama3StateDictAdapter(config(), None).to_hf(found["model"])
    torch.save(found | {"hf": told}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
