"""Adaptive branches on seeds that nobody has looked at, against the number of branches that was best on those everybody has.

    python benchmarks/fresh_seeds.py KNOWN FRESH [--seeds 5 6 7]

KNOWN is a finished study of the `paper` preset (`make results`), FRESH a folder for seeds beyond its own: the same fork
points, other orders of the data. They are trained and scored as far as a replay needs, which takes some ten minutes for
each on two cores and goes on where it was; then every policy is replayed and measured on test. The figures of docs/regime.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import generate_wishes as wishes

from trajsoup.core.replay import best_static
from trajsoup.study.cache import cache_folder
from trajsoup.study.file.presets import Preset, write_preset
from trajsoup.study.file.study import Setup, load_study, with_seed
from trajsoup.study.records.files import writing
from trajsoup.study.score.scorer import silent
from trajsoup.study.stages import STAGES
from trajsoup.study.wishes.adapting import PLAIN, Adapted, adapted
from trajsoup.study.workbench import Workbench

NEEDED = ("plan", "train", "validation", "screen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("known", type=Path)
    parser.add_argument("fresh", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7])
    args = parser.parse_args()
    known = load_study(wishes.study_file(args.known))
    before = {seed: replayed(with_seed(known, seed)) for seed in range(known.seeds)}
    regrets = [regret for seed, one in before.items() for regret in one.regrets(seed=seed)]
    fresh = load_study(write_preset(Preset.PAPER, args.fresh, seeds=max(args.seeds) + 1))
    after = {seed: trained(with_seed(fresh, seed)) for seed in args.seeds}
    for h in wishes.BUDGETS:
        budget = h * next(iter(after.values())).horizon
        n = best_static([regret for regret in regrets if regret.budget == budget])
        mine = {seed: one.policy(PLAIN, budget=budget) for seed, one in after.items()}
        plains = {
            f"N = {n}, the best on the known seeds": {s: one.static(n, budget=budget) for s, one in after.items()},
            "the same, leaving out too": {s: one.pruned(n, budget=budget) for s, one in after.items()},
            "always one": {s: one.static(1, budget=budget) for s, one in after.items()},
            "the best static N in hindsight": {s: one.hindsight(budget=budget) for s, one in after.items()},
        }
        for name, found in wishes.duels_of(mine, plains).items():
            print(f"{h} T, minus {name}: {wishes.interval(found)}")


def trained(setup: Setup) -> Adapted:
    """One seed, brought as far as a replay needs."""
    with writing(setup.output) as records:
        bench = Workbench(setup, cache=cache_folder(), progress=silent, records=records)
        for stage in STAGES:
            if stage.name in NEEDED:
                stage.run(bench)
    return replayed(setup)


def replayed(setup: Setup) -> Adapted:
    """Every policy and every static allocation, on test."""
    bench = Workbench(setup, cache=cache_folder(), progress=silent)
    return adapted(bench, horizons=wishes.BUDGETS, orders=wishes.ORDERS)


if __name__ == "__main__":
    main()
