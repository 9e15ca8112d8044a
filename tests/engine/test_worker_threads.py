"""The threads of a pass: every block once, and the first error stops them all."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from trajsoup.engine.layout import make_layout, spans
from trajsoup.engine.workers import Options, Slices, Workers
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.store.formats.safetensors import build_header


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    lead, _ = build_header([("w", "F32", (20_000,))], metadata={}, align=8)
    path = tmp_path / "model.safetensors"
    path.write_bytes(lead + np.arange(20_000, dtype=np.float32).tobytes())
    return open_checkpoint(path)


@pytest.mark.parametrize("direct", [True, False])
def test_every_element_is_handed_over_once(checkpoint, direct):
    seen: list[float] = []
    lock = threading.Lock()

    def start():
        def use(slices: Slices) -> None:
            bits, starts = slices.bits()
            values = bits[0, starts[0] : starts[0] + slices.block.items].view(np.float32)
            assert bytes(slices.views()[0]) == values.tobytes()
            with lock:
                seen.extend(values.tolist())

        return use

    workers = Workers([checkpoint], options=Options(workers=3, block_bytes=4096, direct=direct))
    workers.run(spans(make_layout(checkpoint), [checkpoint]), start)
    assert sorted(seen) == list(range(20_000))


def test_the_first_error_stops_the_pass_and_frees_whoever_waits(checkpoint):
    cancelled: list[bool] = []
    blocks: list[int] = []

    def start():
        def use(slices: Slices) -> None:
            blocks.append(slices.number)
            if slices.number == 2:
                raise ValueError("block 2")

        return use

    workers = Workers([checkpoint], options=Options(workers=1, block_bytes=4096))
    with pytest.raises(ValueError, match="block 2"):
        workers.run(spans(make_layout(checkpoint), [checkpoint]), start, cancel=lambda: cancelled.append(True))
    assert cancelled == [True]
    assert blocks == [0, 1, 2]


def test_blocks_are_multiples_of_the_grain_within_the_budget(checkpoint):
    options = Options(workers=2, direct=False, buffer_bytes=1_000_000)
    assert Workers([checkpoint] * 4, options=options, outputs=1).block_bytes == 98_304
    assert Workers([checkpoint] * 4, options=options, grain=32_768).block_bytes == 98_304
    assert Workers([checkpoint] * 400, options=options, grain=32_768).block_bytes == 32_768


def test_many_outputs_in_memory_share_the_cache_and_those_on_disk_get_long_blocks(checkpoint):
    warm = Options(workers=1, direct=False)
    alone = Workers([checkpoint] * 12, options=warm, outputs=1).block_bytes
    assert Workers([checkpoint] * 12, options=warm, outputs=12).block_bytes == 256 << 10 < alone
    assert Workers([checkpoint] * 12, options=warm, outputs=12, waits=True).block_bytes == alone
