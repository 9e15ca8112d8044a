"""What trainers log in forms of their own: TensorBoard's event files, W&B's logs and summaries, OLMo-core's trainer state.

All become `Point`s (metrics.py). These are asked only where a run has no trainer_state.json, metrics.csv
or metrics.jsonl: the same losses would count twice, once in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trajsoup.errors import CheckpointError
from trajsoup.store.event_files import PATTERN, read_event_files
from trajsoup.store.formats.torch_archive import Archive, begins_as_archive
from trajsoup.store.json_file import load_json
from trajsoup.store.metrics import Point, point_of
from trajsoup.store.regular import read_words
from trajsoup.store.remote import Place, RemotePath
from trajsoup.store.wandb_files import SUFFIX as WANDB
from trajsoup.store.wandb_files import read_wandb_files

DEPTH = 4  # folders below a run: torchtitan's tb/DATE, lightning_logs/version_0, wandb/run-*/files
LATEST = ("latest_checkpointed_iteration.txt", "latest.txt")  # of Megatron, of nanotron: the last one that is whole
SUMMARY = "wandb-summary.json"


def read_logs(run: Place, checkpoints: Sequence[Place]) -> list[Point]:
    """Losses and tokens of every event file or log of W&B below a run, but not inside its checkpoints.

    The first kind that is there counts: event files, W&B's logs, the last row in its summaries.
    """
    if isinstance(run, RemotePath) or not run.is_dir():
        return []
    events: list[Place] = []
    logs: list[Place] = []
    summaries: list[Place] = []
    level: list[Path] = [run]
    for _ in range(DEPTH):
        inner: list[Path] = []
        for folder in level:
            for path in sorted(folder.iterdir()):
                if path.is_dir():
                    inner += [path] if path not in checkpoints and not path.is_symlink() else []
                elif path.name.startswith(PATTERN):
                    events.append(path)
                elif path.suffix == WANDB:
                    logs.append(path)
                elif path.name == SUMMARY:
                    summaries.append(path)
        level = inner
    points = [point_of({**tags, "step": step}, f"{run}, step {step}") for step, tags in read_event_files(events)]
    if not events:
        points = [point_of({**row, "_step": step}, f"{run}, step {step}") for step, row in read_wandb_files(logs)]
    for path in summaries if not logs else ():
        summary = load_json(path)
        if isinstance(summary.get("_step"), int):
            numbers = {key: value for key, value in summary.items() if isinstance(value, int | float)}
            points.append(point_of({**numbers, "step": summary["_step"]}, str(path)))
    return points


def read_olmo_core(checkpoint: Place) -> Point | None:
    """Step and tokens as OLMo-core's trainer keeps them beside a checkpoint; None where it does not, or as no data."""
    path = checkpoint / "train" / "rank0.pt"
    if not path.is_file() or not begins_as_archive(path):
        return None
    try:
        state = Archive(path).tree
    except CheckpointError:
        return None  # a callback keeps objects of its own there
    found = {"step": state.get("global_step"), "tokens": state.get("global_train_tokens_seen")}
    return point_of(found, str(path)) if all(type(n) is int for n in found.values()) else None


def last_whole(folder: Place) -> tuple[int, str] | None:
    """The iteration up to which Megatron or nanotron says that its checkpoints are whole, and the file that says so."""
    for name in LATEST:
        text = read_words(folder / name, errors="replace").strip() if (folder / name).is_file() else ""
        if text.isdecimal() and len(text) < 20:
            return int(text), name
    return None
