"""A whole study on a cluster, disturbed: nothing is lost, and every record and every file of the soup has the same bytes.

The undisturbed run is made on this machine, without Ray: what the disturbed ones are compared with.
"""

import os
import signal
import threading
import time

import pytest

from tests.cluster import study_command as command
from tests.engine import tasks
from tests.ray_cluster import cluster_for_tests, loopback_cluster
from trajsoup.store.lock import owner_of

pytestmark = pytest.mark.timeout(1500)  # whole studies: on a busy machine they take their time
HASTE = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}  # a driver gives up a dead head sooner


def test_a_node_killed_during_a_map_costs_no_result():
    with cluster_for_tests() as (executor, cluster, nodes):
        killed = []

        def kill_one(number, result):
            if not killed:
                killed.append(nodes[0])
                cluster.remove_node(nodes[0], allow_graceful=False)

        assert executor.map(tasks.sleepy, range(12), progress=kill_one) == list(range(12))
        assert killed


def test_workers_that_were_kept_and_died_since_cost_no_attempt():
    ray = pytest.importorskip("ray", reason="needs the extra [ray]")
    with cluster_for_tests() as (executor, cluster, nodes):
        executor.keep = True
        assert executor.map(tasks.double, range(8)) == [2 * i for i in range(8)]
        cluster.remove_node(nodes[0], allow_graceful=False)
        deadline = time.monotonic() + 120
        while sum(node["Alive"] for node in ray.nodes()) > 2:  # the head and one more
            assert time.monotonic() < deadline, "the cluster never noticed"
            time.sleep(0.2)
        time.sleep(2)  # its worker ends when it misses its node
        assert executor.map(tasks.double, range(8), attempts=1) == [2 * i for i in range(8)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, fork_point):
    folder = command.prepared(tmp_path_factory.mktemp("undisturbed") / "study", fork_point)
    command.finish(command.start(folder), folder)
    found = command.results(folder)
    assert {"records/answer.json", "soup/model.safetensors"} <= found.keys()
    return found


@pytest.fixture
def study(tmp_path, fork_point):
    return command.prepared(tmp_path / "study", fork_point)


@pytest.fixture
def run(study):
    """Start `trajsoup run --engine ray` on the study; whatever a failed test leaves is ended."""
    started = []

    def begin(*words, **options):
        started.append(command.start(study, "--engine", "ray", *words, **options))
        return started[-1]

    yield begin
    for process in started:
        command.end(process)


def test_ctrl_c_stops_a_study_and_its_rerun_makes_the_same_bytes(study, run, undisturbed):
    process = run()
    training = command.wait_for(command.trains(study), process=process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(120) == 130, command.said(study)
    assert "interrupted: what was finished is kept" in command.said(study)
    command.wait_for(command.gone(training), seconds=60)
    assert owner_of(study / ".run.lock") is None
    command.finish(run(), study)
    assert command.results(study) == undisturbed


@pytest.mark.slow
def test_a_command_that_is_killed_leaves_no_process_and_its_rerun_makes_the_same_bytes(study, run, undisturbed):
    process = run()
    training = command.wait_for(command.trains(study), process=process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert owner_of(study / ".run.lock").pid == process.pid  # a stale lock
    command.wait_for(command.gone(training), seconds=60)
    command.finish(run(), study)
    assert command.results(study) == undisturbed


@pytest.mark.slow
def test_a_node_killed_during_training_changes_nothing(study, run, undisturbed):
    with loopback_cluster() as (cluster, nodes):
        process = run("--address", cluster.address)
        command.wait_for(command.has_checkpoint(study), process=process)
        cluster.remove_node(nodes[0], allow_graceful=False)
        command.finish(process, study)
    assert command.results(study) == undisturbed


@pytest.mark.slow
def test_a_head_that_dies_ends_the_command_and_the_study_goes_on_with_a_new_one(study, run, undisturbed):
    with loopback_cluster() as (cluster, _):
        process = run("--address", cluster.address, environment=HASTE)
        command.wait_for(command.has_checkpoint(study), process=process)
        cluster.remove_node(cluster.head_node, allow_graceful=False)
        assert process.wait(240) != 0
    with loopback_cluster() as (cluster, _):
        command.finish(run("--address", cluster.address), study)
    assert command.results(study) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    ["allocation: {tokens: 24k, looks: 3, sure: 0}\n", "keep: needed\nsweeps: []\n"],
    ids=["adaptive", "keeping what is needed"],
)
def test_a_study_that_trains_in_stretches_makes_the_same_bytes_as_on_this_machine(tmp_path, fork_point, more):
    found = {}
    for engine in ("local", "ray"):
        study = command.prepared(tmp_path / engine / "study", fork_point, change=lambda text: text + more)
        process = command.start(study, "--engine", engine)
        try:
            command.finish(process, study)
        finally:
            command.end(process)
        found[engine] = command.results(study)
    assert found["ray"] == found["local"]
    assert "records/answer.json" in found["ray"]


@pytest.mark.slow
def test_a_branch_that_hangs_is_ended_and_goes_on_from_its_last_checkpoint(tmp_path, fork_point, undisturbed):
    def impatient(text):
        return text + "trainer: {builtin: {stalled_after: 120}}\n"

    study = command.prepared(tmp_path / "study", fork_point, change=impatient)
    process = command.start(study, "--engine", "ray")
    try:
        stopped = command.wait_for(command.trains(study), process=process)[0]
        os.kill(stopped, signal.SIGSTOP)
        command.finish(process, study)
    finally:
        command.end(process)
    assert command.gone([stopped])()
    assert command.results(study) == undisturbed


@pytest.mark.slow
def test_a_checkpoint_deleted_while_in_use_is_named_and_its_return_mends_it(study, run, undisturbed):
    process = run()
    command.wait_for((study / "records" / "train.json").exists, process=process)
    lost = next(iter(sorted(study.glob("branches/EXP2/checkpoint-*"))))
    lost.rename(study / "away")
    assert process.wait(300) == 1
    assert lost.name in command.said(study)
    (study / "away").rename(lost)
    command.finish(run(), study)
    assert command.results(study) == undisturbed


@pytest.mark.slow
def test_a_branch_killed_again_and_again_is_reported_and_the_other_finishes(study, run, undisturbed):
    process = run()
    over = threading.Event()

    def kill_second():
        while not over.wait(0.2):
            for pid in command.branch_pids(study / "branches" / "EXP2"):
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_second)
    killer.start()
    try:
        assert process.wait(300) == 1
    finally:
        over.set()
        killer.join()
    assert "'EXP2'" in command.said(study)
    command.finish(run(), study)
    assert command.results(study) == undisturbed
