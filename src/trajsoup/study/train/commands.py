"""Turn a planned branch into a process: the builtin trainer with its job file, or the study's own command."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.errors import TrainError
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import write_atomic
from trajsoup.study.file.trainer import Builtin, Command
from trajsoup.study.train.outcomes import finished_outcome
from trajsoup.study.train.plan import Plan, Run
from trajsoup.study.train.processes import MODULE, BranchProcess

if TYPE_CHECKING:
    from trajsoup.lm.job import BranchJob

COMMAND_RECORD = "command.json"


def builtin_process(job: BranchJob, *, trainer: Builtin) -> BranchProcess:
    """The builtin trainer on one job. Writes branch.json; refuses to resume another recipe."""
    job = job.write()
    start = shlex.split(trainer.launcher) if trainer.launcher else [sys.executable]
    if trainer.launcher is None and (trainer.processes > 1 or trainer.nodes > 1):
        start += ["-m", "torch.distributed.run", f"--nproc-per-node={trainer.processes}"]
    return BranchProcess(
        branch=job.branch,
        words=(*start, "-m", MODULE, str(job.folder / "branch.json")),
        folder=job.folder,
        horizon=job.end,
        checkpoint_every=job.checkpoint_every,
        step_tokens=job.step_tokens,
        builtin=True,
        threads=job.threads or 1,
        needs=trainer.needs,
        stalled_after=trainer.stalled_after,
        finished=finished_outcome(job.branch, job.folder, horizon=job.end),
    )


def command_process(plan: Plan, run: Run, *, fork_point: Path, threads: int) -> BranchProcess:
    """The study's command for one run. The rendered recipe is recorded, and a resume with another is refused."""
    from trajsoup.lm.command_trainer import command_fields, render

    trainer, recipe, branch = plan.study.trainer, plan.study.recipes[run.branch], run.name
    assert isinstance(trainer, Command)
    folder = (plan.study.output / "branches" / branch).absolute()
    latest = _latest_checkpoint(folder)
    fields = command_fields(
        recipe,
        branch=branch,
        output_dir=folder,
        fork_point=fork_point.absolute(),
        positions=run.positions,
        sequence_length=plan.sequence_length,
        latest_checkpoint=latest,
    )
    words = render(trainer.command, fields, where="trainer.command")
    if latest is not None and trainer.resume_command is not None:
        words = render(trainer.resume_command, fields, where="trainer.resume_command")
    fields.pop("latest_checkpoint")
    _require_same(folder / COMMAND_RECORD, {"command": trainer.command, **fields}, branch, resuming=latest is not None)
    return BranchProcess(
        branch=branch,
        words=tuple(words),
        folder=folder,
        horizon=run.positions.horizon,
        checkpoint_every=run.positions.checkpoint_every,
        step_tokens=recipe.global_batch * plan.sequence_length,
        builtin=False,
        threads=threads,
        environment=tuple(trainer.environment.items()),
        needs=trainer.needs,
        stalled_after=trainer.stalled_after,
        finished=finished_outcome(branch, folder, horizon=run.positions.horizon),
    )


def _require_same(record: Path, fields: dict[str, str], branch: str, *, resuming: bool) -> None:
    if record.is_file() and resuming:
        before = read_json(record, dict[str, str], cure=f"move {record.parent} away", error=TrainError)
        changed = [
            f"{k}: {before.get(k)} -> {fields.get(k)}"
            for k in sorted(before | fields)
            if before.get(k) != fields.get(k)
        ]
        if changed:
            raise TrainError(
                f"branch {branch!r} was trained with another command or recipe ({'; '.join(changed)}): undo the change, give "
                f"the branch a new name, or move {record.parent} away"
            )
    write_atomic(record, json.dumps(fields, indent=1) + "\n")


def _latest_checkpoint(folder: Path) -> Path | None:
    from trajsoup.errors import ScanError
    from trajsoup.store.runs import scan_run

    if not folder.is_dir():
        return None
    try:
        return Path(str(scan_run(folder).checkpoints[-1].path))
    except ScanError:
        return None
