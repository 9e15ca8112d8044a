"""What adaptive allocation would have cost above the best static one, over the seeds of a finished study, in Markdown.

    python docs/generate_adaptive.py STUDY [ORDERS] [LOOKS]

ORDERS: in how many turns of the branches after the baseline they are opened (1); every one costs some dozen models on test.
LOOKS: into how many parts the horizon is divided (as the study's `horizons`, for which nothing more is scored on validation).
Every line is a budget in horizons of one branch. Regrets are test losses above the best static (N, t) of the same tokens
in hindsight, seed by seed (nats, mean and 95 % interval over seeds): of the policy as it comes, of the policy that was best
in the other seeds, of the static N that was best in the other seeds, of always one and always all branches.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trajsoup.cli.options import study_file
from trajsoup.core.replay import Regret, Replayed, regrets
from trajsoup.core.statistics import Spread
from trajsoup.study.allocation.replay import GRID, PLAIN, FinishedWorld, games, replayed
from trajsoup.study.cache import cache_folder
from trajsoup.study.file.study import load_study, with_seed
from trajsoup.study.records.files import Records
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.score.scorer import silent
from trajsoup.study.workbench import Workbench

HORIZONS = (1, 2, 3)  # budgets


def table(found: tuple[Regret, ...], *, horizon: int) -> str:
    """One line for each budget."""
    lines = [
        "| budget | adaptive | tuned on other seeds | static N of other seeds | always one | always all |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for r in found:
        cells = (r.plain, r.tuned, r.best_before, r.one, r.most)
        lines.append(f"| {r.budget / horizon:g} T | " + " | ".join(map(_cell, cells)) + " |")
    chosen = sorted({name for r in found for name in r.chosen.values()})
    return "\n".join([*lines, "", f"Tuned policies: {'; '.join(chosen)}. As it comes: {PLAIN}."])


def _cell(found: Spread) -> str:
    between = "" if found.low is None or found.high is None else f" [{found.low:+.4f}, {found.high:+.4f}]"
    return f"{found.mean:+.4f}{between}"


if __name__ == "__main__":
    setup = load_study(study_file(Path(sys.argv[1])))
    orders = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    looks = int(sys.argv[3]) if len(sys.argv) > 3 else None
    replays: list[Replayed] = []
    longest = 0
    for number in range(setup.seeds):
        one = with_seed(setup, number)
        if Records(one.output).read(TheoryRecord) is None:
            continue
        world = FinishedWorld(Workbench(one, cache=cache_folder(), progress=silent), looks=looks)
        longest = world.positions[-1]
        budgets = [longest * h for h in HORIZONS]
        replays += replayed(world, games(world, budgets=budgets, policies=GRID, orders=orders), seed=number)
    print(table(regrets(replays, plain=PLAIN), horizon=longest))  # noqa: T201
