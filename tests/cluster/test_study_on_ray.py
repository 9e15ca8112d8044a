"""Work on a cluster that loses a node: nothing is lost, and the bytes are the same."""

import json
import threading
import time

import pytest

from tests.engine import tasks
from tests.ray_cluster import cluster_for_tests
from tests.study.tiny_study import make_fork_point, run_tiny
from trajsoup.store.digest import sha256_file


def test_a_node_killed_during_a_map_costs_no_result():
    with cluster_for_tests() as (executor, cluster, nodes):
        killed = []

        def kill_one(number, result):
            if not killed:
                killed.append(nodes[0])
                cluster.remove_node(nodes[0], allow_graceful=False)

        assert executor.map(tasks.sleepy, range(12), progress=kill_one) == list(range(12))
        assert killed


@pytest.mark.slow
def test_a_study_that_loses_a_node_makes_the_same_soup(tmp_path):
    fork_point = make_fork_point(tmp_path / "fork")
    alone = run_tiny(tmp_path / "alone", fork_point)
    folder = tmp_path / "cluster"
    with cluster_for_tests() as (executor, cluster, nodes):
        killed = threading.Event()

        def kill_a_node_once_training_has_begun():
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and not list(folder.rglob("branches/*/checkpoint-*")):
                time.sleep(0.05)
            cluster.remove_node(nodes[0], allow_graceful=False)
            killed.set()

        killer = threading.Thread(target=kill_a_node_once_training_has_begun)
        killer.start()
        ran = run_tiny(folder, fork_point, executor=executor)
        killer.join()
        assert killed.is_set()
    assert sha256_file(ran.soup / "model.safetensors") == sha256_file(alone.soup / "model.safetensors")
    first, second = (json.loads((r.records.folder / "answer.json").read_text())["words"] for r in (alone, ran))
    assert first == second
