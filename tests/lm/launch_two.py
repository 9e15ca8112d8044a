"""A launcher for tests: `python launch_two.py RENDEZVOUS -m MODULE ARGUMENT...` runs the module in two processes.

As torchrun does, but on the loopback interface alone: the two meet through a file. They are forks of this process, which
has imported for both what takes long to import.
"""

import os
import sys

RENDEZVOUS, MODULE, ARGUMENTS = sys.argv[1], sys.argv[3], sys.argv[4:]


def run(rank, rendezvous, module, arguments):
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "GLOO_SOCKET_IFNAME": "lo", "ACCELERATE_USE_CPU": "true",
    }  # fmt: skip
    import importlib

    import torch

    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    try:
        sys.exit(importlib.import_module(module).main(arguments))
    finally:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    import torch.distributed.fsdp
    import torch.multiprocessing
    import transformers.models.deepseek_v3.modeling_deepseek_v3  # noqa: F401

    import trajsoup.lm.train  # noqa: F401

    torch.multiprocessing.start_processes(run, args=(RENDEZVOUS, MODULE, ARGUMENTS), nprocs=2, start_method="fork")
