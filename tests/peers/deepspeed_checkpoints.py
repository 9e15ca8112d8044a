"""Run in DeepSpeed's own environment: `save FOLDER STAGE` trains a tiny model on two ranks and lets DeepSpeed save it twice.

Beside every global_stepN lies stepN.pt, the weights as DeepSpeed's own zero_to_fp32 puts them together.
"""

import os
import socket
import sys
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch
import torch.multiprocessing as mp

RANKS = 2


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(13, 6)
        self.up = torch.nn.Linear(6, 9)
        self.norm = torch.nn.LayerNorm(9)
        self.down = torch.nn.Linear(9, 6, bias=False)
        self.head = torch.nn.Linear(6, 13, bias=False)
        self.head.weight = self.embed.weight  # tied
        self.frozen = torch.nn.Linear(5, 3, bias=False)
        self.frozen.weight.requires_grad_(False)
        self.register_buffer("scale", torch.arange(4.0))
        self.register_buffer("ids", torch.arange(5))

    def forward(self, ids):
        hidden = self.down(self.norm(torch.relu(self.up(self.embed(ids)))))
        return self.head(hidden).float().logsumexp(-1).mean()


def work(rank, port, folder, stage):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    import deepspeed

    # gloo does it; the faster way would be compiled first (deepspeed.comm.torch, as an attribute, is torch itself)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = Tiny()
    groups = [
        {"params": [p for p in model.parameters() if p.requires_grad and p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.requires_grad and p.dim() == 1], "weight_decay": 0.0},
    ]
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=1e-2), config=config)
    for step in (1, 2):
        loss = engine(torch.randint(0, 13, (2, 7), generator=torch.Generator().manual_seed(10 * step + rank)))
        engine.backward(loss)
        engine.step()
        engine.save_checkpoint(str(folder), tag=f"global_step{step}")
    torch.distributed.barrier()
    if rank == 0:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        for step in (1, 2):
            whole = get_fp32_state_dict_from_zero_checkpoint(str(folder), tag=f"global_step{step}")
            torch.save({name: t.clone() for name, t in whole.items()}, folder.parent / f"{folder.name}-step{step}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    mp.start_processes(work, (chosen, Path(sys.argv[2]), int(sys.argv[3])), nprocs=RANKS, start_method="spawn")
