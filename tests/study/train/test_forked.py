"""Branches off one server: their output, their ends, and the server's."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trajsoup.study.train.forked import Server, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="the kernel's promise is Linux's")


@pytest.fixture(scope="module")
def server():
    found = Server({**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    yield found
    found.close()


def start(server, folder, *arguments, **environment):
    with (folder / "log").open("ab") as log:
        return server.start(arguments, {**os.environ, **environment}, files=[log.fileno()])


def test_a_branch_that_fails_ends_with_its_code_and_its_words(server, tmp_path):
    branch = start(server, tmp_path, str(tmp_path / "no-job.json"))
    assert branch.wait(60) == 1
    assert "no-job.json" in (tmp_path / "log").read_text()
    assert branch.poll() == 1


@pytest.fixture
def stuck(tmp_path):
    """Starts a branch that never ends: it has something to say into a pipe that is full."""
    ready, full = os.pipe()
    os.set_blocking(full, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full, bytes(4096))
    os.set_blocking(full, True)
    yield lambda server: server.start([str(tmp_path / "no-job.json")], dict(os.environ), files=[full])
    os.close(ready)
    os.close(full)


def test_a_branch_leads_a_session_of_its_own_and_can_be_killed(server, stuck):
    branch = stuck(server)
    assert os.getsid(branch.pid) == branch.pid
    with pytest.raises(subprocess.TimeoutExpired):
        branch.wait(0.2)
    os.killpg(branch.pid, signal.SIGKILL)
    assert branch.wait(60) == -signal.SIGKILL


def test_a_server_that_is_killed_takes_its_branches_along(stuck):
    server = Server({**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    branch = stuck(server)
    server.close()
    assert branch.wait(60) == -signal.SIGKILL
    deadline = time.monotonic() + 600  # on a busy machine it may take a while
    while Path(f"/proc/{branch.pid}").exists() and " Z " not in Path(f"/proc/{branch.pid}/stat").read_text():
        assert time.monotonic() < deadline, "a branch outlived its server"
        time.sleep(0.05)


def test_another_environment_wants_another_server(server):
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert server.serves(here | {"OMP_NUM_THREADS": "7", "PYTEST_CURRENT_TEST": "other"})
    assert not server.serves(here | {"ONEDNN_MAX_CPU_ISA": "other"})
