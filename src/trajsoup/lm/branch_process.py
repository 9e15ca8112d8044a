"""Train one branch in a process of its own: python -m trajsoup.lm.branch_process branches/EXP1/branch.json.

Several processes of one branch (torchrun, accelerate launch) all run this. outcome.json says how it ended.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from trajsoup.errors import DivergedError, TrajsoupError
from trajsoup.store.publish import write_atomic

OUTCOME = "outcome.json"
DIVERGED_EXIT = 3
PARENT = "TRAJSOUP_PARENT"  # set by the study that starts branches
PR_SET_PDEATHSIG = 1  # of prctl(2)


def main(arguments: list[str]) -> int:
    """Run the job named on the command line; return the exit code."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    end_with_parent()
    from trajsoup.lm.job import read_job

    job = read_job(Path(arguments[0]))
    is_main = int(os.environ.get("RANK", "0")) == 0
    try:
        import torch
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        if job.threads is not None:
            torch.set_num_threads(max(job.threads // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1))
        from trajsoup.lm.train import train_branch

        trained = train_branch(job)
    except TrajsoupError as error:
        if is_main:
            _write(job.folder, status="diverged" if isinstance(error, DivergedError) else "failed", message=str(error))
            sys.stderr.write(f"{error}\n")
        return DIVERGED_EXIT if isinstance(error, DivergedError) else 1
    if is_main:
        _write(
            job.folder,
            status="finished",
            tokens=trained.tokens,
            horizon=job.end,
            seconds=round(trained.seconds, 3),
            saving_seconds=round(trained.saving_seconds, 3),
            tokens_per_second=round(trained.tokens_per_second, 1),
        )
    return 0


def end_with_parent(parent: int | None = None) -> None:
    """Die when the study that started this process is killed: its rerun trains the same branch in the same folder.

    `parent` is the process that forked this one, where it is known; a launcher may stand between it and the study.
    """
    if sys.platform != "linux" or (parent is None and PARENT not in os.environ):
        return
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent if parent is not None else os.getppid() == 1:  # it was killed before this line
        sys.exit(1)


def _write(folder: Path, **outcome: object) -> None:
    write_atomic(folder / OUTCOME, json.dumps(outcome, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
