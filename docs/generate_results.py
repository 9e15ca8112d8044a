"""Write docs/results.md from the records of a finished study with several seeds.

make results        (runs the presets paper and wsd, then this with the folders of both)
"""

from __future__ import annotations

import sys
from pathlib import Path

from trajsoup.report.sections.branches import screen_table
from trajsoup.report.sections.results import main_table
from trajsoup.report.sections.seeds import seeds_tables
from trajsoup.study.records.files import Records
from trajsoup.study.records.results import AnswerRecord, PlanRecord, ScreenRecord, SeedsRecord

PAGE = Path(__file__).with_name("results.md")


def results_page(folder: Path, smaller: Path) -> str:
    """Main table over seeds, orderings, the first seed in detail, and the smaller model."""
    records = Records(folder)
    plan, seeds = records.require(PlanRecord), records.require(SeedsRecord)
    main, compared, *further = seeds_tables(records)
    parts = [
        "# Results of the embedded study",
        "",
        f"Printed by `make results` from the records of `trajsoup demo --preset paper`, {len(seeds.seeds)} seeds. "
        "Do not edit. "
        f"{plan.total_params:,} parameters, {len(plan.branches)} branches of {plan.horizon:,} tokens, {plan.epochs:.2f} "
        "epochs; every seed has its own fork point and data orders. Branches, K and horizon are chosen on validation, with "
        "the same freedom for every row; the numbers are of the test split. [Which regime this is](regime.md).",
        "",
        main.markdown(),
        "## Which orderings hold",
        "",
        compared.markdown(),
        "## The paper's other comparisons",
        "",
        *(table.markdown() for table in further),
        "## The first seed",
        "",
        main_table(records).markdown(),
        screen_table(records.require(ScreenRecord)).markdown(),
        " ".join(records.require(AnswerRecord).words),
        "",
        *_smaller(Records(smaller)),
    ]
    return "\n".join(parts)


def _smaller(records: Records) -> list[str]:
    plan = records.require(PlanRecord)
    return [
        "## A second, smaller model with warmup-stable-decay (tab:e32a8-mid-train-main)",
        "",
        f"`trajsoup demo --preset wsd`, one seed: {plan.total_params:,} parameters, two data orders, {plan.horizon:,} tokens "
        "each, the learning rate decayed over the last fifth. A Limited branch stops before its decay begins.",
        "",
        main_table(records).markdown(),
        screen_table(records.require(ScreenRecord)).markdown(),
        " ".join(records.require(AnswerRecord).words),
        "",
    ]


if __name__ == "__main__":
    PAGE.write_text(results_page(Path(sys.argv[1]), Path(sys.argv[2])), encoding="utf-8")
