"""Seeds side by side leave what seeds one after the other leave."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.lm.stand_in import SEQUENCE
from tests.study.tiny_study import TEXT, run_tiny
from trajsoup.core.threads import evenly

pytestmark = pytest.mark.timeout(600)
SEEDS = "    seeds: 2\n    sweeps: []\n"
SHORT = TEXT.replace(f"horizon: {24 * 8 * SEQUENCE}", f"horizon: {12 * 8 * SEQUENCE}")  # three checkpoints a branch


def records(folder):
    found = sorted(p for p in folder.rglob("*.json") if "records" in p.parts)
    assert any("seeds" in p.parts for p in found)
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


def test_two_seeds_at_once_leave_the_records_of_one_after_the_other(tmp_path, fork_point):
    stages, trained, scored = [], [], []
    with two_threads():  # a seed that runs alone has all cores
        one = run_tiny(tmp_path / "one" / "study", fork_point, text=SHORT, more=SEEDS, jobs=1)
    two = run_tiny(
        tmp_path / "two" / "study",
        fork_point,
        text=SHORT,
        more=SEEDS,
        jobs=2,
        on_stage=lambda stage, seed: stages.append((stage, seed)),
        on_train=lambda stage, progress: trained.extend(p.branch for p in progress),
        on_score=lambda what, done, total: scored.append(what),
    )
    left, right = records(one.setup.output), records(two.setup.output)
    assert list(left) == list(right)
    differing = {name: _changes(left[name], right[name]) for name in left if left[name] != right[name]}
    assert not differing
    assert sorted(one.made) == sorted(two.made)
    assert {("train", 0), ("train", 1), ("answer", 0), ("answer", 1)} <= set(stages)
    assert {"seed 0 EXP1", "seed 1 EXP3"} <= set(trained)
    assert {"seed 0, validation", "seed 1, validation"} <= set(scored)


@contextlib.contextmanager
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _changes(one, two):
    pairs = zip(one.decode().splitlines(), two.decode().splitlines(), strict=False)
    return [(number, a, b) for number, (a, b) in enumerate(pairs, 1) if a != b][:10]


@pytest.mark.parametrize(
    ("count", "cores", "at_once"), [(2, 2, 2), (4, 2, 2), (5, 2, 3), (3, 2, 3), (3, 8, 3), (9, 4, 5), (15, 8, 12)]
)
def test_seeds_are_spread_so_that_no_core_idles_at_the_end(count, cores, at_once):
    assert evenly(count, cores=cores) == at_once


def test_an_error_of_one_seed_is_raised_as_itself(tmp_path, fork_point):
    from trajsoup.errors import TrajsoupError

    more = SEEDS + "    seed_that_is_unknown: 1\n"
    with pytest.raises(TrajsoupError, match="seed_that_is_unknown"):
        run_tiny(tmp_path / "study", fork_point, more=more, jobs=2)


WORKERS = """
import time
from trajsoup.engine.executor import LocalExecutor

def main():
    with LocalExecutor(2) as executor:
        executor.map(time.sleep, [600, 600], progress=print)

if __name__ == "__main__":
    import threading
    def show():
        import multiprocessing
        while len(multiprocessing.active_children()) < 2:
            time.sleep(0.1)
        print(*[p.pid for p in multiprocessing.active_children()], flush=True)
    threading.Thread(target=show, daemon=True).start()
    main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    time.sleep(1)  # they are in their tasks
    parent.send_signal(signal.SIGKILL)
    parent.wait(timeout=10)
    for _ in range(100):
        if all(_state(pid) == "Z" for pid in workers):
            return
        time.sleep(0.1)
    raise AssertionError(f"still running: {workers}")


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"  # gone
