"""The paper's protocol beside the chosen rows: branches and K prescribed, ranked by loss and by accuracy (app:protocol)."""

from __future__ import annotations

from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.report.cells import estimate, signed, tokens
from trajsoup.report.table import Table, number, tabulate, text
from trajsoup.study.records.files import Records
from trajsoup.study.records.sweeps import sweep_of


def prescribed_tables(records: Records) -> tuple[Table, ...]:
    """Scores, and paired differences of the soups; none where it was not swept."""
    sweep = sweep_of(records, "prescribed")
    if sweep is None or not sweep.points:
        return ()
    points = {p.row: p for p in sweep.points}
    scores = tabulate(
        "prescribed",
        f"{sweep.title} ({sweep.points[0].chosen_on.split.value} ranks, test is reported)",
        sorted(sweep.points, key=lambda p: p.series),
        {
            "model": lambda p: text(p.x),
            "rows": lambda p: text(p.series),
            "branches": lambda p: text("+".join(p.branches)),
            "merged": lambda p: number(p.merge_size),
            "tokens each": lambda p: tokens(p.horizon),
            "test loss": lambda p: estimate(p.test_loss, Signal.LOSS),
            "test average": lambda p: estimate(p.test_accuracy, Signal.ACCURACY),
        },
        soup=lambda p: p.row,
        ours=lambda p: p.strategy == style.OURS,
        notes=(*sweep.notes, "Validation ranks the checkpoints of a branch; branches, K and horizons are prescribed."),
    )
    compared = tabulate(
        "prescribed-comparisons",
        "Paired comparisons of the prescribed rows",
        sweep.comparisons,
        {
            "model": lambda c: text(points[c.model].x),
            "minus": lambda c: text(points[c.reference].x),
            "rows": lambda c: text(points[c.model].series),
            "signal": lambda c: text(style.signal_text(c.signal)),
            "difference": lambda c: signed(c.difference, c.signal, low=c.low, high=c.high),
            "evidence": lambda c: text(c.evidence.value),
        },
        soup=lambda c: c.model,
    )
    return scores, compared
