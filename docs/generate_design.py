"""How far the first horizon of a finished study told the last one, over its seeds, as a Markdown table.

    python docs/generate_design.py STUDY

Every line is a seed: Spearman's correlation of the gains of pairs of checkpoints at the first horizon (of four: T/4) with
those at T, and of the angles there with the same; the error of the gains of a left-out recipe, predicted from its early
ones, and when every pair is promised the mean of the others; what the three branches picked at the first horizon gain at T
over the best of them, beside the best three and the mean of all threes (validation, nats; threes are predicted from pairs).
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from trajsoup.cli.options import study_file
from trajsoup.core.ahead import Ahead
from trajsoup.study.cache import cache_folder
from trajsoup.study.design.ahead import gains_ahead
from trajsoup.study.file.study import load_study, with_seed
from trajsoup.study.records.files import Records
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.score.scorer import silent
from trajsoup.study.workbench import Workbench


def lines_of(found: dict[int, Ahead]) -> str:
    """The table with its mean."""
    lines = [
        "| seed | gains | angles | error | error of the mean | picked | picked gained | best | mean |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|",
    ]
    values = {seed: _values(one) for seed, one in found.items()}
    for seed, one in found.items():
        cells = values[seed]
        lines.append(f"| {seed} | {_cells(cells[:4])} | {', '.join(one.picked)} | {_cells(cells[4:])} |")
    columns = [[v for v in column if v is not None] for column in zip(*values.values(), strict=True)]
    means = [math.fsum(column) / len(column) if column else None for column in columns]
    if len(found) > 1:
        lines.append(f"| mean | {_cells(means[:4])} | | {_cells(means[4:])} |")
    return "\n".join(lines)


def _values(one: Ahead) -> list[float | None]:
    errors = [one.error, one.error_of_mean]
    return [one.spearman, one.spearman_of_cosine, *errors, one.picked_gain, one.best_gain, one.mean_gain]


def _cells(values: list[float | None]) -> str:
    return " | ".join("-" if v is None else f"{v:.3f}" for v in values)


if __name__ == "__main__":
    setup = load_study(study_file(Path(sys.argv[1])))
    seeds = [with_seed(setup, seed) for seed in range(setup.seeds)]
    benches = {
        i: Workbench(seed, cache=cache_folder(), progress=silent)
        for i, seed in enumerate(seeds)
        if Records(seed.output).read(TheoryRecord) is not None
    }
    print(lines_of({i: gains_ahead(bench) for i, bench in benches.items()}))  # noqa: T201
