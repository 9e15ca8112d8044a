"""The `primary` field of a study file: the comparisons that are registered before the study runs.

    primary:
      - trajectory-soup/limited against serial
      - trajectory-soup/extended against single-merge in accuracy

They are one family: only they get a verdict, each by its p value adjusted for all of them (Holm). Whatever else a study
compares is exploratory and is shown with its interval alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trajsoup.core.signal import Signal
from trajsoup.errors import StudyError

FORM = re.compile(r"(?P<model>\S+)\s+against\s+(?P<reference>\S+)(\s+in\s+(?P<signal>\S+))?")


@dataclass(frozen=True, slots=True)
class Primary:
    """One registered comparison: names of rows, as records.md lists them, or `serial`, the baseline's merge."""

    model: str
    reference: str
    signal: Signal = Signal.LOSS

    def __str__(self) -> str:
        return f"{self.model} against {self.reference} in {self.signal.value}"


SINGLE, LIMITED, EXTENDED = "single-merge", "trajectory-soup/limited", "trajectory-soup/extended"
SERIAL = "serial"  # the merge of the baseline's run: what its budget buys without branches
REGISTERED = (  # the questions of tab:tiny-mid-train-main, and that of the same tokens in one run
    Primary(LIMITED, SERIAL),
    Primary(LIMITED, SINGLE),
    Primary(EXTENDED, SINGLE),
    Primary(LIMITED, "model-soup/limited"),
    Primary(EXTENDED, "model-soup/extended"),
    Primary(LIMITED, "full-soup/limited"),
    Primary(EXTENDED, "full-soup/extended"),
    Primary(SINGLE, "raw-best"),
    Primary(LIMITED, SINGLE, Signal.ACCURACY),
)


def resolved(primary: Sequence[Primary], *, baseline: str) -> tuple[Primary, ...]:
    """The comparisons with `serial` as the row that it is."""
    row = {SERIAL: f"single/{baseline}"}
    return tuple(
        replace(one, model=row.get(one.model, one.model), reference=row.get(one.reference, one.reference))
        for one in primary
    )


def parse_primary(value: Any, *, where: object) -> tuple[Primary, ...]:
    """Read lines of the form `MODEL against REFERENCE`, or `MODEL against REFERENCE in accuracy`."""
    found: list[Primary] = []
    for line in value if isinstance(value, list) else [value]:
        match = FORM.fullmatch(str(line).strip())
        signal = "" if match is None else match["signal"] or Signal.LOSS.value
        if match is None or signal not in list(Signal) or match["model"] == match["reference"]:
            raise StudyError(
                f"{where}: {str(line)!r:.100}: write `MODEL against REFERENCE`, two rows of docs/records.md, and "
                "`in accuracy` where it is not the loss"
            )
        found.append(Primary(match["model"], match["reference"], Signal(signal)))
    if len(set(found)) < len(found):
        raise StudyError(f"{where} names a comparison twice: each counts once")
    return tuple(found)
