"""Branches as tasks: what is worth another attempt, what is heard meanwhile, and that no branch has a twin."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trajsoup.engine.executor import LocalExecutor, Member
from trajsoup.errors import ExecutorError
from trajsoup.store.lock import holding
from trajsoup.study.train import tasks as branch_tasks
from trajsoup.study.train.processes import BranchProcess, Status, start_branch, stop_branches
from trajsoup.study.train.tasks import BranchTask, run_branch, run_branches

SCRIPT = '''
"""Trains four steps, goes on from its last checkpoint, and meets its fate after step 2 of the first sitting."""
import json, os, pathlib, signal, struct, sys, time
out, fate = pathlib.Path(sys.argv[1]), sys.argv[2]
with (out / "sittings").open("a") as file:
    file.write(f"{os.getpid()}\\n")
first = len((out / "sittings").read_text().split()) == 1
done = max([int(p.name.split("-")[1]) for p in out.glob("checkpoint-*")], default=0)
for step in range(done + 1, 5):
    time.sleep(0.2)
    folder = out / f"checkpoint-{step}"
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<f", step))
    with (out / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "tokens": 10 * step, "loss": 1 / step}) + chr(10))
    if step == 2 and first:
        if fate == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "hangs":
            time.sleep(600)
        if fate == "fails":
            sys.exit("the learning rate is wrong")
        if fate == "waits":
            time.sleep(3)
'''


@pytest.fixture(scope="module")
def executor():
    with LocalExecutor(2) as executor:
        yield executor


def branch(folder, fate, *, name="EXP1", stalled_after=None):
    mine = folder / "branches" / name
    mine.mkdir(parents=True)
    (folder / "own.py").write_text(SCRIPT)
    return BranchProcess(
        branch=name,
        words=(sys.executable, str(folder / "own.py"), str(mine), fate),
        folder=mine,
        horizon=40,
        checkpoint_every=10,
        step_tokens=10,
        builtin=False,
        stalled_after=stalled_after,
    )


def sittings(process):
    return len((process.folder / "sittings").read_text().split())


def steps(process):
    return sorted(p.name for p in process.folder.glob("checkpoint-*"))


@pytest.mark.parametrize(("fate", "stalled_after"), [("killed", None), ("hangs", 4)])
def test_a_branch_that_is_killed_or_hangs_goes_on_from_its_last_checkpoint(executor, tmp_path, fate, stalled_after):
    process = branch(tmp_path, fate, stalled_after=stalled_after)
    (outcome,) = run_branches({"EXP1": process}, environment={}, executor=executor)
    assert outcome.status is Status.FINISHED
    assert sittings(process) == 2
    assert steps(process) == [f"checkpoint-{i}" for i in (1, 2, 3, 4)]


def test_a_branch_that_fails_by_itself_is_reported_and_not_tried_again(executor, tmp_path):
    wrong, right = branch(tmp_path, "fails"), branch(tmp_path, "lives", name="EXP2")
    outcomes = run_branches({"EXP1": wrong, "EXP2": right}, environment={}, executor=executor)
    assert [o.status for o in outcomes] == [Status.FAILED, Status.FINISHED]
    assert "the learning rate is wrong" in outcomes[0].message
    assert sittings(wrong) == 1


def test_progress_is_heard_while_a_branch_trains_elsewhere(executor, tmp_path, monkeypatch):
    monkeypatch.setattr(branch_tasks, "REPORT_SECONDS", 0.05)
    heard = []
    run_branches(
        {"EXP1": branch(tmp_path, "waits")},
        environment={},
        executor=executor,
        report=lambda progress: heard.append((progress[0].running, progress[0].tokens)),
    )
    assert (True, 20) in heard
    assert heard[-1] == (False, 40)


def test_a_branch_waits_for_the_one_before_it(tmp_path):
    process = branch(tmp_path, "lives")
    free = threading.Event()

    def hold():
        with holding(process.lock):
            free.wait(1.5)
            assert not (process.folder / "sittings").exists()

    other = threading.Thread(target=hold)
    other.start()
    time.sleep(0.3)
    assert run_branch(BranchTask(process=process, environment={})).status is Status.FINISHED
    other.join()


def test_a_branch_that_stays_held_is_not_trained_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(branch_tasks, "PATIENCE_SECONDS", 0.0)
    process = branch(tmp_path, "lives")
    with holding(process.lock), pytest.raises(ExecutorError, match=rf"still being trained by process {os.getpid()}"):
        run_branch(BranchTask(process=process, environment={}))
    assert not (process.folder / "sittings").exists()


STARTER = """
import sys, time
from pathlib import Path
from tests.study.train.test_tasks import branch
from trajsoup.study.train.processes import start_branch
handle = start_branch(branch(Path(sys.argv[1]), "hangs"), {})
print(handle.pid, flush=True)
time.sleep(600)
"""


def test_a_command_ends_with_the_worker_that_started_it(tmp_path):
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE, env=environment)
    pid = int(starter.stdout.readline())
    deadline = time.monotonic() + 300
    while not (tmp_path / "branches" / "EXP1" / "sittings").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline, "the command outlived its starter"
        time.sleep(0.05)


def test_launchers_are_told_where_members_meet(tmp_path):
    process = dataclasses.replace(branch(tmp_path, "lives"), words=("sh", "-c", "env | sort"))
    member = Member(rank=1, nodes=2, address="127.0.0.1", port=4321)
    handle = start_branch(process, {}, member=member)
    handle.wait(60)
    stop_branches([handle])
    said = process.log.read_text().splitlines()
    assert {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=127.0.0.1", "PET_MASTER_PORT=4321"} <= set(said)
    assert {"NNODES=2", "NODE_RANK=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4321"} <= set(said)
