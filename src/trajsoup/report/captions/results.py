"""Who is best, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.signal import Signal
from trajsoup.report import contents as c
from trajsoup.report.captions.words import counted, joined
from trajsoup.report.figures.style import difference_text, score_text


def differences(rows: Sequence[c.Difference]) -> str:
    """How many comparisons are certain, and the largest."""
    if not rows:
        return "No comparison has been made yet."
    gains = [d for d in rows if d.evidence is c.Evidence.STRONG]
    losses = [d for d in rows if d.evidence is c.Evidence.AGAINST]
    noise = len(rows) - len(gains) - len(losses)
    parts = [
        f"{len(gains)} of {len(rows)} comparisons are better beyond noise, {len(losses)} worse, {noise} inside it."
    ]
    if gains:
        top = max(gains, key=lambda d: abs(d.value))
        parts.append(f"The largest gain: {top.label} over {top.reference}, {difference_text(top.value, top.rank_by)}.")
    parts.append("Open marks are inside noise.")
    return " ".join(parts)


def score_table(table: c.ScoreTable) -> str:
    """Who is best overall, and in how many columns."""
    last = len(table.columns) - 1 if table.name != "post-training" else table.columns.index(c.OVERALL)
    best = table.best(last)
    winners = [row for row in table.rows if row.values[last] == best and best is not None]
    if not winners:
        return f"Nothing has been scored on {table.split} yet."
    names, verb = joined([row.label for row in winners]), "is" if len(winners) == 1 else "are"
    text = f"{names} {verb} best overall on {table.split} ({score_text(best, table.rank_by)})"
    open_columns = [i for i in range(len(table.columns)) if table.best(i) != table.worst(i)]
    if len(winners) == 1 and open_columns:
        first = sum(1 for i in open_columns if winners[0].values[i] == table.best(i))
        text += f" and best in {first} of {counted(len(open_columns), 'column', 'columns')}"
    text += "." if len(open_columns) == len(table.columns) else ", where models differ at all."
    if any(any(row.in_noise) for row in table.rows):
        text += " ≈ marks a value whose paired difference from the best lies inside noise."
    return text + (" Lower is better." if table.rank_by is Signal.LOSS else " In percent.")
