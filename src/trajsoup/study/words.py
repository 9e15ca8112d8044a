"""What was seen, in words that follow from the numbers: also when the effect did not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajsoup.core.quantity import format_tokens
from trajsoup.study.records import (
    ComparisonRecord,
    EvaluationsRecord,
    RowRecord,
    ScreenRecord,
    SeedSpread,
    Signal,
)


def sentences(
    comparisons: Sequence[ComparisonRecord],
    *,
    rows: Mapping[str, RowRecord],
    evaluations: EvaluationsRecord,
    screen: ScreenRecord,
) -> tuple[str, ...]:
    """The paragraph under the main table."""
    losses = {e.row: e.loss.value for e in evaluations.evaluations if e.loss.value is not None}
    said = [_screened(screen)]
    if losses:
        best = min(losses, key=lambda name: losses[name])
        said.append(f"The lowest test loss is that of {rows[best].label}, {losses[best]:.4f} nats per token.")
    by_name = {(c.name, c.signal): c for c in comparisons}
    for name, subject in (
        ("soup-limited", "At the same token budget, the Trajectory Soup"),
        ("soup-extended", "With every branch at its full horizon, the Trajectory Soup"),
    ):
        found = by_name.get((name, Signal.LOSS))
        if found is not None:
            said.append(
                f"{subject} ({describe(rows[found.model])}) {against(found)} ({describe(rows[found.reference])})."
            )
    merged = by_name.get(("merge", Signal.LOSS))
    if merged is not None:
        said.append(f"Averaging within one trajectory {against(merged, 'its best checkpoint')}.")
    accuracy = by_name.get(("soup-limited", Signal.ACCURACY))
    if accuracy is not None:
        said.append(f"On the tasks, the soup of the same budget {against(accuracy)}.")
    return tuple(said)


def describe(row: RowRecord) -> str:
    """N, K and horizon of a row."""
    k = "" if row.k is None else f", K={row.k}"
    horizon = "" if row.horizon is None else f", {format_tokens(row.horizon)} tokens each"
    return f"{'+'.join(row.branches)}{k}{horizon}"


def against(found: ComparisonRecord, reference: str = "the best single-trajectory merge") -> str:
    """Beats, ties with, or loses to, with the interval."""
    if found.difference is None or found.low is None or found.high is None:
        return f"cannot be compared with {reference}: one of the two diverged"
    lower = found.signal is Signal.LOSS
    unit = "nats" if lower else "points"
    scale = 1.0 if lower else 100.0
    interval = (
        f"{scale * found.difference:+.4f} {unit}, 95 % interval {scale * found.low:+.4f} to {scale * found.high:+.4f}"
    )
    if found.within_noise:
        return f"cannot be told from {reference} ({interval}: within noise)"
    better = (found.difference < 0) == lower
    return f"{'beats' if better else 'loses to'} {reference} ({interval})"


def over_seeds(comparisons: Sequence[SeedSpread]) -> tuple[str, ...]:
    """One sentence per comparison: in how many seeds, by how much."""
    said: list[str] = []
    for c in comparisons:
        lower = c.signal is Signal.LOSS
        wins = sum((value < 0) == lower and value != 0 for value in c.values.values())
        unit, scale = ("nats", 1.0) if lower else ("points", 100.0)
        interval = "" if c.low is None or c.high is None else f", 95 % {scale * c.low:+.4f} to {scale * c.high:+.4f}"
        verdict = "within noise"
        if c.low is not None and c.high is not None and (c.low > 0 or c.high < 0):
            verdict = "holds" if (c.mean < 0) == lower else "the opposite holds"
        said.append(
            f"{c.label}: better in {wins} of {len(c.values)} seeds, mean {scale * c.mean:+.4f} {unit}{interval} "
            f"({verdict})."
        )
    return tuple(said)


def _screened(screen: ScreenRecord) -> str:
    admitted = [v for v in screen.verdicts if v.admitted]
    rejected = [v for v in screen.verdicts if not v.admitted]
    text = f"{len(admitted)} of {len(screen.verdicts)} branches passed the screen"
    if rejected:
        text += f"; {', '.join(f'{v.branch} ({v.loss_gap:+.1%})' for v in rejected)} did not"
    low = [v.branch for v in admitted if v.suspiciously_low]
    if low:
        text += f"; {', '.join(low)} lies below the baseline by more than the tolerance, which may be overfitting"
    return f"{text}."
