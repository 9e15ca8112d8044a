"""Soups from and to a real S3 server on loopback, which stumbles."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints import write_checkpoint
from tests.faulty_proxy import EVERY_FAULT, faulty_proxy
from tests.object_store import KEY, SECRET, s3_server, use_endpoint
from trajsoup.engine.workers import Options
from trajsoup.errors import CheckpointError, NonfiniteError, OutputError, StoreError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, explicit_row, plan_row
from trajsoup.merge.provenance import RECORD
from trajsoup.merge.verify import verify_soup
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.digest import sha256_file
from trajsoup.store.remote import place

pytestmark = pytest.mark.timeout(120)

SIZE = 30_000  # numbers per checkpoint
BLOCK = 12_288  # bytes: several requests for each file


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        for i in range(3):
            rng = np.random.default_rng(i)
            tensors = {
                "embed": rng.normal(size=SIZE // 3).astype(np.float32),
                "layer": rng.normal(size=(SIZE - SIZE // 3, 1)).astype(np.float32),
                "steps": np.arange(4),
            }
            folder = server.folder / "soups" / "runs" / f"c{i}"
            write_checkpoint(folder, tensors, shards=2, config={"hidden": 1}, files={"tokenizer.json": "{}"})
        yield server


@pytest.fixture
def proxied(server, monkeypatch):
    """Reach the server through a proxy whose faults the test chooses."""
    monkeypatch.setattr("trajsoup.store.retry.FIRST_DELAY_SECONDS", 0.01)
    with faulty_proxy((server.host, server.port)) as proxy:
        use_endpoint(monkeypatch, proxy.url)
        yield proxy


def plan_at(where, *, shard_bytes=None):
    return plan_row(
        explicit_row([(f"{where}/c{i}", 1 / 3) for i in range(3)]), form=OutputForm(shard_bytes=shard_bytes)
    )


def local_soup(server, out, **options):
    make_soup(plan_at(server.folder / "soups" / "runs", **options), out)
    return out


def weight_hashes(folder):
    return {p.name: sha256_file(p) for p in Path(folder).glob("*.safetensors")}


@pytest.mark.parametrize("shard_bytes", [None, 50_000, 10**9], ids=["as the input", "small shards", "one file"])
def test_a_soup_from_a_store_to_a_store_equals_the_local_one(server, proxied, tmp_path, shard_bytes):
    wanted = local_soup(server, tmp_path / "local", shard_bytes=shard_bytes)
    out = place(f"s3://soups/out-{shard_bytes}")
    make_soup(plan_at("s3://soups/runs", shard_bytes=shard_bytes), out, options=Options(block_bytes=BLOCK))
    made = server.folder / "soups" / out.name
    assert weight_hashes(made) == weight_hashes(wanted)
    assert {p.name for p in made.iterdir()} == {p.name for p in wanted.iterdir()}
    assert verify_soup(out, full=True).values == SIZE + 4


def test_a_store_where_every_request_fails_once_changes_no_byte(server, proxied, tmp_path):
    wanted = local_soup(server, tmp_path / "local")
    proxied.share = 1.0
    out = place("s3://soups/out-faulty")
    make_soup(plan_at("s3://soups/runs"), out, options=Options(block_bytes=BLOCK))
    assert min(proxied.faults[kind] for kind in EVERY_FAULT) > 0
    proxied.share = 0.0
    assert weight_hashes(server.folder / "soups" / "out-faulty") == weight_hashes(wanted)
    verify_soup(out)


def test_ingredients_are_read_by_ranges_and_each_byte_once(server, proxied, tmp_path):
    plan = plan_at("s3://soups/runs")
    proxied.requests.clear()
    make_soup(plan, tmp_path / "out", options=Options(block_bytes=BLOCK))
    reads = [r for method, path, r in proxied.requests if method == "GET" and "c1" in path and ".safetensors" in path]
    assert None not in reads
    ranges = [tuple(map(int, r.removeprefix("bytes=").split("-"))) for r in reads]
    assert max(last - first + 1 for first, last in ranges) <= BLOCK
    weights = sum(t.nbytes for t in plan.template.tensors.values())
    assert weights <= sum(last - first + 1 for first, last in ranges) < weights + 10_000  # and the headers


def test_the_manifest_is_the_last_object_written(server, proxied):
    proxied.requests.clear()
    make_soup(plan_at("s3://soups/runs"), place("s3://soups/out-order"))
    written = [
        path.split("?")[0].rsplit("/", 1)[1] for method, path, _ in proxied.requests if method in ("PUT", "POST")
    ]
    assert written[-2:] == ["model.safetensors.index.json", RECORD]


def test_a_large_object_travels_in_parts(server, proxied, monkeypatch):
    monkeypatch.setattr("trajsoup.store.upload.PART_BYTES", 5 << 20)
    rng = np.random.default_rng(7)
    for name in "ab":
        tensors = {"w": rng.normal(size=3 << 20).astype(np.float32)}
        write_checkpoint(server.folder / "soups" / "large" / name, tensors)
    proxied.requests.clear()
    row = explicit_row([("s3://soups/large/a", 0.25), ("s3://soups/large/b", 0.75)])
    make_soup(plan_row(row), place("s3://soups/out-large"))
    parts = [path for method, path, _ in proxied.requests if method == "PUT" and "partNumber" in path]
    assert len(parts) >= 2
    verify_soup(place("s3://soups/out-large"))


def test_a_failed_merge_leaves_nothing_in_the_store(server, proxied):
    bad = server.folder / "soups" / "bad"
    for name, value in (("a", 1.0), ("b", np.nan)):
        write_checkpoint(bad / name, {"w": np.full(50_000, value, np.float32)}, config={})
    row = explicit_row([("s3://soups/bad/a", 0.5), ("s3://soups/bad/b", 0.5)])
    with pytest.raises(NonfiniteError, match="s3://soups/bad/b"):
        make_soup(plan_row(row), place("s3://soups/out-bad"))
    made = server.folder / "soups" / "out-bad"
    assert not made.exists() or not list(made.rglob("*"))


def test_an_interrupt_while_publishing_leaves_no_model_that_loads(server, proxied, monkeypatch):
    from trajsoup.store.upload import Upload

    put = Upload._put_file

    def interrupted(self, name, source):
        if name == "model.safetensors.index.json":
            raise KeyboardInterrupt
        put(self, name, source)

    monkeypatch.setattr(Upload, "_put_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_soup(plan_at("s3://soups/runs"), place("s3://soups/out-interrupted"))
    with pytest.raises(CheckpointError):
        open_checkpoint("s3://soups/out-interrupted")
    monkeypatch.undo()


def test_an_existing_output_in_a_store_is_refused(server, proxied):
    plan = plan_at("s3://soups/runs")
    with pytest.raises(OutputError, match="exists, and existing output is never replaced"):
        make_soup(plan, place("s3://soups/runs"))


def test_a_checkpoint_deleted_between_plan_and_blend_is_named(server, proxied, tmp_path):
    for i in range(3):
        shutil.copytree(server.folder / "soups" / "runs" / f"c{i}", server.folder / "soups" / "gone" / f"c{i}")
    plan = plan_at("s3://soups/gone")
    shutil.rmtree(server.folder / "soups" / "gone" / "c1")
    with pytest.raises(CheckpointError, match=r"gone/c1/.* disappeared"):
        make_soup(plan, tmp_path / "out", digest=None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("moment", ["partNumber=1", "complete"])
def test_a_merge_killed_outright_leaves_no_model_and_the_next_one_takes_its_place(server, proxied, tmp_path, moment):
    wanted = local_soup(server, tmp_path / "local")
    second = "model-00002-of-00002.safetensors?"

    def hold(method, path):
        completing = method == "POST" and "uploadId=" in path
        return second in path and (completing if moment == "complete" else moment in path)

    out = place(f"s3://soups/out-killed-{moment[:4]}")
    names = [f"s3://soups/runs/c{i}={1 / 3}" for i in range(3)]
    proxied.hold = hold
    merge = subprocess.Popen(
        [sys.executable, "-m", "trajsoup", "merge", *names, "-o", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert proxied.held.wait(90)
    finally:
        merge.kill()
        merge.wait()
    proxied.hold = lambda method, path: False
    assert (out / "config.json").is_file()  # it was well under way
    with pytest.raises(CheckpointError):
        open_checkpoint(out)
    make_soup(plan_at("s3://soups/runs"), out)
    made = server.folder / "soups" / out.name
    assert weight_hashes(made) == weight_hashes(wanted)
    assert {p.name for p in made.iterdir()} == {p.name for p in wanted.iterdir()}
    assert not out.filesystem.list_multipart_uploads("soups")


def test_a_store_that_never_recovers_ends_with_one_message_and_nothing_written(server, proxied, tmp_path, monkeypatch):
    monkeypatch.setattr("trajsoup.store.retry.FIRST_DELAY_SECONDS", 0.0)
    plan = plan_at("s3://soups/runs")
    proxied.hold, proxied.released = lambda method, path: method == "GET", proxied.held  # every read is dropped
    with pytest.raises(StoreError, match=r"reading s3://soups/runs/.* failed 8 times"):
        make_soup(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_credentials_appear_in_no_message_record_or_log(server, proxied, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("trajsoup.store.retry.FIRST_DELAY_SECONDS", 0.0)
    plan = plan_at("s3://soups/runs")
    with caplog.at_level(logging.DEBUG, logger="trajsoup"):
        make_soup(plan, tmp_path / "out")
        proxied.hold, proxied.released = lambda method, path: True, proxied.held
        with pytest.raises(StoreError) as caught:
            make_soup(plan, tmp_path / "none")
    told = (tmp_path / "out" / RECORD).read_text() + str(caught.value) + caplog.text
    assert SECRET not in told
    assert KEY not in told
    assert "Signature" not in told
