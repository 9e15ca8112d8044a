"""Job scripts for a cluster without Ray: an array job over the branches, dependent jobs before and after it.

    prepare (corpus, fork point) -> branches (array, one task each) -> finish (all later stages)

The commands are those a person would type; every one of them goes on where it was, so a job that is requeued loses little.
"""

from __future__ import annotations

import math
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from trajsoup.errors import StudyError
from trajsoup.store.publish import write_atomic
from trajsoup.study.file.study import Setup, Study
from trajsoup.study.file.trainer import Builtin, TrainWith

FOLDER = "slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one job asks for. A person adapts the rest (partition, account) in the scripts."""

    cpus: int = 1
    gpus: int = 0
    nodes: int = 1
    hours: int = 24


def resources_of(trainer: TrainWith) -> Resources:
    """What the study declares for a branch."""
    needs = trainer.needs
    return Resources(cpus=math.ceil(needs.cpus), gpus=math.ceil(needs.gpus), nodes=needs.nodes)


def write_scripts(setup: Setup, *, resources: Resources | None = None) -> Path:
    """Write the scripts into <study>/slurm and return that folder."""
    if not isinstance(setup, Study):
        raise StudyError(f"{setup.path} lists runs that exist: nothing is left to train; use `trajsoup run` itself")
    trainer = setup.trainer
    if trainer.nodes > 1 and isinstance(trainer, Builtin) and trainer.launcher is None:
        raise StudyError(
            f"{setup.path}: a branch takes {trainer.nodes} nodes, and a job starts on the first of them: give a launcher "
            "that reaches all, such as `srun torchrun --nnodes ... --rdzv-endpoint ...`"
        )
    folder = (setup.output / FOLDER).absolute()
    for name, text in scripts(setup, folder=folder, resources=resources or resources_of(trainer)).items():
        write_atomic(folder / name, text)
    return folder


def scripts(setup: Study, *, folder: Path, resources: Resources) -> dict[str, str]:
    """The text of every script by name."""
    names = list(setup.recipes)
    study = shlex.quote(str(setup.path.absolute()))
    command = f"{shlex.quote(sys.executable)} -m trajsoup"
    small = Resources(cpus=resources.cpus, hours=resources.hours)
    one = replace(resources, nodes=1)
    array = [
        f"branches=({' '.join(map(shlex.quote, names))})",
        f'exec {command} train {study} --jobs 1 --branch "${{branches[$SLURM_ARRAY_TASK_ID]}}"',
    ]
    return {
        "prepare.sbatch": _script("prepare", folder, small, [f"exec {command} train {study} --fork-point-only"]),
        "branches.sbatch": _script("branch", folder, resources, array, array=f"0-{len(names) - 1}"),
        "finish.sbatch": _script("finish", folder, one, [f"exec {command} run {study}"]),
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
        *([f"--nodes={resources.nodes}", "--ntasks-per-node=1"] if resources.nodes > 1 else []),
        *([f"--gpus-per-node={resources.gpus}"] if resources.gpus else []),
        *([f"--array={array}"] if array else []),
    ]
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in options), "set -euo pipefail", *commands, ""])
