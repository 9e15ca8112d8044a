"""Whether the paper's question can be asked of this study: five conditions, each with what was measured."""

from __future__ import annotations

from trajsoup.report.section import Section
from trajsoup.report.table import Table, tabulate, text
from trajsoup.study.records.conditions import ConditionsRecord
from trajsoup.study.records.files import Records

MET = {True: "yes", False: "no", None: "not measured"}


def section(records: Records) -> Section | None:
    """The table."""
    record = records.read(ConditionsRecord)
    return None if record is None else Section(tables=(conditions_table(record),))


def conditions_table(record: ConditionsRecord) -> Table:
    """One line for each condition."""
    return tabulate(
        "conditions",
        "Can the question be asked here?",
        record.conditions,
        {
            "condition": lambda c: text(c.question),
            "wanted": lambda c: text(c.wanted),
            "measured": lambda c: text(c.measured),
            "met": lambda c: text(MET[c.met]),
        },
        notes=(
            "None of these looks at whether a soup won. Where one is not met, what the soups show is of little use.",
        ),
    )
