"""What one branch process is told: a job, written to branch.json and read back by the process that trains.

    study -> BranchJob -> branches/EXP1/branch.json -> python -m trajsoup.lm.branch_process

The same file is what a resumed branch is compared with: a changed recipe is refused, never mixed in.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.recipe import Recipe
from trajsoup.errors import TrainError
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import write_atomic
from trajsoup.store.regular import opened
from trajsoup.store.runs import STATE

RECORD = "branch.json"
SAMPLES, SAMPLE_BYTES = 64, 1 << 16
MAY_CHANGE = frozenset(
    {
        "folder",
        "report_to",
        "log_every",
        "tokenizer",
        "tokens",
        "fork_point",
        "threads",
        "stop_at",
        "restart",
        "mixture",
    }
)


class Precision(StrEnum):
    """In which numbers the forward and backward passes run. Weights and optimizer state are fp32."""

    FP32 = "fp32"  # faster than bf16 on a CPU
    BF16 = "bf16"


class Sharding(StrEnum):
    """How several processes share one branch."""

    DDP = "ddp"  # a whole copy each
    FSDP2 = "fsdp2"  # each holds a part of every tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFile:
    """Where the training tokens lie: a raw array in a file."""

    path: Path
    dtype: str
    offset: int  # bytes
    length: int  # tokens
    digest: str

    def open(self) -> NDArray[Any]:
        """Map the tokens into memory, read-only."""
        try:
            with opened(self.path) as file:
                return np.memmap(file, np.dtype(self.dtype), "r", self.offset, (self.length,))
        except (OSError, ValueError, TypeError, SyntaxError) as error:
            raise TrainError(f"cannot read the tokens of {self.path}: {error}: tokenise the corpus again") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """The documents of one source, and its share of the sequences."""

    source: str
    share: float
    tokens: TokenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Other weights to go on with, as DiLoCo's workers do after an outer step. Optimizers, schedule and data go on."""

    tokens: int  # where
    weights: Path  # a model folder


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchJob:
    """Everything that shapes one branch. Positions are tokens since the fork point."""

    branch: str
    folder: Path  # checkpoints, metrics and state go here
    fork_point: Path
    fork_point_digest: str
    tokens: TokenFile
    recipe: Recipe
    horizon: int
    checkpoint_every: int
    sequence_length: int
    micro_batch: int | None = None  # sequences in one forward pass; None: the whole share of the process
    precision: Precision = Precision.FP32
    sharding: Sharding = Sharding.DDP
    dtype: str = "float32"  # of the weights in checkpoints: the fork point's
    threads: int | None = None  # of each process; kept by a resume, since sums depend on it in the last bit
    tokenizer: Path | None = None  # a folder whose files are copied into every checkpoint
    report_to: tuple[str, ...] = ()  # tensorboard, wandb, mlflow, trackio
    log_every: int | None = None  # steps; None: ten times between two checkpoints
    mixture: tuple[Portion, ...] = ()  # what is read, where the recipe names sources; empty: all tokens
    only: str | None = None  # train parameters whose names end with this, and no others
    stop_at: int | None = None  # tokens where this sitting ends; None: at the horizon
    restart: Restart | None = None

    @property
    def end(self) -> int:
        """Where this sitting ends. The schedule knows the horizon alone."""
        return self.horizon if self.stop_at is None else self.stop_at

    @property
    def step_tokens(self) -> int:
        """Tokens of one optimizer step."""
        return self.recipe.global_batch * self.sequence_length

    @property
    def pass_tokens(self) -> int:
        """Tokens of one forward and backward pass, of all processes together."""
        batch = self.recipe.global_batch
        return min(self.micro_batch or batch, batch) * self.sequence_length

    def write(self) -> BranchJob:
        """Write branch.json into the branch's folder; refuse if a different job already has checkpoints there."""
        path, job = self.folder / RECORD, self
        if path.is_file() and (any(self.folder.glob("checkpoint-*")) or any(self.folder.glob(f"{STATE}*"))):
            before = read_job(path)
            require_same_job(before, self)
            job = dataclasses.replace(self, threads=before.threads)
        write_atomic(path, json.dumps(_plain(dataclasses.asdict(job)), indent=1) + "\n")
        return job


def read_job(path: Path) -> BranchJob:
    """Read branch.json back."""
    return read_json(path, BranchJob, cure="remove its folder", error=TrainError)


def require_same_job(before: BranchJob, now: BranchJob) -> None:
    """Refuse to resume a branch whose recipe, data, fork point or positions changed; show every difference."""
    old, new = _flat(before), _flat(now)
    changed = [f"{key}: {old.get(key)} -> {new.get(key)}" for key in sorted(old | new) if old.get(key) != new.get(key)]
    if changed:
        raise TrainError(
            f"branch {now.branch!r} was trained with another job ({'; '.join(changed)}): undo the change, give the branch a "
            f"new name, or move {now.folder} away"
        )


def fork_point_digest(folder: Path) -> str:
    """Hash the fork point: config whole, every weight file by its size and 64 spread blocks (a checkpoint can be TBs)."""
    files = sorted(p for p in folder.iterdir() if p.suffix == ".safetensors" or p.name == "config.json")
    if not any(p.suffix == ".safetensors" for p in files):
        raise TrainError(f"the fork point {folder} holds no safetensors file: name a Hugging Face model folder")
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}:".encode())
        with opened(path) as file:
            if path.name == "config.json" or size <= SAMPLES * SAMPLE_BYTES:
                digest.update(file.read())
                continue
            for i in range(SAMPLES):
                file.seek((size - SAMPLE_BYTES) * i // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def token_file(tokens: NDArray[Any], *, digest: str, spare: Path) -> TokenFile:
    """Say where a token array lies. One that is in no file is written to `spare` first."""
    if not isinstance(tokens, np.memmap) or tokens.filename is None or not tokens.flags.c_contiguous:
        spare.parent.mkdir(parents=True, exist_ok=True)
        np.ascontiguousarray(tokens).tofile(spare)
        return TokenFile(path=spare, dtype=tokens.dtype.str, offset=0, length=len(tokens), digest=digest)
    return TokenFile(
        path=Path(tokens.filename), dtype=tokens.dtype.str, offset=tokens.offset, length=len(tokens), digest=digest
    )


def _flat(job: BranchJob) -> dict[str, Any]:
    plain = {k: v for k, v in _plain(dataclasses.asdict(job)).items() if k not in MAY_CHANGE}
    del plain["recipe"]
    return {**plain, "corpus": job.tokens.digest, **job.recipe.effective()}


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case Path():
            return str(value)
        case StrEnum():
            return value.value
        case _:
            return value
