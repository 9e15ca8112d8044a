"""Soups as memory that a live model can be: its parameters are pointed at it, and nothing is copied.

    blocks of a row -> Image (in the model's own dtype and shapes) -> become(): the model is the row

On a processor that is free. On another device the numbers have to travel: once, as they will be used.
"""

from __future__ import annotations

import bisect
import mmap
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trajsoup.engine.layout import Layout
from trajsoup.lm.placement import Placement

if TYPE_CHECKING:
    import torch


ALIGNED_BYTES = 64  # as torch's own memory: a kernel may take another way through what is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One set of numbers for all parameters and buffers of a model."""

    placement: Placement  # where a checkpoint's tensors go in it
    numbers: Sequence[torch.Tensor]  # as the model's own tensors, in their order

    def become(self, model: Placement) -> None:
        """Let the model of this placement have these numbers."""
        import torch

        with torch.no_grad():
            for tensor, own in zip(model.tensors, self.numbers, strict=True):
                if tensor.device == own.device:
                    tensor.data = own
                else:
                    tensor.copy_(own)


def own_image(placement: Placement) -> Image:
    """The memory that the model has now."""
    return Image(placement=placement, numbers=[tensor.detach() for tensor in placement.tensors])


def new_image(placement: Placement) -> Image:
    """Fresh memory of this machine for all that the model holds. What shares memory there, shares it here."""
    import torch

    raw = mmap.mmap(-1, max(image_bytes(placement), 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    found: dict[int, torch.UntypedStorage] = {}
    begin = 0
    with torch.inference_mode(mode=False):  # what is made in it cannot be trained
        for address, nbytes in _pieces(placement).items():
            piece = torch.frombuffer(raw, dtype=torch.uint8, count=nbytes, offset=begin) if nbytes else torch.empty(0)
            found[address] = piece.untyped_storage()
            begin += _aligned(nbytes)

        def like(tensor: torch.Tensor) -> torch.Tensor:
            memory = found[tensor.untyped_storage().data_ptr()]
            empty = torch.empty(0, dtype=tensor.dtype)
            return empty.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())

        numbers = [like(tensor) for tensor in placement.tensors]
        views = {name: like(view) for name, view in placement.views.items()}
    return Image(placement=Placement(views=views, tensors=numbers), numbers=numbers)


def image_bytes(placement: Placement) -> int:
    """Memory of one."""
    return sum(_aligned(nbytes) for nbytes in _pieces(placement).values())


def _pieces(placement: Placement) -> dict[int, int]:
    """Bytes of each piece of memory that the model holds, by address."""
    stored = [tensor.untyped_storage() for tensor in placement.tensors]
    return {s.data_ptr(): s.nbytes() for s in stored}


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNED_BYTES) * ALIGNED_BYTES


class ImageSink:
    """Takes the blocks of one row and puts them where they belong in a model or an image of it."""

    waits = False

    def __init__(self, layout: Layout, placement: Placement, *, stop: threading.Event | None = None) -> None:
        self._placement, self._stop = placement, stop or threading.Event()
        self._kinds = {name: t.dtype for file in layout.files for name, t in file.header.tensors.items()}
        self._files = [
            sorted((t.offset, t.nbytes, name) for name, t in file.header.tensors.items() if t.nbytes)
            for file in layout.files
        ]
        self._staged: dict[str, torch.Tensor] = {}  # of views that do not lie together: whole, until finish
        self._flat: dict[str, torch.Tensor] = {}
        self._bytes: dict[str, np.ndarray] = {}  # of those that need no conversion
        for name, view in placement.views.items():
            if not view.is_contiguous():
                self._staged[name] = view.new_empty(view.shape)
            flat = self._flat[name] = self._staged.get(name, view).view(-1)
            if flat.device.type == "cpu" and flat.dtype == torch_dtype(self._kinds[name]):
                self._bytes[name] = flat.view(torch_dtype("U8")).numpy()

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Put a block, which may hold the end of one tensor and the beginning of the next, into place."""
        if self._stop.is_set():
            raise CancelledError("the rows are not wanted any more")
        tensors = self._files[file]
        number = bisect.bisect_right(tensors, (offset, float("inf"), "")) - 1
        done = 0
        while done < len(block):
            start, nbytes, name = tensors[number]
            size = min(start + nbytes - offset - done, len(block) - done)
            raw, first = np.frombuffer(block[done : done + size], np.uint8), offset + done - start
            if name in self._bytes:
                self._bytes[name][first : first + size] = raw
            elif name in self._flat:
                values = torch_view(raw, self._kinds[name])
                first //= values.element_size()
                self._flat[name][first : first + len(values)] = values
            done += size
            number += 1

    def cancel(self) -> None:
        """Nothing waits here."""

    def finish(self) -> None:
        """Copy what was staged."""
        self._placement.copy(self._staged)


def torch_view(raw: np.ndarray, dtype: str) -> torch.Tensor:
    """Look at bytes as numbers of a safetensors dtype."""
    import torch

    kind = torch_dtype(dtype)
    return torch.frombuffer(raw, dtype=kind) if len(raw) else torch.empty(0, dtype=kind)


def torch_dtype(dtype: str) -> torch.dtype:
    """What torch calls a safetensors dtype."""
    import torch

    return {
        "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64, "BOOL": torch.bool,
        "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16, "U32": torch.uint32,
        "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64,
    }[dtype]  # fmt: skip
