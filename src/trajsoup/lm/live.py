"""Soups in memory: rows of W that a live model becomes, one after the other. Nothing is written to disk.

    checkpoints, rows -> blend (one read) -> an image of the model per row -> the model becomes it -> scored -> next row

The images of a batch of rows come out of a single read of the checkpoints. A batch is as large as the memory it may use
allows; with a small model that is a whole sweep. The next batch goes into the same images: fresh memory costs more than a
second read of files that the page cache holds, so from those no more is taken than pays. A model on another device leaves
the processor to us: then there are two sets of images, and the next batch is blended while this one is scored. Beside a
model that uses all cores that gained nothing. Where the model alone fits, the blocks go straight into its parameters.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.layout import Layout, make_layout
from trajsoup.engine.sinks import MemorySink
from trajsoup.engine.workers import Options
from trajsoup.errors import CheckpointError, ScoreError
from trajsoup.lm.images import ImageSink, image_bytes, new_image, own_image, torch_view
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
    ahead: bool | None = None,
    exact_from: str | None = None,
    options: Options | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[Row]:
    """Yield each row after the model has become it. That lasts until the next row is asked for.

    `checkpoints` maps the keys of the rows to opened checkpoints; the model is one of them, loaded, or one of the same
    architecture. Its parameters may lie elsewhere in memory afterwards. With `ahead`, the next read's rows are blended
    while these are in use; None: if the model is on another device. An error in the middle leaves the model in an
    undefined state: load it again.
    """
    if not rows:
        return
    used = {key: checkpoints[key] for row in rows for key in row.weights}
    first = next(iter(used.values()))
    for other in used.values():
        require_same(first, other)
    layout = make_layout(first)
    placement = find_placement(model, [name for file in layout.files for name in file.header.tensors])
    here = all(tensor.device.type == "cpu" for tensor in placement.tensors)
    own = [own_image(placement)] if here else []
    ahead = not here if ahead is None else ahead
    room = (memory_bytes // max(image_bytes(placement), 1) + len(own)) // (2 if ahead else 1)
    stop = threading.Event()

    def fill(batch: Sequence[Row], places: Sequence[Placement]) -> None:
        sinks = [ImageSink(layout, into, stop=stop) for into in places]
        blend(used, batch, sinks, layout=layout, exact_from=exact_from, options=options, progress=progress)
        for sink in sinks:
            sink.finish()

    if room < (1 if ahead else 2):
        for row in rows:
            fill([row], [placement])
            yield row
        return
    at_once = _rows_at_once(room, len(rows), layout=layout, used=used)
    batches = [rows[start : start + at_once] for start in range(0, len(rows), at_once)]
    wanted = sum(map(len, batches[: 2 if ahead else 1]))
    images = [*own, *(new_image(placement) for _ in range(wanted - len(own)))]
    sets = [images[:at_once], images[at_once:] or images]  # with two, one is in use while the other is filled

    def submit(number: int) -> Future[None]:
        return filler.submit(fill, batches[number], [i.placement for i in sets[number % 2][: len(batches[number])]])

    with ThreadPoolExecutor(1, thread_name_prefix="next-rows") as filler:
        following = None
        try:
            for number, batch in enumerate(batches):
                (following or submit(number)).result()
                following = None
                for place, row in enumerate(batch):
                    sets[number % 2][place].become(placement)
                    if (
                        ahead and place == 0 and number + 1 < len(batches)
                    ):  # of the other set nothing is in use any more
                        following = submit(number + 1)
                    yield row
        finally:
            stop.set()


def _rows_at_once(room: int, count: int, *, layout: Layout, used: Mapping[str, Checkpoint]) -> int:
    """Rows of one read: what there is room for, or what pays."""
    files = [path for checkpoint in used.values() for path in checkpoint.files]
    is_remote = any(isinstance(path, RemotePath) for path in files)
    if count * layout.nbytes > WARM_BYTES and not is_remote and is_warm(files):
        room = min(room, max(WARM_ROWS, WARM_BYTES // layout.nbytes))
    return min(room, count)


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


def as_tensors(sink: MemorySink) -> dict[str, torch.Tensor]:
    """The tensors of a finished row as torch tensors over the same memory."""
    kinds = {name: t.dtype for file in sink.layout.files for name, t in file.header.tensors.items()}
    return {
        name: torch_view(array.reshape(-1).view(np.uint8), kinds[name]).view(array.shape)
        for name, array in sink.tensors().items()
    }
