"""The same soup, byte by byte, whoever makes it."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints import write_checkpoint
from tests.ray_cluster import ray_for_tests
from trajsoup.engine import shards
from trajsoup.engine.executor import LocalExecutor
from trajsoup.errors import CheckpointError, NonfiniteError
from trajsoup.store.digest import sha256_file
from trajsoup.study.merge import explicit_row, make_soup, plan_row
from trajsoup.study.verify import verify_soup


@pytest.fixture(scope="module", params=["local", "ray"])
def executor(request):
    if request.param == "local":
        with LocalExecutor(2) as executor:
            yield executor
    else:
        with ray_for_tests(workers=2) as executor:
            yield executor


def plan_of(folder, *, files=3, **options):
    for i in range(3):
        rng = np.random.default_rng(i)
        tensors = {f"t{j}": rng.normal(size=(20_000 + j, 2)).astype(np.float16) for j in range(5)}
        tensors |= {"steps": np.arange(3), "bias": rng.normal(size=7)}
        write_checkpoint(folder / f"c{i}", tensors, shards=files, config={}, files={"tokenizer.json": "{}"})
    row = explicit_row([(str(folder / f"c{i}"), w) for i, w in enumerate((0.5, 0.25, 0.25))])
    return plan_row(row, **options)


def everything(folder):
    return {p.relative_to(folder).as_posix(): sha256_file(p) for p in Path(folder).rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("files", "shard_bytes"), [(3, None), (1, None), (3, 100_000)], ids=["shards", "one file", "other shards"]
)
def test_many_workers_make_the_bytes_of_one(executor, tmp_path, monkeypatch, files, shard_bytes):
    plan = plan_of(tmp_path, files=files, shard_bytes=shard_bytes)
    make_soup(plan, tmp_path / "alone")
    make_soup(plan, tmp_path / "together", executor=executor)
    assert everything(tmp_path / "together") == everything(tmp_path / "alone")
    verify_soup(tmp_path / "together", full=True)


def test_stretches_of_one_file_make_the_same_bytes(executor, tmp_path):
    plan = plan_of(tmp_path, files=1)
    make_soup(plan, tmp_path / "alone")
    folder = tmp_path / "stretches"
    folder.mkdir()
    arguments = {"layout": plan.layout, "executor": executor, "stretch_bytes": 50_000}
    _, files = shards.blend_shards(plan.checkpoints, plan.row, folder, **arguments)
    assert files == {"model.safetensors": sha256_file(tmp_path / "alone" / "model.safetensors")}
    assert sha256_file(folder / "model.safetensors") == files["model.safetensors"]


def test_a_damaged_ingredient_stops_the_work_and_leaves_nothing(executor, tmp_path):
    plan = plan_of(tmp_path)
    bad = plan.template.tensors["t3"]
    with plan.checkpoints[str(tmp_path / "c1")].files[bad[0]].open("r+b") as file:
        file.seek(bad[1].offset)
        file.write(b"\x00\x7e")  # NaN
    with pytest.raises(NonfiniteError, match="'t3' holds NaN"):
        make_soup(plan, tmp_path / "out", executor=executor)
    assert [p.name for p in tmp_path.iterdir() if "out" in p.name] == []


def test_a_checkpoint_deleted_while_in_use_is_named(executor, tmp_path):
    plan = plan_of(tmp_path)
    for path in (tmp_path / "c2").iterdir():
        path.unlink()
    with pytest.raises(CheckpointError, match="c2"):
        make_soup(plan, tmp_path / "out", executor=executor)
    assert not (tmp_path / "out").exists()


def die_then_run(task):
    """Die half-way through the first attempt at the second file."""
    mark = Path(str(task.folder)).parent / "died"
    if "00002" in task.layout.files[0].name and not mark.exists():
        mark.touch()
        (task.folder / f".{task.layout.files[0].name}.half").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return shards.run_shard(task)


def test_a_worker_killed_during_a_blend_changes_no_byte(executor, tmp_path, monkeypatch):
    plan = plan_of(tmp_path)
    make_soup(plan, tmp_path / "alone", digest=False)
    folder = tmp_path / "work"
    folder.mkdir()
    tasks = shards.shard_tasks(
        dict(sorted(plan.checkpoints.items())),
        plan.row,
        folder,
        layout=plan.layout,
        exact_from=None,
        digest=True,
        stretch_bytes=shards.STRETCH_BYTES,
        options=shards.Options(),
    )
    executor.map(die_then_run, tasks)
    assert (tmp_path / "died").exists()
    for file in plan.layout.files:
        assert sha256_file(folder / file.name) == sha256_file(tmp_path / "alone" / file.name)
