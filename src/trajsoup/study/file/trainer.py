"""The `trainer` field of a study file: the builtin trainer and its settings, or a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from trajsoup.core.quantity import Count, Positive
from trajsoup.engine.executor import Needs
from trajsoup.errors import StudyError
from trajsoup.lm.job import Precision, Sharding
from trajsoup.store.fields import NO_RESULTS, At, Name, Shapes, declared, read
from trajsoup.store.yaml_file import check_keys

SEVERAL = Shapes(lambda value: value != 1)  # several processes add up in another order; where they run changes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainWith:
    """Who trains, and what a branch takes on each of its nodes."""

    processes: Annotated[int, SEVERAL] = 1  # on each node
    cpus: Annotated[Positive | None, NO_RESULTS, "On each node, for Ray and Slurm. Default: one for each process."] = (
        None
    )
    gpus: Annotated[float, NO_RESULTS, "On each node, for Ray and Slurm."] = 0
    nodes: Annotated[
        Count, SEVERAL, "Machines of one branch. Needs --engine ray, or a command that reaches them all."
    ] = 1
    stalled_after: Annotated[
        Positive | None, NO_RESULTS, "Seconds without a new line in metrics or log: the branch hangs. Default: never."
    ] = None

    def __post_init__(self) -> None:
        if self.gpus < 0:
            raise StudyError(f"gpus is {self.gpus:g}: use a number of 0 or more")

    @property
    def needs(self) -> Needs:
        """What a branch asks of a cluster."""
        return Needs(cpus=self.processes if self.cpus is None else self.cpus, gpus=self.gpus, nodes=self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin(TrainWith):
    """The builtin trainer."""

    micro_batch: Annotated[Count | None, "Sequences in one pass of one process. Default: its whole share."] = None
    precision: Annotated[Precision, "fp32 (the faster one on CPUs) or bf16."] = Precision.FP32
    sharding: Annotated[Sharding, "Of several processes: ddp or fsdp2."] = Sharding.DDP
    processes: Annotated[Count, SEVERAL, "Processes of a branch on each of its nodes, started by torchrun."] = 1
    launcher: Annotated[
        str | None, "Instead of torchrun: what starts the processes, such as `accelerate launch --num_processes 8`."
    ] = None

    def __post_init__(self) -> None:
        TrainWith.__post_init__(self)
        if self.processes > 1 and self.launcher is not None:
            raise StudyError("launcher and processes both say how many: name one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(TrainWith):
    """The study's own training script."""

    command: Annotated[str, "Your training command; {peak_lr}, {seed}, {output_dir} ... are filled in for each branch."]
    resume_command: Annotated[str | None, "Used where the branch has checkpoints. Default: the same command again."] = (
        None
    )
    environment: Annotated[Mapping[str, Name], "Added to the command's environment."] = field(
        default_factory=dict[str, str]
    )

    def __post_init__(self) -> None:
        TrainWith.__post_init__(self)
        if not self.command.strip():
            raise StudyError("`command` is empty: write your training command")
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise StudyError(
                    f"environment: {name!r:.100} cannot be the name of a variable with that value: correct it"
                )


def parse_trainer(data: Any, *, where: At) -> Builtin | Command:
    """Read the field in any of its three forms."""
    if data == "builtin":
        return Builtin()
    if isinstance(data, str):
        raise StudyError(f"{where} is {data!r}: use builtin, or `command: ...`")
    check_keys(data, ("builtin", *(f.key for f in declared(Command))), where=where)
    if "builtin" not in data:
        return read(Command, data, where=where)
    if len(data) > 1:
        raise StudyError(f"{where}: use either builtin or command")
    return read(Builtin, data["builtin"] or {}, where=where.below("builtin"))
