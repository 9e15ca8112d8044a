"""A whole study on a cluster that loses a node: nothing is lost, and the soup has the same bytes."""

import json
import os
import signal
import threading
import time

import pytest

from tests.ray_cluster import worker_environment
from tests.study.tiny_study import make_fork_point, run_tiny
from trajsoup.store.digest import sha256_file

ray = pytest.importorskip("ray", reason="needs the extra [ray]")


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    settings = {"include_dashboard": False, "object_store_memory": 80 << 20, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **settings})
    del settings["include_dashboard"]
    cluster.doomed = cluster.add_node(num_cpus=1, **settings)
    cluster.add_node(num_cpus=1, **settings)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
def test_a_node_that_dies_costs_time_and_nothing_else(cluster, tmp_path):
    from trajsoup.engine.ray_executor import ray_executor

    fork_point = make_fork_point(tmp_path / "fork")
    alone = run_tiny(tmp_path / "alone", fork_point)
    folder = tmp_path / "cluster"

    def kill_a_node_once_training_has_begun():
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not list(folder.rglob("branches/*/checkpoint-*")):
            time.sleep(0.05)
        cluster.remove_node(cluster.doomed, allow_graceful=False)

    killer = threading.Thread(target=kill_a_node_once_training_has_begun)
    killer.start()
    with ray_executor(address=cluster.address, environment=worker_environment()) as executor:
        ran = run_tiny(folder, fork_point, executor=executor)
    killer.join()
    assert len([n for n in ray.nodes() if n["Alive"]] if ray.is_initialized() else [1]) >= 1
    weights = "model.safetensors"
    assert sha256_file(ran.soup / weights) == sha256_file(alone.soup / weights)
    first, second = (json.loads((r.records.folder / "answer.json").read_text())["words"] for r in (alone, ran))
    assert first == second
    assert not os.path.exists(folder / "nothing")
    assert signal.SIGKILL
