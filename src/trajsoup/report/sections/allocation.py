"""How an adaptive study gave its tokens to branches: one line for each look."""

from __future__ import annotations

from trajsoup.core.quantity import format_tokens
from trajsoup.report.section import Section
from trajsoup.report.table import Table, number, tabulate, text
from trajsoup.study.records.allocation import AllocationRecord, Decision
from trajsoup.study.records.files import Records


def section(records: Records) -> Section | None:
    """The decisions; None where every branch ran to the horizon."""
    record = records.read(AllocationRecord)
    return None if record is None else Section(tables=(allocation_table(record),))


def allocation_table(record: AllocationRecord) -> Table:
    """One line for each look, and what became of the branches below."""
    paid = ", ".join(f"{name} ({format_tokens(tokens)})" for name, tokens in record.trained.items())
    beyond = [name for name in record.live if record.trained[name] > record.tokens]
    unused = [f"{' and '.join(beyond)} had gone on beyond that, which is no part of it"] if beyond else []
    stopped = [f"{name} was stopped" for name in record.stopped]
    lost = [f"{name} was lost ({why})" for name, why in record.lost.items()]
    waiting = [f"{', '.join(record.waiting)} did not start"] if record.waiting else []
    became = "".join(f"; {words}" for words in (*unused, *stopped, *lost, *waiting))
    return tabulate(
        "allocation",
        "How the tokens were given to branches",
        record.decisions,
        {
            "tokens each": lambda d: text(format_tokens(d.tokens)),
            "branches": lambda d: text(", ".join(d.live)),
            "K": lambda d: number(d.k),
            "loss": lambda d: number(d.loss, ".4f"),
            "left": lambda d: text(format_tokens(d.left)),
            "length gains": lambda d: number(d.gains.extend, ".5f"),
            "a branch gains": lambda d: number(d.gains.open, ".5f"),
            "decision": lambda d: text(d.move.value),
            "why": lambda d: text(_why(d)),
        },
        notes=(
            f"Looks at {', '.join(map(format_tokens, record.positions))}. {format_tokens(record.spent)} of "
            f"{format_tokens(record.budget)} tokens went into {paid}. The study has {', '.join(record.live)} up to "
            f"{format_tokens(record.tokens)}{became}. Losses and gains are validation, in nats; gains are "
            "those of the tokens that one more branch would take.",
        ),
    )


def _why(decision: Decision) -> str:
    gains = decision.gains
    numbers = [
        None if gains.beta is None else f"slope {gains.beta:.2g} per unit of log t",
        None if gains.spread is None else f"spread {gains.spread:.2g}",
        None if gains.fewer is None else f"one fewer in {gains.fewer:.0%}",
    ]
    suspected = f"; {', '.join(decision.suspected)} suspected" if decision.suspected else ""
    told = ", ".join(words for words in numbers if words)
    return "; ".join([*decision.reasons, *([told] if told else [])]) + suspected
