"""A merge of torch DCP checkpoints, side by side with the same weights in safetensors, and with dcp.load and a mean in torch.

    python benchmarks/formats.py --count 8 --gigabytes 1

Two gloo ranks write each checkpoint (Shard(0)). Runs alternate, so that a noisy neighbour meets all of them; besides seconds
the processor time is compared, which a busy machine disturbs least.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from checkpoints import make_checkpoints
from machine import warm, watching_memory

HERE = Path(__file__).parent
OURS = [str(Path(sys.executable).with_name("trajsoup")), "merge"]
IN_TORCH = """
import sys
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint import FileSystemReader
out, *folders = sys.argv[1:]
listed = FileSystemReader(folders[0]).read_metadata().state_dict_metadata
state = {name: torch.empty(m.size, dtype=m.properties.dtype) for name, m in listed.items()}
total = {name: torch.zeros(t.shape, dtype=torch.float32) for name, t in state.items()}
for folder in folders:
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    for name, tensor in state.items():
        total[name] += tensor
save_file({name: (t / len(folders)).to(state[name].dtype) for name, t in total.items()}, out)
"""


class Run(NamedTuple):
    seconds: float
    processor: float
    peak_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE / ".data", help="where checkpoints and outputs go")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of each checkpoint")
    parser.add_argument("--vocab", type=int, default=32000, help="smaller, for checkpoints below 0.4 GB")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    args.root.mkdir(parents=True, exist_ok=True)
    nbytes = int(args.gigabytes * 1e9)
    plain = make_checkpoints(args.root, count=args.count, checkpoint_bytes=nbytes, shards=2, vocab=args.vocab)
    sharded = [path.parent / f"dcp-{path.name}" for path in plain]
    _make_dcp(plain, sharded)
    size = sum(file.stat().st_size for file in plain[0].glob("*.safetensors"))
    print(
        f"{args.count} checkpoints of {size / 1e9:.2f} GB, two ranks each, warm, whole commands, median of {args.repeat}"
    )
    print(f"load {os.getloadavg()[0]:.1f} at the start, {os.cpu_count()} cores\n")
    out = args.root / "out"
    commands = {
        "safetensors": [*OURS, *map(str, plain), "--no-hash", "-o", str(out)],
        "DCP": [*OURS, *map(str, sharded), "--no-hash", "-o", str(out)],
        "torch": [sys.executable, "-c", IN_TORCH, str(out), *map(str, sharded)],
    }
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(args.repeat):
        for name, command in commands.items():
            warm([file for path in (plain if name == "safetensors" else sharded) for file in path.iterdir()])
            _remove(out)
            runs[name].append(_timed(command))
            print(
                f"{name:12} {runs[name][-1].seconds:8.2f} s  {runs[name][-1].processor:8.2f} s of processor time",
                flush=True,
            )
    _remove(out)
    _show(runs)


def _show(runs: dict[str, list[Run]]) -> None:
    def middle(name: str, what: str) -> float:
        return statistics.median(getattr(run, what) for run in runs[name])

    print("\n| figure | seconds | processor time | target |\n|---|---|---|---|")
    for name, other, target in (("safetensors", "DCP", 0.9), ("torch", "DCP", 4.0)):
        said = {"safetensors": "DCP over the same in safetensors", "torch": "DCP over dcp.load and a mean in torch"}[
            name
        ]
        ratios = [middle(name, what) / middle(other, what) for what in ("seconds", "processor")]
        print(f"| {said} | {ratios[0]:.2f}x | {ratios[1]:.2f}x | >= {target:g}x |")
    peaks = {name: max(run.peak_bytes for run in found) for name, found in runs.items()}
    print(f"\n| peak anonymous memory | MiB | target |\n|---|---|---|\n| DCP | {peaks['DCP'] / 2**20:.0f} | <= 300 |")
    print(f"| safetensors | {peaks['safetensors'] / 2**20:.0f} | |")
    print(f"| torch | {peaks['torch'] / 2**20:.0f} ({peaks['torch'] / peaks['DCP']:.1f} times DCP's) | >= 10 times |")


def _timed(command: list[str]) -> Run:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with watching_memory(process) as peak:
        _, error = process.communicate()
    seconds = time.perf_counter() - begin
    if process.returncode:
        sys.exit(f"{command[:3]} failed: {error.decode()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak[0])


def _remove(out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.unlink(missing_ok=True)


def _make_dcp(plain: list[Path], sharded: list[Path]) -> None:
    """Write with two gloo ranks what the safetensors folders hold, where that is not done yet."""
    missing = [(str(a), str(b)) for a, b in zip(plain, sharded, strict=True) if not (b / ".metadata").exists()]
    if not missing:
        return
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_rank, (f"file://{folder}/rendezvous", missing), nprocs=2, start_method="fork")


def _rank(rank: int, rendezvous: str, folders: list[tuple[str, str]]) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from safetensors import safe_open
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for source, target in folders:
        state = {}
        for file in sorted(Path(source).glob("*.safetensors")):
            with safe_open(file, "pt") as weights:
                for name in weights.keys():  # noqa: SIM118
                    half = weights.get_tensor(name).chunk(2)[rank].contiguous()
                    state[name] = DTensor.from_local(half, mesh, [Shard(0)], run_check=False)
        dcp.save(state, checkpoint_id=target)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
