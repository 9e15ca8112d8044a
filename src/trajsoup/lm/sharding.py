"""Several processes on one branch: whole copies (DDP) or parts of every tensor (FSDP2).

accelerate starts the processes and wraps DDP. It refuses FSDP for processes on CPUs, so FSDP2 is torch's `fully_shard`
on every decoder layer and the whole model: the same call on CPUs and GPUs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trajsoup.errors import TrainError
from trajsoup.lm.job import Sharding

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A model where it trains: `forward` is called, `model` owns the parameters."""

    model: PreTrainedModel
    forward: nn.Module
    sharded: bool

    @contextlib.contextmanager
    def collecting(self, *, last: bool) -> Iterator[None]:
        """Let processes exchange gradients only after the last backward pass of a step."""
        if self.sharded:
            self.forward.set_requires_gradient_sync(last)  # type: ignore[operator]
            yield
        elif isinstance(self.forward, nn.parallel.DistributedDataParallel) and not last:
            with self.forward.no_sync():
                yield
        else:
            yield

    def full_weights(self) -> dict[str, Any] | None:
        """Whole tensors for a checkpoint, collected on the main process; None: the model holds them itself."""
        if not self.sharded:
            return None
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        return get_model_state_dict(self.forward, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def place(model: PreTrainedModel, *, accelerator: Accelerator, sharding: Sharding) -> Placed:
    """Put the model on its device and spread it over the processes."""
    if accelerator.num_processes == 1:
        return Placed(model=model, forward=accelerator.prepare(model), sharded=False)
    if sharding is Sharding.DDP:
        return Placed(model=model, forward=accelerator.prepare(model), sharded=False)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model.to(accelerator.device)
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    for layer in _decoder_layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return Placed(model=model, forward=model, sharded=True)


def clip_gradients(parameters: list[nn.Parameter], *, clip: float) -> float:
    """Scale gradients to at most this norm, over all processes; return the norm before."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, clip)
    whole = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # type: ignore[operator]
    return float(whole)


def _decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    layers = next((list(m) for m in lists if len(m) == model.config.num_hidden_layers), None)
    if layers is None:
        raise TrainError(f"{type(model).__name__} has no list of decoder layers to shard: use sharding: ddp")
    return layers
