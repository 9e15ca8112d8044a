"""A callback of transformers' Trainer: tokens and losses as `scan` reads them, and only the checkpoints that a soup can use.

Trainer events -> metrics.jsonl beside the checkpoints (step, tokens, train_loss, val_loss) -> scan, merge, watch
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trajsoup.store.confined import append_own

METRICS = "metrics.jsonl"
NEWEST = 2  # always kept: one to resume from, and one that may not be scored yet


class SoupCallback(TrainerCallback):
    """Write what a merge needs to know of a run, while it runs.

    `tokens_per_step` counts where Trainer does not (`include_num_input_tokens_seen`). With `keep`, checkpoints that are
    neither among the `keep` lowest validation losses nor the newest two are deleted as soon as they are scored; without
    it nothing is ever deleted.

    >>> Trainer(..., callbacks=[SoupCallback(tokens_per_step=65536, keep=6)])  # doctest: +SKIP
    """

    def __init__(self, *, tokens_per_step: int | None = None, keep: int | None = None) -> None:
        if keep is not None and keep < 1:
            raise ValueError(f"keep is {keep}: a soup needs one checkpoint at least")
        self.tokens_per_step, self.keep = tokens_per_step, keep
        self.losses: dict[int, float] = {}  # step -> validation loss

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write the training loss, or the validation loss, of this step."""
        if not state.is_world_process_zero or not logs:
            return
        found = {"train_loss": logs.get("loss"), "val_loss": logs.get("eval_loss")}
        known = {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}
        if not known:
            return
        if "val_loss" in known:
            self.losses[state.global_step] = known["val_loss"]
        line = {"step": state.global_step, **self._tokens(args, state), **known}
        folder = Path(str(args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        with append_own(folder / METRICS) as file:
            file.write(f"{json.dumps(line)}\n".encode())

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Delete what no soup of the best `keep` can use."""
        if self.keep is None or not state.is_world_process_zero:
            return
        saved = {int(p.name.rpartition("-")[2]): p for p in Path(str(args.output_dir)).glob("checkpoint-[0-9]*")}
        best = sorted((step for step in saved if step in self.losses), key=lambda s: (self.losses[s], s))[: self.keep]
        kept = {*best, *sorted(saved)[-NEWEST:]}
        for step, folder in saved.items():
            if step not in kept and step in self.losses:  # what was never scored is not judged
                shutil.rmtree(folder)
        self.losses = {step: loss for step, loss in self.losses.items() if step in kept or step not in saved}

    def _tokens(self, args: TrainingArguments, state: TrainerState) -> dict[str, int]:
        seen = int(getattr(state, "num_input_tokens_seen", 0) or 0)
        if seen:
            return {"tokens": seen}
        return {} if self.tokens_per_step is None else {"tokens": state.global_step * self.tokens_per_step}
