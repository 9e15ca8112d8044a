"""One branch on two nodes: torchrun and FSDP2 in a placement group, retried from its last checkpoint."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.cluster import study_command as command
from tests.lm.stand_in import SEQUENCE
from tests.ray_cluster import cluster_for_tests
from tests.store_digests import digests
from tests.study.studies import SMALL, byte_corpus, write_study
from trajsoup.errors import TrainError
from trajsoup.study.file.study import load_training_study
from trajsoup.study.train.branches import train_study
from trajsoup.study.train.processes import Status

pytestmark = pytest.mark.timeout(1500)  # whole studies: on a busy machine they take their time
STEPS = 40  # enough of them after the first checkpoint for a kill to come in time
LONG = SMALL.replace(f"horizon: {8 * 8 * SEQUENCE}", f"horizon: {STEPS * 8 * SEQUENCE}")
TWO_NODES = LONG.replace("      EXP2: {seed: 1001}\n", "") + "    trainer: {builtin: {nodes: 2, sharding: fsdp2}}\n"


def study_in(folder, fork_point):
    folder.mkdir(parents=True)
    (folder / "fork").symlink_to(fork_point)
    return load_training_study(write_study(folder, TWO_NODES))


def train(folder, fork_point, executor, **options):
    study = study_in(folder, fork_point)
    trained = train_study(study, cache=folder / "cache", corpus=byte_corpus(folder), executor=executor, **options)
    assert [o.status for o in trained.outcomes] == [Status.FINISHED], trained.outcomes
    found = {}
    for path in sorted((folder / "branches" / "EXP1").glob("checkpoint-*")):
        found |= digests(path)
    return found


def test_a_branch_of_two_nodes_is_refused_on_one_machine(tmp_path, fork_point):
    with pytest.raises(TrainError, match="takes 2 nodes, and this machine is one: use --engine ray"):
        train(tmp_path / "one", fork_point, None)


@pytest.mark.slow
def test_a_branch_on_two_nodes_that_loses_a_process_ends_with_the_same_checkpoints(tmp_path, fork_point):
    with cluster_for_tests(nodes=2) as (executor, _, _):
        quiet = train(tmp_path / "quiet", fork_point, executor)
        folder, killed, heard = tmp_path / "troubled", [], []

        def kill_one():
            command.wait_for(command.has_checkpoint(folder))
            pids = [pid for pid in command.branch_pids(folder) if b"torch.distributed.run" not in words_of(pid)]
            killed.append(max(pids))
            os.kill(killed[0], signal.SIGKILL)

        killer = threading.Thread(target=kill_one)
        killer.start()
        troubled = train(folder, fork_point, executor, on_progress=lambda stage, progress: heard.append(progress[0]))
        killer.join()
    assert killed
    assert any(p.running and p.tokens > 0 for p in heard)
    assert heard[-1].tokens == heard[-1].horizon
    assert {name.split("/")[0] for name in quiet} == {f"checkpoint-{step}" for step in range(4, STEPS + 1, 4)}
    assert troubled == quiet


def words_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
