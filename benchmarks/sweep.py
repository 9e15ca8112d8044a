"""All static methods of the neighbours' sweep, four windows each, from one read: over a merge for each of them.

    python benchmarks/sweep.py [--root DIR] [--gigabytes 0.14] [--repeat 3]

Two runs of 12 checkpoints. Rows are computed and discarded, from files that the page cache holds; pairs in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path

from checkpoints import make_checkpoints
from machine import DiscardingSink, seconds_of, warm, weights_of
from trajsoup.core.methods.table import METHODS
from trajsoup.core.soup import Row
from trajsoup.core.window import Window
from trajsoup.engine.blend import blend
from trajsoup.errors import SelectionError, UnansweredError
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.choice import Choice
from trajsoup.merge.plan import SoupPlan, plan_soup
from trajsoup.study.sweeps.methods import VARIANTS

WINDOWS = (3, 6, 9, 12)  # latest checkpoints of each run
OF_A_RUN = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parent / ".data")
    parser.add_argument("--gigabytes", type=float, default=0.14, help="of each checkpoint")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    plans = static_plans(two_runs(args.root, nbytes=int(args.gigabytes * 1e9)))
    rows = {name: plan.row for name, plan in plans.items()}
    checkpoints = {key: c for plan in plans.values() for key, c in plan.checkpoints.items()}
    layout = next(iter(plans.values())).layout

    def run(chosen: list[Row]) -> None:
        used = {key: checkpoints[key] for row in chosen for key in row.weights}
        blend(used, chosen, [DiscardingSink() for _ in chosen], layout=layout)

    warm(weights_of([Path(c.folder) for c in checkpoints.values()]))
    together = list(rows.values())
    run(together)  # compiles the kernels
    pairs = [
        (seconds_of(lambda: [run([row]) for row in together], repeat=1), seconds_of(lambda: run(together), repeat=1))
        for _ in range(args.repeat)
    ]
    apart, once = (statistics.median(column) for column in zip(*pairs, strict=True))
    size = f"{len(checkpoints)} checkpoints of {layout.nbytes / 1e9:.2f} GB"
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {size}")
    print(f"rows: {', '.join(rows)}")
    print(
        f"{len(rows)} rows from one read over a merge each | {apart / once:.2f}x ({once:.2f} s against {apart:.2f} s) | >= 3x"
    )


def two_runs(root: Path, *, nbytes: int) -> list[Path]:
    """Two folders as training leaves them."""
    root.mkdir(parents=True, exist_ok=True)
    paths = make_checkpoints(root, count=2 * OF_A_RUN, checkpoint_bytes=nbytes, vocab=4000)
    runs = [paths[0].parent / name for name in ("a", "b")]
    for i, path in enumerate(paths):
        link = runs[i // OF_A_RUN] / path.name
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            link.symlink_to(path.absolute())
    return runs


def static_plans(runs: list[Path]) -> dict[str, SoupPlan]:
    """By method and window: those that ask nobody, each row once."""
    found: dict[str, SoupPlan] = {}
    scanned = scan_branches(runs, tokens_per_step=1000)
    for name, params in VARIANTS:
        for window in WINDOWS if METHODS[name].takes_window else (None,):
            wanted = None if window is None else Window(checkpoints=window)
            choice = Choice(strategy=name, params=params, window=wanted, screened=False)
            try:
                plan = plan_soup(scanned, choice)
            except (SelectionError, UnansweredError):  # needs scores, a fork point, or more checkpoints
                continue
            if all(plan.row.weights != other.row.weights for other in found.values()):
                found[" ".join([name, *params.values(), *(() if window is None else (str(window),))])] = plan
    return found


if __name__ == "__main__":
    main()
