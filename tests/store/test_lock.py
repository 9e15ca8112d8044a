"""A lock tells a living owner from a dead one, here and on other machines, and looks at nobody's clock."""

import dataclasses
import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trajsoup.errors import HeldError
from trajsoup.store import lock
from trajsoup.store.lock import Owner, holding, owner_of, this_process

HOLD = """
import sys, time
from pathlib import Path
from trajsoup.store.lock import holding
with holding(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(lock, "WATCH_SECONDS", 0.5)
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.1)


def start_holder(path):
    environment = {**os.environ, "PYTHONPATH": str(Path(lock.__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"held\n"
    return process


def leave_record(path, **changes):
    """What a holder that was killed, or one on another machine, has in the file."""
    path.write_text(json.dumps(dataclasses.asdict(dataclasses.replace(this_process(), **changes))))


def test_the_second_is_told_who_holds_it(tmp_path):
    path = tmp_path / "lock"
    with holding(path), pytest.raises(HeldError, match=rf"process {os.getpid()} on "), holding(path):
        pass


def test_a_released_lock_names_nobody(tmp_path):
    with holding(tmp_path / "lock"):
        assert owner_of(tmp_path / "lock").pid == os.getpid()
    assert owner_of(tmp_path / "lock") is None


def test_a_killed_holder_is_followed_at_once(tmp_path):
    path = tmp_path / "lock"
    process = start_holder(path)
    with pytest.raises(HeldError, match=f"process {process.pid} on "), holding(path):
        pass
    process.kill()
    process.wait()
    assert owner_of(path).pid == process.pid  # its record is still there
    with holding(path):
        assert owner_of(path).pid == os.getpid()


def test_the_patient_get_it_when_it_is_free(tmp_path):
    path = tmp_path / "lock"
    process = start_holder(path)
    threading.Timer(0.7, process.kill).start()
    with holding(path, patience_seconds=60):
        assert owner_of(path).pid == os.getpid()
    process.wait()


def test_a_still_record_of_another_machine_is_stale(tmp_path, quick):
    path = tmp_path / "lock"
    leave_record(path, host="elsewhere", boot="another", pid=os.getpid(), beat=41)
    with holding(path):
        assert owner_of(path).host == this_process().host


def test_a_counting_record_of_another_machine_is_respected(tmp_path, quick):
    path = tmp_path / "lock"
    over = threading.Event()

    def count():
        beat = 0
        while not over.wait(0.05):
            beat += 1
            leave_record(path, host="elsewhere", boot="another", pid=7, beat=beat)

    leave_record(path, host="elsewhere", boot="another", pid=7)
    owner = threading.Thread(target=count)
    owner.start()
    try:
        with pytest.raises(HeldError, match="process 7 on elsewhere"), holding(path):
            pass
    finally:
        over.set()
        owner.join()


@pytest.mark.parametrize("seconds", [-(10**8), 10**8], ids=["past", "future"])
def test_a_clock_that_is_wrong_by_years_changes_nothing(tmp_path, quick, monkeypatch, seconds):
    path = tmp_path / "lock"
    leave_record(path, host="elsewhere", boot="another")
    os.utime(path, (time.time() + seconds,) * 2)
    wrong = time.time() - seconds
    monkeypatch.setattr(time, "time", lambda: wrong)
    with holding(path), pytest.raises(HeldError), holding(path):
        pass


@pytest.fixture
def without_flock(monkeypatch, quick):
    def refuse(fd, how):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_without_file_locks_a_living_process_is_respected(tmp_path, without_flock):
    path = tmp_path / "lock"
    with holding(path), pytest.raises(HeldError), holding(path):
        pass


@pytest.mark.parametrize("changes", [{"started": "1"}, {"pid": 2**22 - 1}], ids=["number used again", "gone"])
def test_without_file_locks_a_dead_process_is_followed(tmp_path, without_flock, changes):
    path = tmp_path / "lock"
    leave_record(path, **changes)
    with holding(path):
        assert owner_of(path).started == this_process().started


def test_a_process_number_of_another_container_is_not_ours(tmp_path, without_flock):
    path = tmp_path / "lock"
    leave_record(path, processes="pid:[1]", beat=3)  # our own number, in another namespace: only its count can tell
    with holding(path):
        assert owner_of(path).processes == this_process().processes


def test_an_owner_counts_while_it_holds(tmp_path, quick):
    with holding(tmp_path / "lock"):
        first = owner_of(tmp_path / "lock")
        deadline = time.monotonic() + 120
        while owner_of(tmp_path / "lock") in (first, None) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert owner_of(tmp_path / "lock").beat > first.beat
    assert isinstance(first, Owner)
