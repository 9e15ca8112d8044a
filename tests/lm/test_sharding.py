"""Two processes on one branch give the curve of one. Gloo on the loopback interface, rendezvous through a file."""

import json
import os

import pytest
import torch

from tests.lm.stand_in import make_job
from trajsoup.core.recipe import Optimizer, Recipe
from trajsoup.errors import TrainError
from trajsoup.lm.job import Sharding, read_job

pytestmark = pytest.mark.slow


def train_as_one_of_two(rank, rendezvous, record):
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "GLOO_SOCKET_IFNAME": "lo", "ACCELERATE_USE_CPU": "true",
    }  # fmt: skip
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    from trajsoup.lm.train import train_branch

    try:
        train_branch(read_job(record))
    finally:
        torch.distributed.destroy_process_group()


def run_two(job, tmp_path, name):
    job.write()
    torch.multiprocessing.spawn(
        train_as_one_of_two, args=(str(tmp_path / f"rendezvous-{name}"), job.folder / "branch.json"), nprocs=2
    )


def curve(folder):
    return [json.loads(line)["train_loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("sharding", "optimizer", "tolerance"),
    [
        (Sharding.FSDP2, Optimizer.ADAMW, 1e-5),
        (Sharding.FSDP2, Optimizer.MUON, 5e-5),  # its bf16 iteration rounds differently in parts
        (Sharding.DDP, Optimizer.ADAMW, 1e-5),
    ],
)
def test_two_processes_have_the_loss_curve_of_one(tmp_path, fork_point, sharding, optimizer, tolerance):
    from trajsoup.lm.train import train_branch
    from trajsoup.store.checkpoint import open_checkpoint, require_same

    recipe = Recipe(optimizer=optimizer, peak_lr=1e-3, global_batch=8, momentum=0.9)
    alone = make_job(tmp_path / "alone", fork_point, recipe=recipe)
    train_branch(alone)
    both = make_job(tmp_path / "both", fork_point, recipe=recipe, sharding=sharding, micro_batch=2)
    run_two(both, tmp_path, "first")
    assert curve(both.folder) == pytest.approx(curve(alone.folder), rel=tolerance)
    require_same(open_checkpoint(alone.folder / "checkpoint-12"), open_checkpoint(both.folder / "checkpoint-12"))


def test_a_sharded_branch_resumes_to_the_same_weights(tmp_path, fork_point):
    from safetensors.torch import load_file

    settings = {"recipe": Recipe(peak_lr=1e-3, global_batch=8, momentum=0.9), "sharding": Sharding.FSDP2}
    straight = make_job(tmp_path / "straight", fork_point, **settings)
    run_two(straight, tmp_path, "straight")
    parts = make_job(tmp_path / "parts", fork_point, **settings)
    run_two(make_job(parts.folder, fork_point, **settings, horizon=2048), tmp_path, "half")
    (parts.folder / "branch.json").unlink()
    run_two(parts, tmp_path, "rest")
    a, b = (load_file(j.folder / "checkpoint-12" / "model.safetensors") for j in (straight, parts))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_state_of_two_processes_is_not_resumed_by_one(tmp_path, fork_point):
    from trajsoup.lm.train import train_branch

    job = make_job(tmp_path / "both", fork_point, sharding=Sharding.FSDP2, horizon=1024)
    run_two(job, tmp_path, "both")
    with pytest.raises(TrainError, match="written by 2 processes"):
        train_branch(job)
