"""The merge, side by side with the raw disk, separate merges and mergekit. Prints ratios; writes a dated result.

python benchmarks/blend.py --root DIR --count 12 --gigabytes 1 --peer .venv-mergekit/bin/mergekit-yaml
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from checkpoints import make_checkpoints
from machine import (
    DiscardingSink,
    cool,
    copy_rate,
    seconds_of,
    sequential_read,
    sequential_write,
    sum_rate,
    warm,
    watching_memory,
    weights_of,
)
from trajsoup.core.soup import Row
from trajsoup.engine.blend import Sink, blend
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import FileSink, MemorySink
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.store.digest import Algorithm
from trajsoup.store.stored import Box

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=HERE / ".data", help="where checkpoints and outputs go")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of each checkpoint")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peer", type=Path, help="mergekit-yaml of its own environment")
    parser.add_argument("--large", type=float, default=4.0, help="gigabytes of the large checkpoints (memory only)")
    args = parser.parse_args()
    bench = Bench(args.root, count=args.count, nbytes=int(args.gigabytes * 1e9), shards=args.shards, repeat=args.repeat)
    bench.reading()
    bench.many_outputs()
    bench.roofline()
    bench.start_up()
    if args.peer:
        bench.peer(args.peer.absolute())
    bench.memory(int(args.large * 1e9))
    bench.save()


class Bench:
    def __init__(self, root: Path, *, count: int, nbytes: int, shards: int, repeat: int) -> None:
        self.root, self.repeat, self.shards = root, repeat, shards
        self.load = os.getloadavg()[0]
        root.mkdir(parents=True, exist_ok=True)
        self.paths = make_checkpoints(root, count=count, checkpoint_bytes=nbytes, shards=shards)
        self.files = weights_of(self.paths)
        branches = max(count // 4, 1)
        self.checkpoints = {f"branch{i // 4}/{i % 4}": open_checkpoint(p) for i, p in enumerate(self.paths)}
        self.layout = make_layout(next(iter(self.checkpoints.values())))
        self.gigabytes = sum(c.nbytes for c in self.checkpoints.values()) / 1e9
        keys = list(self.checkpoints)
        self.mean = Row(name="mean", weights=dict.fromkeys(keys, 1 / len(keys)))
        self.rows = [
            Row(name=f"N{n}K{k}", weights={f"branch{b}/{j}": 1 / (n * k) for b in range(n) for j in range(k)})
            for n in range(1, min(branches, 3) + 1)
            for k in range(1, 5)
        ]
        self.lines: list[str] = []
        self.say(f"{len(keys)} checkpoints, {self.gigabytes:.2f} GB, {shards} shards each, median of {repeat}")
        self.run([self.mean], [MemorySink(self.layout)])  # compile the kernels

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)

    def figure(self, what: str, value: float, target: float, unit: str, detail: str, *, at_least: bool = True) -> None:
        met = value >= target if at_least else value <= target
        sign = ">=" if at_least else "<="
        self.say(f"| {what} | {value:.2f}{unit} | {sign} {target:g}{unit} | {'met' if met else 'MISSED'} | {detail} |")

    def run(self, rows: Sequence[Row], sinks: Sequence[Sink], *, digest: Algorithm | None = None) -> None:
        used = {key for row in rows for key in row.weights}
        chosen = {key: c for key, c in self.checkpoints.items() if key in used}
        blend(chosen, rows, sinks, layout=self.layout, digest=digest)

    def reading(self) -> None:
        self.say("\n| figure | measured | target | | detail |\n|---|---|---|---|---|")
        sink = MemorySink(self.layout)
        warm(self.files)
        raw, ours = [], []
        for _ in range(self.repeat):  # alternating, so that a noisy neighbour meets both
            raw.append(sequential_read(self.files, direct=False))
            ours.append(seconds_of(lambda: self.run([self.mean], [sink]), repeat=1))
        r, o = statistics.median(raw), statistics.median(ours)
        hashed = seconds_of(lambda: self.run([self.mean], [sink], digest=Algorithm.BLAKE3), repeat=self.repeat)
        self.figure(
            "warm, over a buffered sequential read", r / o, 0.7, "x",
            f"{self.gigabytes / o:.1f} against {self.gigabytes / r:.1f} GB/s; with BLAKE3 {self.gigabytes / hashed:.1f}",
        )  # fmt: skip
        raw, ours, with_hash = [], [], []
        for _ in range(self.repeat):
            cool(self.files)
            raw.append(sequential_read(self.files, direct=True))
            cool(self.files)
            ours.append(seconds_of(lambda: self.run([self.mean], [sink]), repeat=1))
            cool(self.files)
            with_hash.append(seconds_of(lambda: self.run([self.mean], [sink], digest=Algorithm.BLAKE3), repeat=1))
        r, o, h = (statistics.median(times) for times in (raw, ours, with_hash))
        self.figure(
            "cold, over a direct sequential read", r / o, 0.8, "x",
            f"{self.gigabytes / o:.2f} against {self.gigabytes / r:.2f} GB/s; with BLAKE3 {self.gigabytes / h:.2f}",
        )  # fmt: skip

    def many_outputs(self) -> None:
        warm(self.files)
        together, apart = [], []
        sinks = [MemorySink(self.layout) for _ in self.rows]
        self.run(self.rows, sinks)  # touch the memory once
        for _ in range(self.repeat):
            together.append(seconds_of(lambda: self.run(self.rows, sinks), repeat=1))
            apart.append(
                seconds_of(lambda: [self.run([r], [s]) for r, s in zip(self.rows, sinks, strict=True)], repeat=1)
            )
        t, a = statistics.median(together), statistics.median(apart)
        self.figure(
            f"{len(self.rows)} outputs from one pass, over separate merges", a / t, 3.5, "x",
            f"{t:.2f} s against {a:.2f} s, kept in memory",
        )  # fmt: skip
        sinks.clear()
        self.passes()
        amount = self.layout.nbytes * len(self.rows)
        written, raw = [], []
        for _ in range(self.repeat):
            written.append(self._written())
            raw.append(
                min(
                    sequential_write(self.root / "raw", amount // 4, direct=True),
                    sequential_write(self.root / "raw", amount // 4, direct=False),
                )
                * 4
            )
        w, r = statistics.median(written), statistics.median(raw)
        self.figure(
            f"{len(self.rows)} outputs written, over a sequential write with fsync", r / w, 0.8, "x",
            f"{amount / w / 1e9:.2f} against {amount / r / 1e9:.2f} GB/s (the faster of direct and buffered)",
        )  # fmt: skip

    def passes(self) -> None:
        """What the outputs cost: computed, kept, kept in memory that was never touched; weighted; many of many."""
        weighted = [_weighted(row) for row in self.rows]
        many = [Row(name=str(i), weights=_half(sorted(self.checkpoints), i)) for i in range(64)]
        kept = [MemorySink(self.layout) for _ in self.rows]
        nothing = [DiscardingSink() for _ in many]
        self.run(weighted, nothing[: len(weighted)])  # compile
        self.run(self.rows, kept)
        cases = {
            "plain": lambda: self.run(self.rows, nothing[: len(self.rows)]),
            "apart": lambda: [self.run([row], nothing[:1]) for row in self.rows],
            "kept": lambda: self.run(self.rows, kept),
            "weighted": lambda: self.run(weighted, nothing[: len(weighted)]),
            "many": lambda: self.run(many, nothing),
            "many weighted": lambda: self.run([_weighted(row) for row in many], nothing),
            "half": lambda: self.run(many[:1], nothing[:1]),
            "one": lambda: self.run([self.mean], nothing[:1]),
            "weighted mean": lambda: self.run([_weighted(self.mean)], nothing[:1]),
        }
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(self.repeat):
            for name, work in cases.items():
                times[name].append(seconds_of(work, repeat=1))
        t = self.seconds = {name: statistics.median(found) for name, found in times.items()}
        count = len(self.rows)
        self.figure(
            f"{count} outputs from one pass, over separate merges, compute alone", t["apart"] / t["plain"], 3, "x",
            f"{t['plain']:.2f} s against {t['apart']:.2f} s; kept in memory {t['kept']:.2f} s",
        )  # fmt: skip
        self.figure(
            f"{count} weighted rows over as many plain means, compute alone", t["weighted"] / t["plain"], 1.5, "x",
            f"{t['weighted']:.2f} s against {t['plain']:.2f} s, which share beginnings", at_least=False,
        )  # fmt: skip
        self.figure(
            "64 weighted rows over as many plain means of the same halves, compute alone", t["many weighted"] / t["many"],
            1.5, "x", f"{t['many weighted']:.2f} s against {t['many']:.2f} s", at_least=False,
        )  # fmt: skip
        self.figure(
            "one weighted row over one plain mean of all, compute alone", t["weighted mean"] / t["one"], 1.5, "x",
            f"{t['weighted mean']:.2f} s against {t['one']:.2f} s", at_least=False,
        )  # fmt: skip
        self.figure(
            f"64 outputs, each of half of {len(self.checkpoints)} inputs, over 64 merges, compute alone",
            64 * t["half"] / t["many"], 3, "x", f"{t['many']:.2f} s against 64 times {t['half']:.3f} s",
        )  # fmt: skip

    def roofline(self) -> None:
        """Bytes and operations of the pass of many outputs against what this machine moves."""
        cores = os.cpu_count() or 1
        read, stored = self.gigabytes, self.layout.nbytes * len(self.rows) / 1e9
        copied, loaded = copy_rate() / 1e9, sum_rate() / 1e9
        items = self.layout.nbytes / 2
        added = sum(len(row.weights) for row in self.rows)
        self.say(
            f"\nRoofline of {len(self.rows)} outputs: {read:.2f} GB read, {stored:.2f} GB stored, at most {added} sums and "
            f"{len(self.rows)} roundings of {items / 1e9:.2f}e9 numbers. A thread copies {copied:.1f} GB/s and loads "
            f"{loaded:.1f} GB/s from memory. Copying what is read and what is stored, on {cores} threads, takes "
            f"{(read + stored) / copied / cores:.2f} s; computing and discarding took {self.seconds['plain']:.2f} s, keeping "
            f"{self.seconds['kept']:.2f} s, one mean of all {self.seconds['one']:.2f} s.\n"
        )
        self.say("\n| figure | measured | target | | detail |\n|---|---|---|---|---|")

    def _written(self) -> float:
        out = self.root / "out"
        shutil.rmtree(out, ignore_errors=True)
        folders = [out / row.name for row in self.rows]
        for folder in folders:
            folder.mkdir(parents=True)

        def work() -> None:
            sinks = [FileSink(folder, self.layout, digest=False) for folder in folders]
            self.run(self.rows, sinks)
            for sink in sinks:
                sink.finish()
                sink.__exit__(None, None, None)

        seconds = seconds_of(work, repeat=1)
        shutil.rmtree(out)
        return seconds

    def start_up(self) -> None:
        command = [str(Path(sys.executable).with_name("trajsoup")), "--help"]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        run = lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)  # noqa: E731
        run()
        bare = lambda: subprocess.run([sys.executable, "-c", "pass"], check=True, env=environment)  # noqa: E731
        pairs = [(seconds_of(run, repeat=1), seconds_of(bare, repeat=1)) for _ in range(9)]
        ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
        self.figure(
            "start-up of trajsoup --help, over python -c pass", ours / theirs, 5, "x",
            f"{ours:.3f} s against {theirs:.3f} s", at_least=False,
        )  # fmt: skip

    def peer(self, mergekit: Path) -> None:
        models = "".join(f"  - model: {path.absolute()}\n    parameters: {{weight: 1.0}}\n" for path in self.paths)
        config = self.root / "mergekit.yaml"
        config.write_text(f"merge_method: linear\nmodels:\n{models}parameters: {{normalize: true}}\ndtype: bfloat16\n")
        theirs_out, ours_out = self.root / "theirs", self.root / "ours"
        ingredients = [f"{path}={1 / len(self.paths)!r}" for path in self.paths]

        def theirs(*options: str) -> None:
            shutil.rmtree(theirs_out, ignore_errors=True)
            command = [str(mergekit), str(config), str(theirs_out), "--quiet", *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def ours(*options: str) -> None:
            shutil.rmtree(ours_out, ignore_errors=True)
            trajsoup = str(Path(sys.executable).with_name("trajsoup"))
            command = [trajsoup, "merge", *ingredients, "-o", str(ours_out), *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        warm(self.files)
        theirs()
        best = ("--async-write",)  # the faster of its two settings for CPUs where both were timed
        for state, prepare, target in (("warm", warm, 5.0), ("cold", cool, 4.0)):
            times: dict[str, list[float]] = {"theirs": [], "ours": [], "hashed": []}
            for _ in range(self.repeat):
                for name, run in (
                    ("theirs", lambda: theirs(*best)),
                    ("ours", lambda: ours("--no-hash")),
                    ("hashed", ours),
                ):
                    times[name].append(seconds_of(run, before=lambda prepare=prepare: prepare(self.files), repeat=1))
            t, o, h = (statistics.median(times[name]) for name in ("theirs", "ours", "hashed"))
            self.figure(
                f"{state}, whole command, over mergekit {' '.join(best) or '(defaults)'}", t / o, target, "x",
                f"{o:.2f} s with fsync against {t:.2f} s without; with digests of everything {h:.2f} s ({t / h:.1f}x)",
            )  # fmt: skip
        same = _same_tensors(open_checkpoint(theirs_out), open_checkpoint(ours_out))
        self.say(f"\nOutputs of mergekit and trajsoup: {same}")
        shutil.rmtree(theirs_out)
        shutil.rmtree(ours_out)

    def memory(self, large: int) -> None:
        small = self._peak(self.paths)
        self.say("\n| figure | measured | target | | detail |\n|---|---|---|---|---|")
        self.figure(
            "peak memory without files, trajsoup merge", small / 2**20, 300, " MiB",
            f"{len(self.paths)} checkpoints of {self.layout.nbytes / 1e9:.2f} GB", at_least=False,
        )  # fmt: skip
        for path in self.paths:  # room for the large ones
            shutil.rmtree(path)
        paths = make_checkpoints(self.root, count=3, checkpoint_bytes=large, shards=self.shards)
        big = self._peak(paths)
        size = open_checkpoint(paths[0]).nbytes / 1e9
        self.figure(
            "the same, large checkpoints", big / 2**20, 300, " MiB", f"3 checkpoints of {size:.2f} GB", at_least=False
        )
        for path in paths:
            shutil.rmtree(path)

    def _peak(self, paths: Sequence[Path]) -> int:
        out = self.root / "ours"
        shutil.rmtree(out, ignore_errors=True)
        cool(weights_of(paths))
        trajsoup = str(Path(sys.executable).with_name("trajsoup"))
        ingredients = [f"{path}={1 / len(paths)!r}" for path in paths]
        process = subprocess.Popen([trajsoup, "merge", *ingredients, "-o", str(out)], stdout=subprocess.DEVNULL)
        with watching_memory(process) as peak:
            if process.wait():
                raise SystemExit("the merge failed")
        shutil.rmtree(out)
        return peak[0]

    def save(self) -> None:
        today = datetime.date.today().isoformat()
        head = [
            f"# Blend, {today}",
            "",
            f"`{' '.join(['python', 'benchmarks/blend.py', *sys.argv[1:]])}` on {os.cpu_count()} cores, {platform.system()} "
            f"{platform.release()}, Python {platform.python_version()}, load {self.load:.1f} at its start and "
            f"{os.getloadavg()[0]:.1f} at its end.",
            "",
        ]
        results = HERE / "results"
        results.mkdir(exist_ok=True)
        (results / f"{today}-blend.md").write_text("\n".join([*head, *self.lines]) + "\n")


def _weighted(row: Row) -> Row:
    """The same ingredients with weights that differ."""
    raw = {key: 1 + 0.1 * i for i, key in enumerate(row.weights)}
    return Row(name=row.name, weights={key: value / sum(raw.values()) for key, value in raw.items()})


def _half(keys: Sequence[str], number: int) -> dict[str, float]:
    """Half of the ingredients, another half for every number."""
    chosen = random.Random(number).sample(keys, max(len(keys) // 2, 1))
    return dict.fromkeys(chosen, 1 / len(chosen))


def _same_tensors(theirs: Checkpoint, ours: Checkpoint) -> str:
    different = total = 0
    for name, tensor in ours.tensors.items():
        (mine,), (other,) = ([_read(c.files[b.file], b) for b in c.tensors[name].boxes] for c in (ours, theirs))
        total += tensor.nbytes // 2
        different += (
            sum(a != b for a, b in zip(memoryview(mine).cast("H"), memoryview(other).cast("H"), strict=True))
            if (mine != other)
            else 0
        )
    return "equal bit by bit" if not different else f"{different:,} of {total:,} values differ"


def _read(path: Path, box: Box) -> bytes:
    with path.open("rb") as file:
        file.seek(box.offset)
        return file.read(box.nbytes)


if __name__ == "__main__":
    main()
