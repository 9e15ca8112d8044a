"""FP8 out: blocks of fp32 come in, codes and scales go out, and what rounding to codes lost is measured.

    blend (Layout.wide) -> Requantising: bands of blocks, filled in any order -> codes, scales -> sink (Layout)

A scale needs its whole block, so a band of 128 rows is held until all of it has come: blocks come nearly in order, so
about as many bands as there are threads.
"""

from __future__ import annotations

import bisect
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajsoup.engine.blend import Sink
from trajsoup.engine.kernels import accelerated
from trajsoup.engine.layout import Layout
from trajsoup.store.formats.safetensors import Entry
from trajsoup.store.fp8 import CODES, SUFFIX, Blocks, Quantised, quantised


class Requantising:
    """A sink for the blocks of `layout.wide` before the sink of `layout`."""

    waits = True

    def __init__(self, sink: Sink, layout: Layout, *, accelerate: bool | None = None) -> None:
        assert layout.wide is not None
        self._sink = sink
        self._quantise = _quantiser(accelerate)
        self._places: list[list[_Place]] = []
        for wide, real in zip(layout.wide.files, layout.files, strict=True):
            entries = real.header.tensors
            self._places.append(
                [
                    _Place(entry.offset, entry, entries[name], entries.get(name + SUFFIX), layout.blocks.get(name))
                    for name, entry in wide.header.tensors.items()
                    if entry.nbytes
                ]
            )
        self._bands: dict[tuple[int, int, int], tuple[NDArray[np.float32], list[int]]] = {}
        self._lost: list[Quantised] = []
        self._lock = threading.Lock()

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Take bytes of one or several tensors, each by its own way."""
        places = self._places[file]
        at = bisect.bisect_right(places, offset, key=lambda place: place.begin) - 1
        while block:
            place = places[at]
            within = offset - place.begin
            piece = block[: place.wide.nbytes - within]
            if place.blocks is None:
                self._sink.write(file, place.real.offset + within, piece)
            else:
                self._fill(file, at, place, within // 4, np.frombuffer(piece, np.float32))
            block, offset, at = block[len(piece) :], offset + len(piece), at + 1

    def cancel(self) -> None:
        """Pass it on."""
        self._sink.cancel()

    def record(self) -> dict[str, Any]:
        """For soup.json: what was lost. fsum, since bands come in any order."""
        magnitude = math.fsum(q.magnitude for q in self._lost)
        mean = math.fsum(q.error for q in self._lost) / magnitude if magnitude else 0.0
        return {
            "dtype": CODES,
            "tensors": sum(place.blocks is not None for places in self._places for place in places),
            "mean_relative_error": float(f"{mean:.6g}"),  # sum of errors over sum of magnitudes
            "max_relative_error": float(f"{max((q.largest for q in self._lost), default=0.0):.6g}"),
        }

    def _fill(self, file: int, at: int, place: _Place, first: int, values: NDArray[np.float32]) -> None:
        assert place.blocks is not None
        rows, columns = place.wide.shape
        size = place.blocks.rows * columns
        while len(values):
            band = first // size
            key, length = (file, at, band), min(size, rows * columns - band * size)
            part = values[: (band * size + length) - first]
            with self._lock:
                if key not in self._bands:
                    self._bands[key] = np.empty(length, np.float32), [length]
                held, left = self._bands[key]
            held[first - band * size : first - band * size + len(part)] = part
            with self._lock:
                left[0] -= len(part)
                whole = not left[0] and self._bands.pop(key)
            if whole:
                self._hand_on(file, place, band, held.reshape(-1, columns))
            values, first = values[len(part) :], first + len(part)

    def _hand_on(self, file: int, place: _Place, band: int, values: NDArray[np.float32]) -> None:
        assert place.blocks is not None
        assert place.scales is not None
        made = self._quantise(values, place.blocks)
        row_bytes = place.scales.nbytes // place.scales.shape[0]
        begin = place.real.offset + band * place.blocks.rows * values.shape[1]
        self._sink.write(file, begin, made.codes.data.cast("B"))
        self._sink.write(file, place.scales.offset + band * row_bytes, made.scales.data.cast("B"))
        with self._lock:  # the numbers alone
            self._lost.append(Quantised(_NOTHING, _NOTHING, made.error, made.magnitude, made.largest))


class _Place(NamedTuple):
    begin: int
    wide: Entry
    real: Entry
    scales: Entry | None
    blocks: Blocks | None


_NOTHING = np.empty(0, np.uint8)


def _quantiser(accelerate: bool | None) -> Callable[[NDArray[np.float32], Blocks], Quantised]:
    if accelerate or (accelerate is None and accelerated()):
        from trajsoup.engine.accelerated_fp8 import quantised as compiled

        return compiled
    return quantised
