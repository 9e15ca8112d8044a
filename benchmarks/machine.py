"""Raw limits of this machine and how a process used it: what every benchmark compares with."""

from __future__ import annotations

import contextlib
import mmap
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

CHUNK = 1 << 20


class DiscardingSink:
    """Takes the blocks of an output and keeps nothing: what a pass computes, and no more."""

    waits = False

    def write(self, file: int, offset: int, block: memoryview) -> None:
        pass

    def cancel(self) -> None:
        pass


def weights_of(folders: Sequence[Path]) -> list[Path]:
    return [file for folder in folders for file in sorted(folder.glob("*.safetensors"))]


def warm(files: Sequence[Path]) -> None:
    for file in files:
        with file.open("rb", buffering=0) as handle:
            while handle.read(16 << 20):
                pass


def cool(files: Sequence[Path]) -> None:
    """Drop the files from the page cache."""
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def sequential_read(files: Sequence[Path], *, direct: bool) -> float:
    """Seconds to read the files one after another on one thread, through the page cache or past it."""
    buffer = memoryview(mmap.mmap(-1, CHUNK))
    begin = time.perf_counter()
    for file in files:
        fd = os.open(file, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        offset = 0
        while got := os.preadv(fd, [buffer], offset):
            offset += got
            if got % 4096:
                break
        os.close(fd)
    return time.perf_counter() - begin


def sequential_write(path: Path, nbytes: int, *, direct: bool) -> float:
    """Seconds to write one file and fsync it."""
    buffer = memoryview(mmap.mmap(-1, 4 * CHUNK))
    buffer[:] = os.urandom(len(buffer))
    begin = time.perf_counter()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | (os.O_DIRECT if direct else 0))
    for offset in range(0, nbytes, len(buffer)):
        os.pwrite(fd, buffer, offset)
    os.fsync(fd)
    seconds = time.perf_counter() - begin
    os.close(fd)
    path.unlink()
    return seconds


def copy_rate(nbytes: int = 256 << 20) -> float:
    """Bytes per second of a copy from memory to memory, on one thread."""
    source, target = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    return nbytes / seconds_of(lambda: np.copyto(target, source))


def sum_rate(nbytes: int = 256 << 20) -> float:
    """Bytes per second that one thread reads from memory."""
    source = np.zeros(nbytes // 8, np.uint64)
    return nbytes / seconds_of(lambda: source.max())


def seconds_of(run: Callable[[], object], *, before: Callable[[], object] = lambda: None, repeat: int = 3) -> float:
    """Median seconds of several runs."""
    times = []
    for _ in range(repeat):
        before()
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def anonymous_peak_reset() -> int:
    """Forget how much memory this process held at most, and say how much it holds."""
    Path("/proc/self/clear_refs").write_text("5")
    return anonymous_peak()


def anonymous_peak() -> int:
    """What this process held at most since then, page cache apart: its resident peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


@contextlib.contextmanager
def watching_memory(process: subprocess.Popen[bytes] | BaseProcess) -> Iterator[list[int]]:
    """Follow the memory of a process (resident, buffers that are mapped included, without files); yields a list that gets
    the peak."""
    peak = [0]
    done = threading.Event()

    def follow() -> None:
        while not done.is_set():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                held = sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))
                peak[0] = max(peak[0], held * 1024)
            done.wait(0.005)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
