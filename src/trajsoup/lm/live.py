"""Soups in memory: rows of W streamed into the parameters of a live model. Nothing is written to disk.

    checkpoints, rows -> blend (one read) -> one buffer per row -> copied into the model -> scored -> next row

The buffers of a batch of rows come out of a single read of the checkpoints. A batch is as large as the memory it may
use allows; with a small model that is a whole sweep. The next batch uses the same buffers: fresh memory costs more than
a second read of files that the page cache holds, so from those no more is taken than pays. Where only one row fits, it
needs no buffer: the blocks go straight into the parameters.
"""

from __future__ import annotations

import bisect
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.layout import Layout, make_layout
from trajsoup.engine.sinks import MemorySink
from trajsoup.engine.workers import Options
from trajsoup.errors import CheckpointError, ScoreError
from trajsoup.lm.models import open_model, with_fast_experts
from trajsoup.lm.placement import Placement, find_placement
from trajsoup.store.checkpoint import Checkpoint, require_same, side_files_here
from trajsoup.store.formats.safetensors import Safetensors
from trajsoup.store.fp8 import CONFIG as QUANTIZATION
from trajsoup.store.remote import RemotePath
from trajsoup.store.source import is_warm

if TYPE_CHECKING:
    import torch

MEMORY_BYTES = 2 << 30  # for the rows of one read
WARM_BYTES = 256 << 20  # the same, where a read is cheap
WARM_ROWS = 4  # but at least so many


def stream_rows(
    model: Any,
    checkpoints: Mapping[str, Checkpoint],
    rows: Sequence[Row],
    *,
    memory_bytes: int = MEMORY_BYTES,
    exact_from: str | None = None,
    options: Options | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[Row]:
    """Yield each row after the model has become it. That lasts until the next row is asked for.

    `checkpoints` maps the keys of the rows to opened checkpoints; the model is one of them, loaded, or one of the same
    architecture. An error in the middle leaves the model in an undefined state: load it again.
    """
    if not rows:
        return
    used = {key: checkpoints[key] for row in rows for key in row.weights}
    first = next(iter(used.values()))
    for other in used.values():
        require_same(first, other)
    layout = make_layout(first)
    placement = find_placement(model, [name for file in layout.files for name in file.header.tensors])
    at_once = memory_bytes // layout.nbytes
    if at_once < 2:
        for row in rows:
            sink = LiveSink(layout, placement)
            blend(used, [row], [sink], layout=layout, exact_from=exact_from, options=options, progress=progress)
            sink.finish()
            yield row
        return
    files = [path for checkpoint in used.values() for path in checkpoint.files]
    is_remote = any(isinstance(path, RemotePath) for path in files)
    if len(rows) * layout.nbytes > WARM_BYTES and not is_remote and is_warm(files):
        at_once = min(at_once, max(WARM_ROWS, WARM_BYTES // layout.nbytes))
    sinks = [MemorySink(layout) for _ in rows[:at_once]]
    tensors = [as_tensors(sink) for sink in sinks]
    for start in range(0, len(rows), at_once):
        batch = rows[start : start + at_once]
        blend(
            used, batch, sinks[: len(batch)], layout=layout, exact_from=exact_from, options=options, progress=progress
        )
        for row, values in zip(batch, tensors, strict=False):
            placement.copy(values)
            yield row


def present_device(name: str) -> str:
    """`auto` as the fastest device that torch has here; another name must be one that it has."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        reason = str(error).split("\n", 1)[0]
        raise ScoreError(f"evaluate.device is {name!r}, which torch does not have here ({reason}): use auto") from error
    return name


def load_model(checkpoint: Checkpoint, *, device: str = "cpu", dtype: str = "float32") -> Any:
    """Load a checkpoint with transformers, in evaluation mode."""
    if not (checkpoint.folder / "config.json").is_file():
        raise CheckpointError(
            f"{checkpoint.folder} has no config.json, so no model can be made of its weights: copy the fork point's"
        )
    folder = checkpoint.folder
    computed = any(
        tensor.made is not None for tensor in checkpoint.tensors.values()
    )  # FP8: transformers would want a GPU
    if isinstance(folder, RemotePath) or computed or not isinstance(checkpoint.format, Safetensors):
        model: Any = _through_memory(checkpoint, dtype=dtype)
    else:
        model = open_model(folder, dtype=dtype)
    return model.to(device).eval()


def _through_memory(checkpoint: Checkpoint, *, dtype: str) -> Any:
    """The same from an object store or another format: small files through a temporary folder, weights through memory."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    sink = MemorySink(layout := make_layout(checkpoint))
    blend({"it": checkpoint}, [Row(name="it", weights={"it": 1.0})], [sink], layout=layout)
    with tempfile.TemporaryDirectory(prefix="trajsoup-") as folder:
        config = AutoConfig.from_pretrained(side_files_here(checkpoint, Path(folder)), local_files_only=True)
        if getattr(config, QUANTIZATION, None) is not None:
            delattr(config, QUANTIZATION)
        with torch.device("meta"):  # the class alone is wanted: AutoModelForCausalLM itself insists on a folder
            kind = type(AutoModelForCausalLM.from_config(config))
        weights = as_tensors(sink)
        return with_fast_experts(
            kind.from_pretrained(None, config=config, state_dict=weights, dtype=getattr(torch, dtype))
        )


class LiveSink:
    """Takes the blocks of one row and puts them into the parameters they belong to."""

    waits = False

    def __init__(self, layout: Layout, placement: Placement) -> None:
        self._placement = placement
        self._kinds = {name: t.dtype for file in layout.files for name, t in file.header.tensors.items()}
        self._files = [
            sorted((t.offset, t.nbytes, name) for name, t in file.header.tensors.items() if t.nbytes)
            for file in layout.files
        ]
        self._staged: dict[str, torch.Tensor] = {}  # of views that do not lie together: whole, until finish
        self._flat: dict[str, torch.Tensor] = {}
        for name, view in placement.views.items():
            if view.is_contiguous():
                self._flat[name] = view.view(-1)
            else:
                self._staged[name] = view.new_empty(view.shape)
                self._flat[name] = self._staged[name].view(-1)

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Put a block, which may hold the end of one tensor and the beginning of the next, into place."""
        tensors = self._files[file]
        number = bisect.bisect_right(tensors, (offset, float("inf"), "")) - 1
        done = 0
        while done < len(block):
            start, nbytes, name = tensors[number]
            size = min(start + nbytes - offset - done, len(block) - done)
            if name in self._flat:
                values = torch_view(np.frombuffer(block[done : done + size], np.uint8), self._kinds[name])
                first = (offset + done - start) // values.element_size()
                self._flat[name][first : first + len(values)] = values
            done += size
            number += 1

    def cancel(self) -> None:
        """Nothing waits here."""

    def finish(self) -> None:
        """Copy what was staged."""
        self._placement.copy(self._staged)


def as_tensors(sink: MemorySink) -> dict[str, torch.Tensor]:
    """The tensors of a finished row as torch tensors over the same memory."""
    kinds = {name: t.dtype for file in sink.layout.files for name, t in file.header.tensors.items()}
    return {
        name: torch_view(array.reshape(-1).view(np.uint8), kinds[name]).view(array.shape)
        for name, array in sink.tensors().items()
    }


def torch_view(raw: np.ndarray, dtype: str) -> torch.Tensor:
    """Look at bytes as numbers of a safetensors dtype."""
    import torch

    kinds = {
        "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64, "BOOL": torch.bool,
        "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16, "U32": torch.uint32,
        "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64,
    }  # fmt: skip
    return torch.frombuffer(raw, dtype=kinds[dtype]) if len(raw) else torch.empty(0, dtype=kinds[dtype])
