"""Kill a merge at any moment: no half output that loads, nothing in the way of the next try."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch

from tests.checkpoints import write_checkpoint
from tests.command import succeeds, trajsoup
from tests.runs import equal, fingerprint, load, mean
from trajsoup.store.publish import MARK

KILLS = 10
COUNT, LAYERS, ROWS = 4, 6, 4000  # 4 checkpoints of 6 x 4000 x 1024 bf16 numbers: about 200 MB


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    for i in range(COUNT):
        chance = torch.Generator().manual_seed(i)
        layer = torch.randn(ROWS, 1024, generator=chance).to(torch.bfloat16)
        tensors = {f"layers.{n}.weight": layer + n for n in range(LAYERS)}
        write_checkpoint(folder / f"c{i}", tensors, shards=3, config={"model_type": "toy"})
    return folder


@pytest.fixture(scope="module")
def expected(inputs):
    return mean(*sorted(inputs.iterdir()))


COMMAND = """
import sys
sys.modules["numba"] = None  # loading it would take longer than the merge, and no kill would hit the merge
from trajsoup.cli import main
main()
"""


SLOW_DISK = """
import os, time
real = os.fsync
os.fsync = lambda file: (time.sleep(0.5), real(file))[1]
"""


HEARS_INTERRUPTS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs these tests in the background ignores it
"""


def start(inputs, out, *, before=""):
    """The command in a process and a group of its own; `before` runs in it first."""
    ingredients = [f"{path}={1 / COUNT}" for path in sorted(inputs.iterdir())]
    # whoever watches must not be slower than what is watched, on a busy machine too
    program = HEARS_INTERRUPTS + before + COMMAND
    command = ["nice", "-n", "19", sys.executable, "-c", program, "merge", *ingredients, "-o", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def leftovers(out):
    return sorted(out.parent.glob(f".{out.name}{MARK}*"))


def wait_for_work(process, out):
    """Until the hidden folder is there, or the process is done."""
    while process.poll() is None and not leftovers(out) and not out.exists():
        time.sleep(0.001)


def wait_until_read(process, nbytes):
    """Until the process has read so many bytes more, or is done: how far it is, whatever the machine's speed."""

    def read():
        try:
            words = Path(f"/proc/{process.pid}/io").read_text().split()
        except OSError:
            return 2**62  # it is gone
        return int(words[words.index("rchar:") + 1])

    goal = read() + nbytes
    while process.poll() is None and read() < goal:
        time.sleep(0.001)


def check(out, expected):
    """What a killed merge may leave: the whole output, or a hidden folder of files that do not load or are right."""
    if out.exists():
        succeeds("verify", out)
        assert equal(load(out), expected)
    for folder in leftovers(out):
        for file in folder.glob("*.safetensors"):
            try:
                loaded = safetensors.torch.load_file(file)
            except (safetensors.SafetensorError, OSError):
                assert not (folder / "config.json").exists()  # what makes it a model comes after the last weight
                continue
            assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.items())


def test_kill_9_at_any_moment_leaves_no_half_output_and_the_next_try_succeeds(inputs, expected, tmp_path):
    before = fingerprint(inputs)
    chance = random.Random(0)
    total = sum(file.stat().st_size for file in inputs.rglob("*.safetensors"))
    hit = 0
    for number in range(KILLS):
        out = tmp_path / f"soup-{number}"
        process = start(inputs, out)
        if number % 5:  # most while it works, some while it starts
            wait_for_work(process, out)
            wait_until_read(process, chance.uniform(0, total))
        else:
            wait_until_read(process, chance.uniform(0, 2e7))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
        process.stderr.close()
        hit += bool(leftovers(out))
        check(out, expected)
    assert hit > 0, "no kill came in the middle: the test tests nothing"
    unfinished = next(tmp_path / f"soup-{n}" for n in range(KILLS) if leftovers(tmp_path / f"soup-{n}"))
    assert not unfinished.exists()
    process = start(inputs, unfinished)
    assert process.wait(timeout=120) == 0, process.stderr.read()
    assert leftovers(unfinished) == []
    assert equal(load(unfinished), expected)
    assert fingerprint(inputs) == before


def test_ctrl_c_ends_with_130_and_leaves_nothing(inputs, tmp_path):
    out = tmp_path / "soup"
    for number in range(20):  # a merge may be done before the signal comes
        process = start(inputs, out, before=SLOW_DISK)
        wait_for_work(process, out)
        process.send_signal(signal.SIGINT)
        message = process.stderr.read().decode()
        if process.wait(timeout=60) != 0:
            break
        out.rename(tmp_path / f"done-{number}")
    assert process.returncode == 130
    lines = [line for line in message.splitlines() if not line.startswith("note: ")]
    assert lines == ["interrupted: nothing was written; run the same command again"]
    assert not out.exists()
    assert leftovers(out) == []


def test_ctrl_c_while_the_threads_are_being_started_ends_the_same_way(runs, tmp_path, monkeypatch):
    begin, started = threading.Thread.start, []

    def interrupted(thread):
        if started:
            raise KeyboardInterrupt
        started.append(thread)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    done = trajsoup("merge", runs / "EXP1", "--k", 2, "-o", tmp_path / "soup")
    assert done.code == 130
    assert "interrupted: nothing was written" in done.err
    assert os.listdir(tmp_path) == []
