"""What is needed to make all of it again: ingredients with their hashes, settings, commands."""

from __future__ import annotations

from trajsoup import __version__
from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.report.cells import score
from trajsoup.report.section import Section
from trajsoup.report.table import Table, number, pairs_table, tabulate, text
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.files import FORMAT, Records
from trajsoup.study.records.fine_tuning import FineTuningRecord
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.retention import RetentionRecord
from trajsoup.study.records.rows import RowRecord, RowsRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.records.validation import ValidationRecord


def section(records: Records) -> Section | None:
    """The soup that was written, checkpoint by checkpoint; every setting; how to run it again."""
    answer, rows = records.read(AnswerRecord), records.read(RowsRecord)
    best = None if rows is None or answer is None or answer.soup_folder is None else rows.best()
    verify = [f"trajsoup verify {answer.soup_folder}"] if answer is not None and answer.soup_folder is not None else []
    tables = [] if best is None else [ingredients_table(best, records)]
    return Section(
        more=(*tables, *protocol_table(records), pairs_table("settings", "Settings", settings(records))),
        commands=("trajsoup run STUDY", *verify, "trajsoup report STUDY"),
    )


def protocol_table(records: Records) -> tuple[Table, ...]:
    """How models were chosen and scored: what the paper asks to be stated."""
    found = records.read(EvaluationsRecord)
    if found is None or (fields := found.protocol) is None:
        return ()
    scored = [
        f"{split}: {count:,} tokens of {fields.scored_documents[split]:,} documents, as good as "
        f"{fields.effective_documents[split]:.0f} of one size, the longest {fields.largest_share[split]:.1%}"
        for split, count in fields.scored_tokens.items()
    ]
    lines = [
        ("K is chosen from", ", ".join(map(str, fields.k_grid))),
        ("horizons", ", ".join(format_tokens(tokens) for tokens in fields.horizons) + " tokens"),
        ("checkpoints are ranked by", fields.rank_by),
        ("ties", fields.tie_rule),
        ("splits", fields.held_out),
        ("scored", "; ".join(scored)),
        ("masked tokens", fields.masking),
        ("loss", fields.normalisation),
        ("Overall Average", fields.overall_average or "not scored"),
    ]
    return (pairs_table("protocol", "How models were chosen and scored", lines),)


def ingredients_table(row: RowRecord, records: Records) -> Table:
    """The row of W with hashes."""
    train, validation = records.read(TrainRecord), records.read(ValidationRecord)
    hashes = {} if train is None else {k.key: k.sha256 for run in train.runs for k in run.checkpoints}
    scored = {} if validation is None else {c.key: c for c in validation.scored}
    return tabulate(
        "ingredients",
        "Ingredients of the best soup",
        row.weights,
        {
            "checkpoint": text,
            "branch": lambda key: text(scored[key].branch if key in scored else None),
            "tokens": lambda key: number(scored[key].tokens if key in scored else None),
            "weight": lambda key: number(row.weights[key], ".6g"),
            "validation loss": lambda key: score(scored[key].loss if key in scored else None, Signal.LOSS),
            "sha256": lambda key: text(hashes.get(key, "not recorded")),
        },
    )


def settings(records: Records) -> list[tuple[str, str]]:
    """Everything that was set, by name."""
    found = [("trajsoup", __version__), ("records", FORMAT)]
    if (plan := records.read(PlanRecord)) is not None:
        found += [
            ("setting", plan.setting.value),
            ("horizon", f"{plan.horizon:,} tokens per branch"),
            ("total", f"{plan.total_tokens:,} tokens"),
            ("seed", "of the foreign runs, not known" if plan.seed is None else str(plan.seed)),
        ]
        known = {
            "checkpoint every": plan.checkpoint_every,
            "sequence length": plan.sequence_length,
            "parameters": plan.total_params,
            "active parameters": plan.active_params,
        }
        found += [(name, f"{value:,}") for name, value in known.items() if value is not None]
        found += [] if plan.epochs is None else [("epochs", f"{plan.epochs:.3g}")]
        found += [(f"tokens of {split}", f"{count:,}") for split, count in plan.corpus.items()]
    if (train := records.read(TrainRecord)) is not None:
        found.append(("fork point, sha256", train.fork_point or "not known"))
    if (kept := records.read(RetentionRecord)) is not None:
        every = "" if kept.every_nth is None else f", each {kept.every_nth}th"
        policy = f"the {kept.top_k} best of each branch{every}{', the last' * kept.last}, and what the rows are made of"
        found.append(("kept on disk", f"{policy}: {len(kept.kept):,} checkpoints; {len(kept.pruned):,} are gone"))
    if (tuned := records.read(FineTuningRecord)) is not None:
        found += [(f"fine-tuning: {name}", value) for name, value in tuned.settings.items()]
    return found
