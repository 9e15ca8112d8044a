"""Job scripts for a cluster without Ray: an array job over the branches, dependent jobs before and after it.

    prepare (corpus, fork point) -> branches (array, one task each) -> finish (all later stages)

The commands are those a person would type; every one of them goes on where it was, so a job that is requeued loses little.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from trajsoup.errors import StudyError
from trajsoup.store.publish import write_atomic
from trajsoup.study.setup import Setup

FOLDER = "slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one job asks for. A person adapts the rest (partition, account) in the scripts."""

    cpus: int = 1
    gpus: int = 0
    hours: int = 24


def write_scripts(setup: Setup, *, resources: Resources | None = None) -> Path:
    """Write the scripts into <study>/slurm and return that folder."""
    if setup.study is None:
        raise StudyError(f"{setup.path} lists runs that exist: nothing is left to train; use `trajsoup run` itself")
    folder = (setup.output / FOLDER).absolute()
    for name, text in scripts(setup, folder=folder, resources=resources or Resources()).items():
        write_atomic(folder / name, text)
    return folder


def scripts(setup: Setup, *, folder: Path, resources: Resources) -> dict[str, str]:
    """The text of every script by name."""
    assert setup.study is not None
    names = list(setup.study.recipes)
    study = shlex.quote(str(setup.path.absolute()))
    command = f"{shlex.quote(sys.executable)} -m trajsoup"
    small = Resources(cpus=resources.cpus, gpus=0, hours=resources.hours)
    array = [
        f"branches=({' '.join(map(shlex.quote, names))})",
        f'exec {command} train {study} --jobs 1 --branch "${{branches[$SLURM_ARRAY_TASK_ID]}}"',
    ]
    return {
        "prepare.sbatch": _script("prepare", folder, small, [f"exec {command} train {study} --fork-point-only"]),
        "branches.sbatch": _script("branch", folder, resources, array, array=f"0-{len(names) - 1}"),
        "finish.sbatch": _script("finish", folder, resources, [f"exec {command} run {study}"]),
        "submit.sh": "\n".join(
            [
                "#!/bin/sh",
                "# Submits the whole study. Run it again after a failure: what is finished is skipped.",
                "set -e",
                f"cd {shlex.quote(str(folder))}",
                "prepare=$(sbatch --parsable prepare.sbatch)",
                'branches=$(sbatch --parsable --dependency="afterok:$prepare" branches.sbatch)',
                'finish=$(sbatch --parsable --dependency="afterok:$branches" finish.sbatch)',
                'echo "prepare $prepare, branches $branches, finish $finish"',
                "",
            ]
        ),
    }


def _script(name: str, folder: Path, resources: Resources, commands: list[str], *, array: str | None = None) -> str:
    log = folder / f"{name}-{'%A_%a' if array else '%j'}.log"
    options = [
        f"--job-name=soup-{name}",
        f'--output="{log}"',
        "--open-mode=append",
        "--requeue",  # a job whose node fails starts again, and goes on from its last state
        f"--cpus-per-task={resources.cpus}",
        f"--time={resources.hours}:00:00",
        *([f"--gpus={resources.gpus}"] if resources.gpus else []),
        *([f"--array={array}"] if array else []),
    ]
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in options), "set -euo pipefail", *commands, ""])
