"""How time and memory of a merge grow: over tensors, ingredients, shards, outputs and size, with fitted exponents.

    python benchmarks/growth.py                # small sizes, some minutes; writes a dated result
    python benchmarks/growth.py --full         # large ones: a million tensors, 256 ingredients, 4 GB
    python benchmarks/growth.py --axis shards  # one of them, printed

With --full, also of one axis, the points replace those in results/growth.json, from which growth_figure.py draws the figure
of docs/scale.md.

Each point runs in a process of its own, which first makes a merge of one small tensor, so that modules and kernels are
loaded. Seconds are processor time of that process, so that neighbours on the machine weigh little; memory is what the
process held at most above what it held then, without the page cache. An exponent is the slope of a straight line through the
logarithms; the last step's is given beside it, since what a merge costs anyhow flattens the beginning.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from checkpoints import make_plain
from machine import DiscardingSink, anonymous_peak, anonymous_peak_reset

HERE = Path(__file__).parent
CURVES = HERE / "results" / "growth.json"
LIMIT = 1.05  # of an exponent
SMALL = "small tensors"  # no axis: many against few


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is merged."""

    tensors: int = 50
    items: int = 200_000  # numbers of a tensor, bf16
    ingredients: int = 4
    shards: int = 1
    outputs: int | None = None  # computed and discarded; None: one soup is written
    alike: bool = True  # are the headers equal?


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One thing that grows, and what stays."""

    name: str
    unit: str
    small: tuple[float, ...]  # empty: only with --full
    full: tuple[float, ...]
    at: Callable[[float], Point]


AXES = (
    Axis(
        name="tensors", unit="tensors in 10 shards, 4 equal ingredients", small=(1e3, 1e4, 4e4, 1.6e5),
        full=(1e3, 1e4, 1e5, 1e6), at=lambda x: Point(tensors=int(x), items=4, shards=10),
    ),
    Axis(
        name="tensors, headers differ", unit="tensors in 10 shards, 4 ingredients", small=(1e3, 1e4, 4e4),
        full=(1e3, 1e4, 1e5), at=lambda x: Point(tensors=int(x), items=4, shards=10, alike=False),
    ),
    Axis(
        name="ingredients of a million tensors", unit="of 1,000,000 tensors in 10 shards, headers equal", small=(),
        full=(4, 16), at=lambda x: Point(tensors=1_000_000, items=4, shards=10, ingredients=int(x)),
    ),
    Axis(
        name="ingredients", unit="of 50 tensors, 2 MB", small=(4, 16, 64), full=(4, 16, 64, 256),
        at=lambda x: Point(ingredients=int(x), items=20_000),
    ),
    Axis(
        name="shards", unit="of 4 ingredients, 2,000 tensors, 8 MB each", small=(1, 20, 100, 500), full=(1, 20, 100, 500),
        at=lambda x: Point(tensors=2_000, items=2_000, shards=int(x)),
    ),
    Axis(
        name="outputs", unit="of 8 ingredients, 40 MB each, compute alone", small=(1, 4, 16, 64), full=(1, 4, 16, 64),
        at=lambda x: Point(items=400_000, ingredients=8, outputs=int(x)),
    ),
    Axis(
        name="size", unit="MB of each of 2 ingredients", small=(25, 100, 400), full=(100, 400, 1_600, 4_000),
        at=lambda x: Point(items=int(x * 1e6 / 50 / 2), ingredients=2),
    ),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the large sizes: 20 GB of disk, half an hour")
    parser.add_argument("--axis", choices=[*(axis.name for axis in AXES), SMALL], help="one axis only")
    parser.add_argument("--repeat", type=int, default=2, help="processes for each point; the faster counts")
    parser.add_argument("--root", type=Path, default=HERE / ".data", help="where checkpoints and outputs go")
    parser.add_argument("--make", help=argparse.SUPPRESS)  # what processes of their own are asked
    parser.add_argument("--point", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.make:
        _make(Point(**json.loads(args.make)), args.root)
        return
    if args.point:
        print(json.dumps(_measured(Point(**json.loads(args.point)), args.root)))
        return
    load = os.getloadavg()[0]
    args.root.mkdir(parents=True, exist_ok=True)
    chosen = [axis for axis in AXES if args.axis in (None, axis.name) and (axis.full if args.full else axis.small)]
    lines = [line for axis in chosen for line in _curve(axis, args)]
    if args.axis in (None, SMALL):
        lines += _small_tensors(args)
    if args.axis is None:
        _save(lines, load)


def _curve(axis: Axis, args: argparse.Namespace) -> list[str]:
    """The table of one axis, said as it comes."""
    values = axis.full if args.full else axis.small
    lines = [
        "",
        f"## Over {axis.name}",
        "",
        f"| {axis.unit} | seconds | MB | seconds / 1 | bytes / 1 |",
        "|---:|---:|---:|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    found = []
    for value in values:
        one = _asked(axis.at(value), args)
        found.append(one)
        seconds, nbytes = one["seconds"], one["bytes"]
        lines.append(
            f"| {value:,.0f} | {seconds:.3f} | {nbytes / 1e6:.1f} | {seconds / value:.2e} | {nbytes / value:,.0f} |"
        )
        print(lines[-1], flush=True)
    if args.full:
        known = json.loads(CURVES.read_text(encoding="utf-8")) if CURVES.exists() else {}
        known[axis.name] = {"at": values} | {what: [one[what] for one in found] for what in ("seconds", "bytes")}
        CURVES.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    for what in ("seconds", "bytes"):
        curve = [(value, one[what]) for value, one in zip(values, found, strict=True)]
        whole, last = slope(curve), slope(curve[-2:])
        met = "within" if max(whole, last) <= LIMIT else "ABOVE"
        lines.append(f"\nExponent of {what}: {whole:.2f}, of the last step {last:.2f} ({met} {LIMIT})")
        print(lines[-1], flush=True)
    last = found[-1]
    if "json_seconds" in last:
        ratio = last["open_seconds"] / last["json_seconds"]
        lines.append(f"\nOpening one checkpoint takes {ratio:.1f} times `json.loads` of its headers (<= 4 wanted).")
        print(lines[-1], flush=True)
    return lines


def _small_tensors(args: argparse.Namespace) -> list[str]:
    """Many small tensors against few large ones of the same size in all."""
    many, few = (2_000, 50_000) if not args.full else (50_000, 50_000), 2 if not args.full else 50
    small = Point(tensors=many[0], items=many[1], ingredients=2)
    large = replace(small, tensors=few, items=many[0] * many[1] // few)
    pairs = [(_asked(small, args, repeat=1), _asked(large, args, repeat=1)) for _ in range(max(args.repeat, 2))]
    ratio = statistics.median(b["seconds"] / a["seconds"] for a, b in pairs)
    lines = [
        "",
        "## Small tensors",
        "",
        f"{many[0]:,} tensors of {many[1] * 2 / 1e3:g} KB are merged at {ratio:.2f} of the rate of {few} that are as large "
        "together (>= 0.8 wanted; processor time).",
    ]
    print("\n".join(lines), flush=True)
    return lines


def slope(curve: Sequence[tuple[float, float]]) -> float:
    """Of the least-squares line through the logarithms."""
    x = [math.log(a) for a, _ in curve]
    y = [math.log(max(b, 1e-9)) for _, b in curve]
    mx, my = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


def _asked(point: Point, args: argparse.Namespace, *, repeat: int | None = None) -> dict[str, float]:
    """The faster of several processes. Who makes the checkpoints is another, whose memory nobody finds again."""
    asked = json.dumps(asdict(point))
    with tempfile.TemporaryDirectory(dir=args.root) as folder:
        command = [sys.executable, __file__, "--root", folder]
        subprocess.run([*command, "--make", asked], check=True)
        runs = [
            json.loads(subprocess.run([*command, "--point", asked], check=True, stdout=subprocess.PIPE).stdout)
            for _ in range(repeat or args.repeat)
        ]
    return min(runs, key=lambda run: run["seconds"])


def _make(point: Point, root: Path) -> None:
    make_plain(root / "first", count=2, tensors=1, items=64, shards=1)
    make_plain(
        root / "in", count=point.ingredients, tensors=point.tensors, items=point.items, shards=point.shards,
        alike=point.alike,
    )  # fmt: skip


def _measured(point: Point, root: Path) -> dict[str, float]:
    """Merge in this process."""
    _merge(sorted((root / "first").iterdir()), root / "loaded", outputs=None)
    paths = sorted((root / "in").iterdir())
    before = anonymous_peak_reset()
    start = time.process_time()
    _merge(paths, root / "out", outputs=point.outputs)
    found = {"seconds": time.process_time() - start, "bytes": max(anonymous_peak() - before, 1)}
    for made in ("loaded", "out"):
        shutil.rmtree(root / made, ignore_errors=True)
    return found if point.alike else found | _parsed(paths[0])


def _parsed(path: Path) -> dict[str, float]:
    from trajsoup.store.checkpoint import open_checkpoint

    texts = []
    for file in sorted(path.glob("*.safetensors")):
        with file.open("rb") as handle:
            texts.append(handle.read(int.from_bytes(handle.read(8), "little")).decode())
    start = time.process_time()
    parsed = [json.loads(text) for text in texts]
    middle = time.process_time()
    opened = open_checkpoint(path)
    end = time.process_time()
    assert len(opened.tensors) == sum(len(one) - ("__metadata__" in one) for one in parsed)
    return {"json_seconds": middle - start, "open_seconds": end - middle}


def _merge(paths: Sequence[Path], out: Path, *, outputs: int | None) -> None:
    from trajsoup.core.soup import Row
    from trajsoup.engine.blend import blend
    from trajsoup.merge.make import make_soup
    from trajsoup.merge.plan import mean_row, plan_row

    plan = plan_row(mean_row(paths))
    if outputs is None:
        make_soup(plan, out)
        return
    keys = sorted(plan.row.weights)
    rows = []
    for i in range(outputs):  # every row has half of the ingredients, and no two are alike in their beginnings for long
        half = [keys[(i * 3 + j * (1 + 2 * (i % 4))) % len(keys)] for j in range(len(keys) // 2)]
        rows.append(Row(name=str(i), weights=dict.fromkeys(half, 1 / len(half))))
    blend(plan.checkpoints, rows, [DiscardingSink() for _ in rows], layout=plan.layout)


def _save(lines: Sequence[str], load: float) -> None:
    today = datetime.date.today().isoformat()
    head = [
        f"# Growth, {today}",
        "",
        f"`{' '.join(['python', 'benchmarks/growth.py', *sys.argv[1:]])}` on {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, load {load:.1f} at its start and "
        f"{os.getloadavg()[0]:.1f} at its end.",
    ]
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / f"{today}-growth.md").write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
