"""The `trainer` field of a study file: the builtin trainer and its settings, or a command."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trajsoup.core.quantity import parse_number, parse_whole
from trajsoup.engine.executor import Needs
from trajsoup.errors import StudyError
from trajsoup.store.yaml_file import check_keys

BUILTIN_FIELDS = {
    "micro_batch": "Sequences in one forward pass of one process. Default: the whole share of the process.",
    "precision": "fp32 (default; the faster one on CPUs) or bf16.",
    "sharding": "Of several processes: ddp (default) or fsdp2.",
    "processes": "Processes of a branch on each of its nodes, started by torchrun. Default 1.",
    "launcher": "Instead of torchrun: a command that starts the processes, such as `accelerate launch --num_processes 8`.",
}
RESOURCE_FIELDS = {
    "cpus": "CPUs that a branch takes on each of its nodes, for Ray and Slurm. Default: one for each process.",
    "gpus": "GPUs that a branch takes on each of its nodes, for Ray and Slurm. Default 0.",
    "nodes": "Machines that one branch spans. Default 1. Needs --engine ray, or a command that reaches them all.",
    "stalled_after": "Seconds without a new line in metrics or log after which a branch counts as hung. Default: never.",
}
COMMAND_FIELDS = {
    "command": "Your training command; {peak_lr}, {seed}, {output_dir} and the like are filled in for each branch.",
    "resume_command": "Used instead when the branch has checkpoints already. Default: the same command again.",
    "environment": "Variables added to the command's environment.",
}
SHAPES_RESULTS = "shapes results"  # metadata of a field: for which values; without it, for all
NEVER = {SHAPES_RESULTS: lambda value: False}  # where a branch runs changes nothing in it
SEVERAL = {SHAPES_RESULTS: lambda value: value != 1}  # several processes add up in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainWith:
    """Who trains. `command` None means the builtin trainer."""

    micro_batch: int | None = None
    precision: str = "fp32"
    sharding: str = "ddp"
    launcher: str | None = None
    command: str | None = None
    resume_command: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    processes: int = field(default=1, metadata=SEVERAL)  # on each node
    cpus: float | None = field(default=None, metadata=NEVER)  # on each node
    gpus: float = field(default=0, metadata=NEVER)  # on each node
    nodes: int = field(default=1, metadata=SEVERAL)
    stalled_after: float | None = field(default=None, metadata=NEVER)  # seconds

    @property
    def needs(self) -> Needs:
        """What a branch asks of a cluster."""
        return Needs(cpus=self.processes if self.cpus is None else self.cpus, gpus=self.gpus, nodes=self.nodes)

    @property
    def is_builtin(self) -> bool:
        """Whether the builtin trainer is used."""
        return self.command is None


def parse_trainer(data: Any, *, where: str) -> TrainWith:
    """Read the field in any of its three forms."""
    if data == "builtin":
        return TrainWith()
    if isinstance(data, str):
        raise StudyError(f"{where} is {data!r}: use builtin, or `command: ...`")
    check_keys(data, ("builtin", *COMMAND_FIELDS, *RESOURCE_FIELDS), where=where)
    if "builtin" in data:
        if len(data) > 1:
            raise StudyError(f"{where}: use either builtin or command")
        return _builtin(data["builtin"] or {}, f"{where}: builtin")
    if not isinstance(data.get("command"), str) or not data["command"].strip():
        raise StudyError(f"{where}: `command` is missing: {COMMAND_FIELDS['command']}")
    environment = data.get("environment") or {}
    if not isinstance(environment, dict):
        raise StudyError(f"{where}: environment: expected `NAME: value` lines, got {environment!r}")
    resume = data.get("resume_command")
    if not isinstance(resume, str | None):
        raise StudyError(f"{where}: resume_command is {resume!r}: write it as one line of text")
    return TrainWith(
        command=data["command"],
        resume_command=resume,
        environment=tuple((str(name), str(value)) for name, value in environment.items()),
        **_resources(data, where),
    )


def _builtin(data: Any, where: str) -> TrainWith:
    check_keys(data, (*BUILTIN_FIELDS, *RESOURCE_FIELDS), where=where)
    micro = data.get("micro_batch")
    precision, sharding = str(data.get("precision", "fp32")), str(data.get("sharding", "ddp"))
    if precision not in ("fp32", "bf16"):
        raise StudyError(f"{where}: precision is {precision!r}: use fp32 or bf16")
    if sharding not in ("ddp", "fsdp2"):
        raise StudyError(f"{where}: sharding is {sharding!r}: use ddp or fsdp2")
    launcher = data.get("launcher")
    if not isinstance(launcher, str | None):
        raise StudyError(f"{where}: launcher is {launcher!r}: write it as one line of text")
    processes = parse_whole(data.get("processes", 1), where=f"{where}: processes", least=1)
    if processes > 1 and launcher is not None:
        raise StudyError(f"{where}: launcher and processes both say how many: name one of them")
    return TrainWith(
        micro_batch=None if micro is None else parse_whole(micro, where=f"{where}: micro_batch", least=1),
        precision=precision,
        sharding=sharding,
        launcher=launcher,
        processes=processes,
        **_resources(data, where),
    )


def _resources(data: Any, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {"nodes": parse_whole(data.get("nodes", 1), where=f"{where}: nodes", least=1)}
    for name in ("cpus", "gpus", "stalled_after"):
        if data.get(name) is not None:
            found[name] = parse_number(data[name], where=f"{where}: {name}")
            if found[name] < 0 or (found[name] == 0 and name != "gpus"):
                raise StudyError(f"{where}: {name} is {data[name]!r}: use a number above 0")
    return found
