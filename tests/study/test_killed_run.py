"""A study that is killed again and again ends with the records of one that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.study.tiny_study import make_fork_point

pytestmark = pytest.mark.timeout(1500)  # whole studies: on a busy machine they take their time
ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
from tests.study.tiny_study import load_study, run_study, small_documents
folder = Path(sys.argv[1])
run_study(load_study(folder / "study.yaml"), corpus=small_documents(folder), cache=folder / "cache")
"""


def start(folder):
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], env=environment, stderr=subprocess.PIPE)


def prepared(folder, fork_point):
    from tests.study.tiny_study import make_study, small_documents

    make_study(folder, fork_point, more="    sweeps: [selections]\n")
    text = (folder / "study.yaml").read_text()
    kept = [line for line in text.splitlines() if "EXP3" not in line]  # two branches: fewer processes to start
    wsd = "schedule: {shape: wsd, decay_to: 3e-4, decay_share: 0.25}"  # the schedule of tab:e32a8-mid-train-main
    kept = [line.replace("global_batch: 8}", f"global_batch: 8, {wsd}}}") for line in kept]
    (folder / "study.yaml").write_text("\n".join(kept) + "\n")
    small_documents(folder)
    return folder


def records_of(folder):
    found = (folder / "records").rglob("*.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def written(folder):
    """How much a study has to show: checkpoints, scores, records."""
    patterns = ("branches/*/checkpoint-*", "scores/**/*.json", "records/**/*.json")
    return sum(len(list(folder.glob(pattern))) for pattern in patterns)


def start_and_kill(folder, moments):
    """Kill a run at a random moment after it has written something new, however slow the machine is."""
    process = start(folder)
    enough = written(folder) + moments.randint(1, 10)
    while process.poll() is None and written(folder) < enough:
        time.sleep(0.02)
    time.sleep(moments.uniform(0, 0.3))
    process.send_signal(signal.SIGKILL)
    process.wait()


def killed_and_rerun(tmp_path, *, kills):
    fork_point = make_fork_point(tmp_path / "fork")
    quiet, troubled = (prepared(tmp_path / name / "study", fork_point) for name in ("quiet", "troubled"))
    undisturbed = start(quiet)
    assert undisturbed.wait() == 0, undisturbed.stderr.read()
    moments = random.Random(7)
    for _ in range(kills):
        start_and_kill(troubled, moments)
    last = start(troubled)
    assert last.wait() == 0, last.stderr.read()
    assert records_of(troubled) == records_of(quiet)
    assert len(records_of(quiet)) == 12
    plan = json.loads((quiet / "records" / "plan.json").read_text())
    assert all("last 0.25 decays" in branch["recipe"]["schedule"] for branch in plan["branches"].values())


def test_a_killed_study_ends_with_the_same_records(tmp_path):
    killed_and_rerun(tmp_path, kills=2)


@pytest.mark.slow
def test_a_study_killed_ten_times_ends_with_the_same_records(tmp_path):
    killed_and_rerun(tmp_path, kills=10)
