"""A pass is safe when something breaks in the middle, and its memory is bounded."""

import itertools
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.checkpoints import trajectory, write_raw
from tests.engine.passes import mean_of, soup
from trajsoup.engine.blend import Options, blend
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import FileSink, MemorySink
from trajsoup.errors import CheckpointError
from trajsoup.store.digest import Algorithm
from trajsoup.store.source import Source

PAGE = 4096
MEANS_OF_THREE = [mean_of("c00", "c01", "c02"), mean_of("c00", "c01")]


class Breaking(MemorySink):
    """Acts at its fifth block."""

    def __init__(self, layout, act) -> None:
        super().__init__(layout)
        self.act, self.calls = act, itertools.count()

    def write(self, file, offset, block):
        if next(self.calls) == 5:
            self.act()
        super().write(file, offset, block)


def out_of_space():
    time.sleep(0.2)  # meanwhile the other workers go on, to wait for this block's turn
    raise OSError(28, "No space left on device")


def interrupt():
    time.sleep(0.2)
    raise KeyboardInterrupt


@pytest.mark.timeout(120, method="thread")
@pytest.mark.parametrize("digest", [None, Algorithm.BLAKE3])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("direct", [False, True])
def test_a_file_cut_short_during_the_pass_ends_it_without_a_deadlock(tmp_path, digest, workers, direct):
    checkpoints = trajectory(tmp_path, count=3, items=100_000)
    path = checkpoints["c01"].files[0]
    layout = make_layout(checkpoints["c00"])
    sinks = [Breaking(layout, lambda: os.truncate(path, 3 * PAGE)), MemorySink(layout)]
    options = Options(workers=workers, block_bytes=PAGE, direct=direct)
    with pytest.raises(CheckpointError, match=r"c01/model.safetensors became shorter while it was read"):
        blend(checkpoints, MEANS_OF_THREE, sinks, layout=layout, digest=digest, options=options)


@pytest.mark.timeout(120, method="thread")
@pytest.mark.parametrize("digest", [None, Algorithm.BLAKE3])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(("act", "error"), [(out_of_space, OSError), (interrupt, KeyboardInterrupt)])
def test_an_error_of_one_worker_ends_the_pass_and_reaches_the_caller(tmp_path, digest, workers, act, error):
    checkpoints = trajectory(tmp_path / "in", count=3, items=100_000)
    layout = make_layout(checkpoints["c00"])
    (tmp_path / "out").mkdir()
    options = Options(workers=workers, block_bytes=PAGE)
    with FileSink(tmp_path / "out", layout, digest=digest is not None) as sink, pytest.raises(error):
        blend(checkpoints, MEANS_OF_THREE, [Breaking(layout, act), sink], layout=layout, digest=digest, options=options)


@pytest.mark.timeout(120, method="thread")
@pytest.mark.parametrize("digest", [None, Algorithm.BLAKE3])
def test_a_block_that_cannot_be_read_frees_those_who_wait_to_hash_after_it(tmp_path, monkeypatch, digest):
    checkpoints = trajectory(tmp_path, count=3, items=100_000)
    bad, read = checkpoints["c01"], Source.read
    first = bad.tensors["embed"].boxes[0].offset

    def fail_once(self, buffer, *, offset, nbytes, item_bytes=1):
        if self.path == bad.files[0] and offset == first + 5 * nbytes:
            time.sleep(0.2)
            raise CheckpointError("the disk broke")
        return read(self, buffer, offset=offset, nbytes=nbytes, item_bytes=item_bytes)

    monkeypatch.setattr(Source, "read", fail_once)
    with pytest.raises(CheckpointError, match="the disk broke"):
        soup(checkpoints, *MEANS_OF_THREE, digest=digest, options=Options(workers=4, block_bytes=PAGE))


@pytest.mark.timeout(120, method="thread")
def test_an_error_in_the_progress_reaches_the_caller(tmp_path):
    def fail(nbytes: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        soup(trajectory(tmp_path, count=2), mean_of("c00", "c01"), digest=Algorithm.BLAKE3, progress=fail)


def test_a_pass_leaves_no_descriptor_open_however_it_ends(tmp_path):
    checkpoints = trajectory(tmp_path, count=3)
    before = len(os.listdir("/proc/self/fd"))
    soup(checkpoints, mean_of("c00", "c01", "c02"), options=Options(direct=True))
    checkpoints["c02"].files[0].unlink()
    with pytest.raises(CheckpointError, match="cannot open"):
        soup(checkpoints, mean_of("c00", "c01", "c02"), options=Options(direct=True))
    assert len(os.listdir("/proc/self/fd")) == before


# --- memory

PASS = """
    import sys
    from pathlib import Path
    from trajsoup.core.soup import Row
    from trajsoup.engine.blend import Options, blend
    from trajsoup.engine.layout import make_layout
    from trajsoup.store.checkpoint import open_checkpoint

    class Nowhere:
        waits = False
        def write(self, file, offset, block): pass
        def cancel(self): pass

    def peak():
        return next(int(l.split()[1]) for l in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in l)

    found = {path: open_checkpoint(path) for path in sys.argv[2:]}
    row = Row(name="soup", weights=dict.fromkeys(found, 1 / len(found)))
    layout = make_layout(next(iter(found.values())))
    before = peak()
    options = Options(workers=2, accelerate=False, buffer_bytes=8 << 20, direct=sys.argv[1] == "direct")
    blend(found, [row], [Nowhere()], layout=layout, options=options)
    print(peak() - before)
"""


def peak_kib(folder: Path, *, mib: int, count: int, path: str) -> int:
    """How far a pass over `count` checkpoints of `mib` MiB raises the peak of resident memory. The files are sparse."""
    files = []
    for i in range(count):
        nbytes = mib << 20
        header = {"w": {"dtype": "BF16", "shape": [nbytes // 2], "data_offsets": [0, nbytes]}}
        file = write_raw(folder / f"{mib}-{i}.safetensors", header)
        os.truncate(file, file.stat().st_size + nbytes)
        files.append(str(file))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PASS), path, *files], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("path", ["buffered", "direct"])
def test_peak_memory_grows_neither_with_the_model_nor_with_the_ingredients(tmp_path, path):
    small = peak_kib(tmp_path, mib=8, count=2, path=path)
    assert small < 40 << 10
    assert peak_kib(tmp_path, mib=128, count=2, path=path) < small + (8 << 10)
    assert peak_kib(tmp_path, mib=8, count=32, path=path) < small + (8 << 10)
