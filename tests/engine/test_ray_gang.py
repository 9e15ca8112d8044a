"""Tasks of several nodes on a cluster of two: members run at once, on different nodes, and live and die together."""

import pytest

from tests.engine import gang_tasks, tasks
from tests.ray_cluster import cluster_for_tests
from trajsoup.engine import ray_executor, ray_gang
from trajsoup.engine.executor import LocalExecutor, Needs
from trajsoup.errors import CheckpointError, ExecutorError

TWO = Needs(nodes=2)


@pytest.fixture(scope="module")
def executor():
    with cluster_for_tests(nodes=2) as (executor, _, _):
        yield executor


def test_members_meet_on_different_nodes_and_rank_0_speaks(executor):
    found = executor.map(gang_tasks.meet, ["a", "b"], needs=TWO)  # there is room for one at a time
    assert [item for item, _ in found] == ["a", "b"]
    for _, who in found:
        assert [w.split()[0] for w in who] == ["0", "1"]
        assert len({w.split()[1] for w in who}) == 2


def test_a_gang_that_loses_a_member_is_run_again_as_a_whole(executor, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_gang, "GRACE_SECONDS", 1.0)
    assert executor.map(gang_tasks.lose_a_member_once, [str(tmp_path / "mark")], needs=TWO) == [0]
    assert (tmp_path / "mark").exists()
    assert executor.map(tasks.double, [3, 4]) == [6, 8]  # its room was given back


def test_an_error_for_the_user_comes_through(executor, monkeypatch):
    monkeypatch.setattr(ray_gang, "GRACE_SECONDS", 1.0)
    with pytest.raises(CheckpointError, match="checkpoint 7 is damaged"):
        executor.map(gang_tasks.damaged, [1], needs=TWO)


def test_a_cluster_that_is_too_small_is_refused_with_what_was_asked_for(executor, monkeypatch):
    monkeypatch.setattr(ray_gang, "PLACE_SECONDS", 3.0)
    with pytest.raises(ExecutorError, match="no 3 nodes with 1 CPUs"):
        executor.map(gang_tasks.meet, ["a"], needs=Needs(nodes=3))


def test_room_is_counted_by_node(executor, monkeypatch):
    monkeypatch.setattr(ray_executor, "IDLE_SECONDS", 2.0)
    with pytest.raises(ExecutorError, match="no machine of the cluster has 2 CPUs"):  # there are two, on two nodes
        executor.map(tasks.double, [1], needs=Needs(cpus=2))
    assert executor.map(tasks.double, [1]) == [2]


def test_one_machine_is_no_gang():
    with LocalExecutor(1) as executor, pytest.raises(ExecutorError, match="needs 2 nodes, and this machine is one"):
        executor.map(gang_tasks.meet, ["a"], needs=TWO)
