"""Merges, uploads and studies under random faults: python benchmarks/faults.py [--minutes 30] [--seed N] [--without-studies]

    kill -9 of a merge or an upload at any moment, a disk that is full, an ingredient rewritten under the merge;
    then (soak.py) a study on Ray whose workers, nodes and command are killed

After each fault the output is whole, byte by byte what it should be, or not there; nothing half is left that loads; and the
same merge, run again, succeeds. Counts add up over invocations in benchmarks/results/faults.md. Ends with 1 if anything was
wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.object_store import find_rclone, s3_server, use_endpoint
from tests.plain_checkpoints import write_plain
from tests.store_digests import digests

from trajsoup.engine.workers import Options
from trajsoup.errors import TrajsoupError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import mean_row, plan_row
from trajsoup.store.publish import MARK

TABLE = Path(__file__).parent / "results" / "faults.md"
HEAD = """# Faults

`make faults MINUTES=30` (benchmarks/faults.py): counts of all invocations. Wrong: an output that is half, differs in a byte
from the undisturbed one, or could not be made afterwards.

| fault | times | in the middle | wrong |
|---|---:|---:|---:|
"""
COUNT, LAYERS, ITEMS = 4, 6, 200_000
PLAIN = Options(accelerate=False)  # loading numba would take longer than the merge, and no kill would hit the merge
Dice = random.Random


class Faults:
    """One pair of versions of the ingredients, and what each should become."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inputs = [folder / f"c{k}" for k in range(COUNT)]
        for k, path in enumerate(self.inputs):
            write_plain(path, _tensors(k), shards=3, files={"config.json": "{}", "tokenizer.json": "{}"})
        self.other = write_plain(folder / "other", _tensors(99), shards=3)
        self.times: Counter[str] = Counter()
        self.middle: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        began = time.monotonic()
        self.expected = [self._made(folder / "quiet")]
        self.seconds = time.monotonic() - began
        self._swap()
        self.expected.append(self._made(folder / "quiet-other"))
        self._swap()

    def kill_merge(self, chance: Dice) -> None:
        """kill -9, then the same merge again."""
        out = self.folder / "soup"
        child = _forked(lambda: self._merge(out))
        time.sleep(chance.uniform(0, 1.1 * self.seconds))
        killed = _kill(child)
        half = list(self.folder.glob(f".{out.name}{MARK}*"))
        fine = (not out.exists() or _weights(out) == self.expected[0]) and not (killed and out.exists() and half)
        if out.exists():
            shutil.rmtree(out)
        fine = fine and _ended(_forked(lambda: self._merge(out))) == 0 and _weights(out) == self.expected[0]
        fine = fine and not list(self.folder.glob(f".{out.name}{MARK}*"))
        shutil.rmtree(out, ignore_errors=True)
        self._count("merge killed", middle=killed, fine=fine)

    def fill_disk(self, chance: Dice) -> None:
        """No file may become longer than this: what a full disk does, on any file system and without root."""
        out = self.folder / "soup"
        limit = chance.randrange(1, 2 * LAYERS // 3 * ITEMS * 4)
        code = _ended(_forked(lambda: self._merge(out, limit=limit)))
        left = [path.name for path in self.folder.iterdir() if path.name.startswith((out.name, f".{out.name}"))]
        fine = (code == 1 and not left) or (code == 0 and _weights(out) == self.expected[0])
        shutil.rmtree(out, ignore_errors=True)
        self._count("disk full", middle=code == 1, fine=fine)

    def tear(self, chance: Dice) -> None:
        """An ingredient becomes another, in place, while it is read: one version or the other, or an error and no output."""
        out = self.folder / "soup"
        child = _forked(lambda: self._merge(out))
        time.sleep(chance.uniform(0, 1.1 * self.seconds))
        self._swap()
        code = _ended(child)
        fine = (code == 1 and not out.exists()) or (code == 0 and _weights(out) in self.expected)
        shutil.rmtree(out, ignore_errors=True)
        self._swap()
        self._count("ingredient rewritten", middle=code == 1, fine=fine)

    def kill_upload(self, chance: Dice, bucket: Path) -> None:
        """kill -9 of a merge into a store, then the same again."""
        child = _forked(lambda: self._merge("s3://soups/soup"))
        time.sleep(chance.uniform(0, 4 * self.seconds))
        killed = _kill(child)
        there = bucket / "soup"
        fine = not (there / "soup.json").exists() or _weights(there) == self.expected[0]
        if (there / "soup.json").exists():
            shutil.rmtree(there)
        fine = fine and _ended(_forked(lambda: self._merge("s3://soups/soup"))) == 0
        fine = fine and _weights(there) == self.expected[0]
        shutil.rmtree(there, ignore_errors=True)
        self._count("upload killed", middle=killed, fine=fine)

    def _count(self, name: str, *, middle: bool, fine: bool) -> None:
        self.times[name] += 1
        self.middle[name] += middle
        self.wrong[name] += not fine
        if not fine:
            print(f"WRONG: {name}, number {self.times[name]}", flush=True)

    def _merge(self, out: Path | str, *, limit: int | None = None) -> int:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            make_soup(plan_row(mean_row(self.inputs)), out, options=PLAIN)
        except (TrajsoupError, OSError):
            return 1
        return 0

    def _made(self, out: Path) -> dict[str, str]:
        make_soup(plan_row(mean_row(self.inputs)), out, options=PLAIN)
        return _weights(out)

    def _swap(self) -> None:
        """The first ingredient and the other one, byte by byte in place."""
        for path in sorted(self.inputs[0].glob("*.safetensors")):
            mine, theirs = path.read_bytes(), (self.other / path.name).read_bytes()
            for place, data in ((path, theirs), (self.other / path.name, mine)):
                with place.open("r+b") as file:
                    file.write(data)


def _tensors(seed: int) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(seed).normal(size=ITEMS).astype("f4")
    return {f"layers.{n}.weight": drawn + n for n in range(LAYERS)}


def _forked(work: Callable[[], int]) -> int:
    """A process of its own, without the seconds that imports take."""
    child = os.fork()
    if child:
        return child
    code = 2
    try:
        os.setsid()
        code = work()
    finally:
        os._exit(code)


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _kill(child: int) -> bool:
    """Whether it was still at work."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return _ended(child) < 0


def _weights(folder: Path) -> dict[str, str]:
    return {Path(name).name: digest for name, digest in digests(folder).items() if name.endswith(".safetensors")}


def add_up(found: dict[str, tuple[int, int, int]]) -> None:
    """Add counts to the table."""
    known: dict[str, tuple[int, ...]] = {}
    for line in TABLE.read_text().splitlines() if TABLE.is_file() else []:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[1].replace(",", "").isdecimal() and cells[0] != "all":
            known[cells[0]] = tuple(int(cell.replace(",", "")) for cell in cells[1:])
    for name, counts in found.items():
        known[name] = tuple(a + b for a, b in zip(known.get(name, (0, 0, 0)), counts, strict=True))
    rows = {**dict(sorted(known.items())), "all": tuple(map(sum, zip(*known.values(), strict=True)))}
    TABLE.write_text(HEAD + "".join(f"| {name} | {a:,} | {b:,} | {c:,} |\n" for name, (a, b, c) in rows.items()))
    print(TABLE.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="default: another one every time")
    parser.add_argument("--without-studies", action="store_true", help="merges and uploads only")
    chosen = parser.parse_args()
    seed = time.time_ns() % 2**32 if chosen.seed is None else chosen.seed
    chance = random.Random(seed)
    share = 1.0 if chosen.without_studies else 0.5
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        faults = Faults(Path(name))
        kinds: list[Callable[[Dice], None]] = [faults.kill_merge, faults.kill_merge, faults.fill_disk, faults.tear]
        if find_rclone() is not None:
            server = stack.enter_context(s3_server(Path(name) / "s3"))
            patch = pytest.MonkeyPatch()
            stack.callback(patch.undo)
            use_endpoint(patch, f"http://{server.host}:{server.port}")
            kinds.append(lambda chance: faults.kill_upload(chance, server.folder / "soups"))
        end = time.monotonic() + 60 * share * chosen.minutes
        while time.monotonic() < end:
            chance.choice(kinds)(chance)
    found = {kind: (n, faults.middle[kind], faults.wrong[kind]) for kind, n in faults.times.items()}
    if not chosen.without_studies:
        found |= _studies(60 * (1 - share) * chosen.minutes, seed)
    add_up(found)
    sys.exit(1 if any(wrong for _, _, wrong in found.values()) else 0)


def _studies(seconds: float, seed: int) -> dict[str, tuple[int, int, int]]:
    """What soak.py counts, in a process of its own: Ray wants one."""
    words = [
        sys.executable,
        str(Path(__file__).with_name("soak.py")),
        "--minutes",
        str(seconds / 60),
        "--seed",
        str(seed),
    ]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    lines = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if line[-1:].isdigit())
    kinds = (
        "worker killed",
        "node killed",
        "command killed",
        "command interrupted",
        "disk full",
        "requests of the store",
    )
    found = {f"study: {kind}": int(lines[kind]) for kind in kinds if kind in lines}
    wrong = int(done.returncode != 0)  # soak.py looks at the whole
    return {kind: (count, count, wrong if i == 0 else 0) for i, (kind, count) in enumerate(found.items())}


if __name__ == "__main__":
    main()
