"""The same soup, byte by byte, whoever makes it."""

import contextlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.checkpoints import write_checkpoint
from tests.engine import shard_faults
from tests.runs import load
from trajsoup.engine import shards
from trajsoup.errors import BlendError, CheckpointError, ExecutorError, NonfiniteError, VerifyError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, explicit_row, plan_row
from trajsoup.merge.verify import read_bytes, verify_soup
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.digest import Algorithm, digest_file, sha256_file


def plan_of(folder, *, files=3, groups=None, **options):
    for i in range(3):
        rng = np.random.default_rng(i)
        tensors = {f"t{j}": rng.normal(size=(20_000 + j, 2)).astype(np.float16) for j in range(5)}
        tensors |= {"steps": np.arange(3), "bias": rng.normal(size=7)}
        write_checkpoint(folder / f"c{i}", tensors, shards=files, config={}, files={"tokenizer.json": "{}"})
    row = explicit_row([(str(folder / f"c{i}"), w) for i, w in enumerate((0.5, 0.25, 0.25))])
    if groups is not None:
        row = replace(row, groups={name: dict(zip(row.weights, ws, strict=True)) for name, ws in groups.items()})
    return plan_row(row, form=OutputForm(**options))


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


@pytest.mark.parametrize("files", [1, 3])
def test_weights_by_group_of_tensors_are_blended_verified_and_shared_alike(executor, tmp_path, files):
    groups = {"t1": (1.5, -0.25, -0.25), "t2": (1 / 3, 1 / 3, 1 / 3)}
    plan = plan_of(tmp_path, files=files, groups=groups)
    make_soup(plan, tmp_path / "alone")
    make_soup(plan, tmp_path / "together", executor=executor)
    assert everything(tmp_path / "together") == everything(tmp_path / "alone")
    rows = {name: groups.get(name, (0.5, 0.25, 0.25)) for name in ("t0", "t1", "t2", "t3", "t4", "bias")}
    inputs = [load(tmp_path / f"c{i}") for i in range(3)]
    soup = load(tmp_path / "alone")
    for name, weights in rows.items():
        wanted = sum(w * one[name].double() for w, one in zip(weights, inputs, strict=True))
        assert torch.equal(soup[name], wanted.to(soup[name].dtype)), name
    for full in (False, True):
        verify_soup(tmp_path / "together", full=full)
    record = tmp_path / "together" / "soup.json"
    record.write_text(record.read_text().replace("-0.25", "-0.2", 1).replace("-0.25", "-0.3", 1))  # the sum stays one
    with pytest.raises(VerifyError, match=r"tensor 't1' in .* is not the weighted sum"):
        verify_soup(tmp_path / "together")


def test_weights_for_a_group_that_no_tensor_is_in_are_refused(tmp_path):
    with pytest.raises(BlendError, match=r"has weights for 'layer 7', and no tensor of .*c0 is in that group"):
        plan_of(tmp_path, groups={"layer 7": (0.5, 0.25, 0.25)})


def test_stretches_of_one_file_make_the_same_bytes(executor, tmp_path):
    plan = plan_of(tmp_path, files=1)
    make_soup(plan, tmp_path / "alone")
    folder = tmp_path / "stretches"
    folder.mkdir()
    arguments = {"layout": plan.layout, "executor": executor, "stretch_bytes": 50_000}
    _, files = shards.blend_shards(plan.checkpoints, plan.row, folder, **arguments)
    assert files == {"model.safetensors": sha256_file(tmp_path / "alone" / "model.safetensors")}
    assert sha256_file(folder / "model.safetensors") == files["model.safetensors"]


@pytest.mark.parametrize("files", [1, 3])
def test_many_workers_verify_what_one_does(executor, tmp_path, files):
    make_soup(plan_of(tmp_path, files=files), tmp_path / "soup")
    read = []
    together = verify_soup(tmp_path / "soup", full=True, executor=executor, progress=read.append)
    assert together == verify_soup(tmp_path / "soup", full=True)
    assert sum(read) == read_bytes(tmp_path / "soup", full=True)
    assert verify_soup(tmp_path / "soup", executor=executor) == verify_soup(tmp_path / "soup")


def test_many_workers_find_a_changed_value_of_the_soup_and_a_changed_ingredient(executor, tmp_path):
    plan = plan_of(tmp_path)
    make_soup(plan, tmp_path / "soup", digest=None)
    soup = open_checkpoint(tmp_path / "soup")
    flip(soup, "t3")
    with pytest.raises(VerifyError, match=r"tensor 't3' in .* is not the weighted sum"):
        verify_soup(tmp_path / "soup", full=True, executor=executor)
    make_soup(plan, tmp_path / "hashed")
    flip(open_checkpoint(tmp_path / "hashed"), "t1")
    with pytest.raises(VerifyError, match=r"hashed/model-0.* has changed since the merge"):
        verify_soup(tmp_path / "hashed", executor=executor)
    make_soup(plan, tmp_path / "other")
    extra = tmp_path / "c1" / "model-00001-of-00003.safetensors"
    record = tmp_path / "other" / "soup.json"
    record.write_text(record.read_text().replace(digest_file(extra, Algorithm.BLAKE3), "0" * 64))
    with pytest.raises(VerifyError, match=r"ingredient .*c1/model-00001.* has changed since the merge"):
        verify_soup(tmp_path / "other", full=True, executor=executor)


def flip(checkpoint, tensor):
    """Change the last bit of a tensor's first value."""
    box = checkpoint.tensors[tensor].boxes[0]
    with checkpoint.files[box.file].open("r+b") as file:
        file.seek(box.offset)
        (byte,) = file.read(1)
        file.seek(box.offset)
        file.write(bytes([byte ^ 1]))


def test_a_damaged_ingredient_stops_the_work_and_leaves_nothing(executor, tmp_path):
    plan = plan_of(tmp_path)
    (bad,) = plan.template.tensors["t3"].boxes
    with plan.checkpoints[str(tmp_path / "c1")].files[bad.file].open("r+b") as file:
        file.seek(bad.offset)
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


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (shard_faults.killed, None),
        (shard_faults.hung, 10),
        (shard_faults.out_of_memory, None),
        (shard_faults.disk_full, None),
    ],
    ids=["killed", "hung", "out of memory", "disk full"],
)
def test_a_worker_that_meets_a_fault_changes_no_byte(executor, tmp_path, monkeypatch, fault, seconds):
    plan = plan_of(tmp_path)
    make_soup(plan, tmp_path / "alone")
    map_tasks, tries = executor.map, []

    def map_faulty(function, tasks, **options):
        tries.append(function)
        faulty = fault if function is shards.run_shard else function
        return map_tasks(faulty, tasks, **{**options, "timeout_seconds": seconds})

    monkeypatch.setattr(executor, "map", map_faulty)
    make_soup(plan, tmp_path / "together", executor=executor)
    assert shards.run_shard in tries
    assert (tmp_path / "struck").exists()
    assert everything(tmp_path / "together") == everything(tmp_path / "alone")


def test_a_disk_that_fills_up_leaves_nothing_that_loads_and_room_mends_it(executor, tmp_path, monkeypatch):
    plan = plan_of(tmp_path)
    make_soup(plan, tmp_path / "alone")
    disk = tmp_path / "disk"
    map_tasks = executor.map

    def map_while_another_fills_the_disk(function, tasks, **options):
        first = map_tasks(function, tasks[:1], **options)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(1 << 12))
        return first + map_tasks(function, tasks[1:], **options)

    with small_disk(disk, kilobytes=1000):
        with monkeypatch.context() as patch:
            patch.setattr(executor, "map", map_while_another_fills_the_disk)
            with pytest.raises(ExecutorError, match="No space left on device"):
                make_soup(plan, disk / "soup", executor=executor)
        assert [p.name for p in disk.rglob("*")] == ["filler"]
        (disk / "filler").unlink()
        make_soup(plan, disk / "soup", executor=executor)
        assert everything(disk / "soup") == everything(tmp_path / "alone")


@contextlib.contextmanager
def small_disk(folder, *, kilobytes):
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("needs root and mount for a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_checkpoint_deleted_during_the_blend_is_named_and_its_return_mends_it(executor, tmp_path, monkeypatch):
    plan = plan_of(tmp_path)
    make_soup(plan, tmp_path / "alone")
    map_tasks = executor.map

    def map_deleting(function, tasks, **options):
        if function is not shards.run_shard:
            return map_tasks(function, tasks, **options)
        first = map_tasks(function, tasks[:1], **options)
        (tmp_path / "c2").rename(tmp_path / "away")
        return first + map_tasks(function, tasks[1:], **options)

    with monkeypatch.context() as patch:
        patch.setattr(executor, "map", map_deleting)
        with pytest.raises(CheckpointError, match="c2"):
            make_soup(plan, tmp_path / "out", executor=executor)
    assert [p.name for p in tmp_path.iterdir() if "out" in p.name] == []
    (tmp_path / "away").rename(tmp_path / "c2")
    make_soup(plan, tmp_path / "out", executor=executor)
    assert everything(tmp_path / "out") == everything(tmp_path / "alone")
