"""How well the price of a trajectory split the budget, over the seeds of a finished study, as a Markdown table.

    python docs/generate_price.py STUDY

Every line is a seed: N chosen from soups of one and two branches at horizons below T, the best N, and what the choice, always
one branch and always all branches cost above the best (validation loss, nats); the error is that of the promised losses.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from trajsoup.cli.options import study_file
from trajsoup.study.file.study import load_study
from trajsoup.study.records.files import Records
from trajsoup.study.records.theory import TheoryRecord


def table(output: Path, *, seeds: int) -> str:
    """The lines of all seeds that have a check, and their means."""
    lines = [
        "| seed | chosen N | best N | regret | always one | always all | error |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    found: list[tuple[float, ...]] = []
    for seed in range(seeds):
        record = Records(output if seed == 0 else output / "seeds" / str(seed)).read(TheoryRecord)
        check = None if record is None else record.allocation
        if check is None:
            continue
        errors = [check.measured[n] - check.predicted[n] for n in check.predicted]
        error = math.sqrt(math.fsum(e * e for e in errors) / len(errors))
        found.append((check.regret, check.regret_of_one, check.regret_of_most, error))
        lines.append(f"| {seed} | {check.chosen} | {check.best} | " + " | ".join(f"{x:.4f}" for x in found[-1]) + " |")
    if found:
        means = (math.fsum(column) / len(found) for column in zip(*found, strict=True))
        lines.append("| mean | | | " + " | ".join(f"{x:.4f}" for x in means) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    setup = load_study(study_file(Path(sys.argv[1])))
    print(table(setup.output, seeds=getattr(setup, "seeds", 1)))  # noqa: T201
