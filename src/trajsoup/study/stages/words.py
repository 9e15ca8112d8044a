"""What was seen, in words that follow from the numbers: also when the effect did not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajsoup.core.signal import Signal
from trajsoup.core.statistics import Optimism, ranking_agreement
from trajsoup.study.records.results import (
    ComparisonRecord,
    EvaluationsRecord,
    RowRecord,
    ScreenRecord,
    SeedSpread,
    ValidationRecord,
)


def sentences(
    comparisons: Sequence[ComparisonRecord],
    *,
    rows: Mapping[str, RowRecord],
    evaluations: EvaluationsRecord,
    screen: ScreenRecord,
    validation: ValidationRecord,
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
            said.append(f"{subject} ({rows[found.model].made_of}) {against(found)} ({rows[found.reference].made_of}).")
    if ("soup-limited", Signal.LOSS) not in by_name:
        said.append(
            "There is no soup to compare at the same budget: fewer than two branches passed the screen, or they have no "
            "checkpoint within their share of it."
        )
    merged = by_name.get(("merge", Signal.LOSS))
    if merged is not None:
        said.append(f"Averaging within one trajectory {against(merged, 'its best checkpoint')}.")
    accuracy = by_name.get(("soup-limited", Signal.ACCURACY))
    if accuracy is not None:
        said.append(f"On the tasks, the soup of the same budget {against(accuracy)}.")
    said += _flattery(rows, losses)
    said += _rankings(validation)
    return tuple(said)


def against(found: ComparisonRecord, reference: str = "the best single-trajectory merge") -> str:
    """Beats, ties with, or loses to, with the interval."""
    if found.difference is None or found.low is None or found.high is None:
        return f"cannot be compared with {reference}: one of the two diverged"
    lower = found.signal is Signal.LOSS
    unit = "nats" if lower else "points"
    scale = 1.0 if lower else 100.0
    interval = (
        f"{scale * found.difference:+.4f} {unit}, 95 % interval {scale * found.low:+.4f} to {scale * found.high:+.4f}"
        + (f", better with probability {p:.3f}" if (p := found.probability_of_improvement) is not None else "")
    )
    if found.within_noise:
        return f"cannot be told from {reference} ({interval}: within noise)"
    better = (found.difference < 0) == lower
    return f"{'beats' if better else 'loses to'} {reference} ({interval})"


def over_seeds(comparisons: Sequence[SeedSpread]) -> tuple[str, ...]:
    """One sentence per comparison: in how many seeds, by how much."""
    said: list[str] = []
    for c in comparisons:
        unit, scale, digits = ("nats", 1.0, 4) if c.signal is Signal.LOSS else ("points", 100.0, 2)
        low, high = (None if v is None else f"{scale * v:+.{digits}f}" for v in (c.low, c.high))
        interval = "" if low is None or high is None else f", 95 % {low} to {high}"
        said.append(
            f"{c.label}: better in {c.better} of {len(c.values)} seeds, mean {scale * c.mean:+.{digits}f} {unit}{interval} "
            f"({c.evidence.holds})."
        )
    return tuple(said)


def _flattery(rows: Mapping[str, RowRecord], losses: Mapping[str, float]) -> list[str]:
    """The optimism of selection: validation minus test of the winner, beside that of a model fixed in advance."""
    both = {
        name: (row.validation_loss, losses[name])
        for name, row in rows.items()
        if row.validation_loss is not None and name in losses
    }
    chosen = {name: pair[0] for name, pair in both.items() if rows[name].chosen_on.free}
    if not chosen:
        return []
    winner = min(chosen, key=lambda name: chosen[name])
    fixed = next((name for name in both if not rows[name].chosen_on.free), None)
    reference_gap = None if fixed is None else both[fixed][0] - both[fixed][1]
    found = Optimism(validation=both[winner][0], test=both[winner][1], reference_gap=reference_gap)
    text = (
        f"Optimism of selection: {rows[winner].label}, the winner on validation, has {found.validation:.4f} there and "
        f"{found.test:.4f} on test, {found.gap:+.4f}"
    )
    if fixed is not None and found.beyond_reference is not None:
        text += (
            f", against {reference_gap:+.4f} of {rows[fixed].label}, which nothing chose: choosing flatters by "
            f"{max(-found.beyond_reference, 0.0):.4f} nats"
        )
    return [f"{text}."]


def _rankings(validation: ValidationRecord) -> list[str]:
    """How far ranking by loss and by accuracy agree."""
    scored = [(c.loss, c.accuracy) for c in validation.checkpoints]
    both = [(loss, accuracy) for loss, accuracy in scored if loss is not None and accuracy is not None]
    rho = ranking_agreement([loss for loss, _ in both], [accuracy for _, accuracy in both])
    if rho is None:
        return []
    return [f"Ranking the {len(both)} checkpoints by validation loss and by accuracy agrees to Spearman's {rho:+.2f}."]


def _screened(screen: ScreenRecord) -> str:
    admitted = [v for v in screen.verdicts if v.admitted]
    rejected = [v for v in screen.verdicts if not v.admitted]
    forced = [v.branch for v in admitted if v.forced]
    text = f"{len(admitted) - len(forced)} of {len(screen.verdicts)} branches passed the screen"
    if rejected:
        text += f"; {', '.join(f'{v.branch} ({v.loss_gap:+.1%})' for v in rejected)} did not"
    if forced:
        text += f"; {', '.join(forced)} did not, but was forced in"
    low = [v.branch for v in admitted if v.suspiciously_low]
    if low:
        text += f"; {', '.join(low)} lies below the baseline by more than the tolerance, which may be overfitting"
    return f"{text}."
