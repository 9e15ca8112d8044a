"""`trajsoup` in a process of its own, on the tiny study and its documents: python -m tests.cluster.study_command run ...

The real command line, engine and processes; only the corpus is the tests' own, because tokenising one takes longer than
the study.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.store_digests import digests
from tests.study.tiny_study import make_study, small_documents

ROOT = Path(__file__).parents[2]
TWO_BRANCHES = "EXP3"  # left out: fewer processes to start


def prepared(folder, fork_point, *, change=lambda text: text):
    """The tiny study with two branches."""
    make_study(folder, fork_point)
    text = (folder / "study.yaml").read_text()
    kept = "\n".join(line for line in text.splitlines() if TWO_BRANCHES not in line) + "\n"
    (folder / "study.yaml").write_text(change(kept))
    small_documents(folder)
    return folder


def start(folder, *words, environment=None):
    """The command in a process group of its own, its output in the study's folder."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    full = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TRAJSOUP_CACHE": str(folder / "cache")}
    with (folder / "command.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.study_command", "run", str(folder / "study.yaml"), *words],
            env={**full, **(environment or {})}, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def finish(process, folder, *, seconds=600):
    """Wait for a good end."""
    assert process.wait(seconds) == 0, said(folder)


def said(folder):
    return (folder / "command.log").read_text()


def wait_for(condition, *, process=None, seconds=300):
    """Until it is true, which it returns; a process that ends before fails the test."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert process is None or process.poll() is None, "the command ended too early"
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def has_checkpoint(folder, number=1):
    return lambda: len(list(folder.glob("branches/*/checkpoint-*"))) >= number


def results(folder):
    """What must be the same after any fault: every record and every file of the soup, by sha256.

    soup.json says where the ingredients lie, so it is read with the study's own folder left out.
    """
    soup = json.loads((folder / "soup" / "soup.json").read_text().replace(str(folder), "."))
    return {**digests(folder / "records"), **digests(folder / "soup"), "soup/soup.json": soup}


def branch_pids(folder):
    """Processes that train branches of this study now: what they say goes to a branch's log, whoever started them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            said = Path(os.readlink(entry / "fd" / "1")) if entry.name.isdigit() else Path()
        except OSError:
            continue
        if said.name == "train.log" and said.is_relative_to(folder):
            found.append(int(entry.name))
    return found


def trains(folder):
    """Whether a branch has saved and one trains: of a tiny study the first may have just ended."""
    saved = has_checkpoint(folder)
    return lambda: saved() and branch_pids(folder)


def gone(pids):
    def check():
        return not any(Path(f"/proc/{pid}").exists() and _state(pid) != "Z" for pid in pids)

    return check


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def end(process):
    """A command that a failed test left."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests run in the background start with it ignored
    from trajsoup.study import workbench

    workbench.load_data = lambda study, cache: small_documents(study.output)
    from trajsoup.cli import main as command

    command()


if __name__ == "__main__":
    main()
