"""Write docs/results.md, and docs/results-wsd.md, from the records of finished studies with several seeds.

make results        (runs the presets with five seeds each, then this with the folder and the page of each)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trajsoup.report.sections.answer import headlines
from trajsoup.report.sections.branches import screen_table
from trajsoup.report.sections.conditions import conditions_table
from trajsoup.report.sections.results import main_table
from trajsoup.report.sections.seeds import seeds_tables
from trajsoup.study.file.study import load_training_study
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.conditions import ConditionsRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.seeds import SeedsRecord


def results_page(folder: Path, *, title: str) -> str:
    """The main table over seeds, orderings, and the first seed in detail."""
    return "\n".join([f"# {title}", "", "Printed by `make results`. Do not edit.", "", *_study(folder)])


def _study(folder: Path) -> list[str]:
    records, study = Records(folder), load_training_study(folder / "study.yaml")
    plan, seeds = records.require(PlanRecord), records.require(SeedsRecord)
    main, compared, *further = seeds_tables(records)
    fork_point = (
        "the fork point that the package has for it" if study.pretrain is None else "a fork point that it pretrained"
    )
    return [
        f"{len(seeds.seeds)} seeds: {plan.total_params:,} parameters, {len(plan.branches)} branches of {plan.horizon:,} "
        f"tokens, {plan.epochs:.1f} epochs; every seed has {fork_point} and its own data orders. Branches and K are chosen "
        "on validation, with the same freedom for every row; the numbers are of the test split. "
        f"Swept: {', '.join(sweep.name for sweep in study.sweeps)}; {'not ' if study.sft is None else ''}fine-tuned. "
        "[Which regime this is](regime.md).",
        "",
        *(f"- {line}" for line in headlines(records)),
        "",
        "## The conditions",
        "",
        conditions_table(records.require(ConditionsRecord)).markdown(),
        f"Measured in seed 0; all five are met in {_all_met(folder, seeds.seeds)} of {len(seeds.seeds)} seeds.",
        "",
        "## Every model",
        "",
        main.markdown(),
        "## Which orderings hold",
        "",
        compared.markdown(),
        " ".join(seeds.words),
        "",
        *(["## The paper's other comparisons", ""] if further else []),
        *(table.markdown() for table in further),
        "## The first seed",
        "",
        main_table(records).markdown(),
        screen_table(records.require(ScreenRecord)).markdown(),
        " ".join(records.require(AnswerRecord).words),
        "",
    ]


def _all_met(folder: Path, seeds: Sequence[int]) -> int:
    """In how many seeds every condition is met."""
    found = [Records(folder / "seeds" / str(seed) if seed else folder).require(ConditionsRecord) for seed in seeds]
    return sum(all(c.met for c in one.conditions) for one in found)


if __name__ == "__main__":
    study, page, title = sys.argv[1:]
    Path(__file__).with_name(page).write_text(results_page(Path(study), title=title), encoding="utf-8")
