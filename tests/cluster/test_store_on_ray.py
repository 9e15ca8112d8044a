"""Workers of a cluster read from and write to an object store: the local bytes, with the manifest last."""

import numpy as np
import pytest

from tests.checkpoints import write_checkpoint
from tests.object_store import s3_server, use_endpoint
from tests.ray_cluster import ray_for_tests
from tests.store_digests import digests
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import explicit_row, plan_row
from trajsoup.merge.verify import verify_soup
from trajsoup.store.remote import place

COUNT = 3


def plan_at(where):
    return plan_row(explicit_row([(f"{where}/c{i}", 1 / COUNT) for i in range(COUNT)]))


def weights(folder):
    return {
        name.split("/")[1]: d for name, d in digests(folder).items() if name.endswith((".safetensors", "index.json"))
    }


def test_a_soup_made_by_workers_in_a_store_has_the_local_bytes(tmp_path, monkeypatch):
    with s3_server(tmp_path / "s3") as server:
        bucket = server.folder / "soups"
        for i in range(COUNT):
            rng = np.random.default_rng(i)
            tensors = {f"t{j}": rng.normal(size=(5000, 3)).astype(np.float32) for j in range(4)}
            write_checkpoint(bucket / f"c{i}", tensors, shards=3, config={}, files={"tokenizer.json": "{}"})
        make_soup(plan_at(bucket), tmp_path / "local")
        use_endpoint(monkeypatch, server.url)  # before the workers start: they inherit it
        with ray_for_tests(workers=2) as executor:
            make_soup(plan_at("s3://soups"), place("s3://soups/out"), executor=executor)
        assert weights(bucket / "out") == weights(tmp_path / "local")
        assert {p.name for p in (bucket / "out").iterdir()} == {p.name for p in (tmp_path / "local").iterdir()}
        verify_soup(place("s3://soups/out"), full=True)


@pytest.mark.slow
def test_a_worker_killed_while_it_uploads_leaves_the_same_objects(tmp_path, monkeypatch):
    from tests.engine import shard_faults
    from trajsoup.engine import shards

    with s3_server(tmp_path / "s3") as server:
        bucket = server.folder / "soups"
        for i in range(COUNT):
            tensors = {f"t{j}": np.full((5000, 3), i + j, np.float32) for j in range(4)}
            write_checkpoint(bucket / f"c{i}", tensors, shards=3, config={})
        make_soup(plan_at(bucket), tmp_path / "local")
        use_endpoint(monkeypatch, server.url)
        monkeypatch.setenv("SHARD_FAULT_MARK", str(tmp_path / "struck"))
        with ray_for_tests(workers=2) as executor:
            map_tasks = executor.map
            faulty = {shards.run_shard: shard_faults.killed_in_store}
            monkeypatch.setattr(executor, "map", lambda f, items, **o: map_tasks(faulty.get(f, f), items, **o))
            make_soup(plan_at("s3://soups"), place("s3://soups/out"), executor=executor)
        assert (tmp_path / "struck").exists()
        assert weights(bucket / "out") == weights(tmp_path / "local")
