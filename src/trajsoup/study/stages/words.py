"""What was seen, in words that follow from the numbers: also when the effect did not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajsoup.core.scores import FEWEST
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.core.statistics import Optimism, ranking_agreement
from trajsoup.study.records.comparisons import ComparisonRecord, Evidence
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.rows import RowRecord, RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.seeds import SeedSpread
from trajsoup.study.records.validation import ValidationRecord


def sentences(
    comparisons: Sequence[ComparisonRecord],
    *,
    rows: Mapping[str, RowRecord],
    evaluations: EvaluationsRecord,
    screen: ScreenRecord,
    validation: ValidationRecord,
    optimism: Optimism | None,
    why_no_soup: str | None = None,
) -> tuple[str, ...]:
    """The paragraph under the main table."""
    losses = {e.row: e.loss.value for e in evaluations.evaluations if e.loss.value is not None}
    said = [*_too_few(evaluations), _screened(screen)]
    listed = RowsRecord(inputs={}, rows=tuple(rows.values()))
    best = listed.best()
    if best is not None and best.name in losses:
        said.append(f"{best.label} is best on validation; on test it has {losses[best.name]:.4f} nats per token.")
    by_name = {(c.name, c.signal): c for c in comparisons}
    for name, subject, reference in (
        ("soup-serial", "With the tokens of one run, the Trajectory Soup", "that run, merged"),
        ("soup-limited", "It", "the best single merge of all branches, each of them as long as that run"),
        (
            "soup-extended",
            "With every branch at its full horizon, the Trajectory Soup",
            "the best single-trajectory merge",
        ),
    ):
        found = by_name.get((name, Signal.LOSS))
        if found is not None:
            made = (rows[found.model].made_of, rows[found.reference].made_of)
            said.append(f"{subject} ({made[0]}) {against(found, reference)} ({made[1]}).")
    if ("soup-limited", Signal.LOSS) not in by_name:
        said.append(f"There is no soup to compare at the same budget{f': {why_no_soup}' if why_no_soup else ''}.")
    merged = by_name.get(("merge", Signal.LOSS))
    if merged is not None:
        said.append(f"Averaging within one trajectory {against(merged, 'its best checkpoint')}.")
    accuracy = by_name.get(("soup-limited", Signal.ACCURACY))
    if accuracy is not None:
        said.append(f"On the tasks, the soup of the same budget {against(accuracy)}.")
    sides = listed.winner_and_fixed()
    if optimism is not None and sides is not None:
        said.append(_flattery(optimism, winner=sides[0].label, fixed=sides[1].label))
    said += _rankings(validation)
    return tuple(said)


def _too_few(evaluations: EvaluationsRecord) -> list[str]:
    """A warning where the documents are too few to choose by, or to report on."""
    found = {} if evaluations.protocol is None else evaluations.protocol.effective_documents
    few = {split: count for split, count in found.items() if count < FEWEST}
    does = {Split.VALIDATION.value: "cannot choose", Split.TEST.value: "carry no interval"}
    return [
        f"The {split} documents {does[split]}: {count:.0f} of one size would say as much, and {FEWEST} are the least. "
        f"Raise evaluate.{split}_tokens if it leaves documents out, add documents, or lower corpus.document_tokens where one "
        "outweighs the others."
        for split, count in few.items()
    ]


def against(found: ComparisonRecord, reference: str = "the best single-trajectory merge") -> str:
    """Beats, ties with, or loses to, with the interval; no such word for what was not registered."""
    if found.difference is None:
        return f"cannot be compared with {reference}: one of the two diverged"
    if found.low is None or found.high is None:
        return f"is {found.difference:+.4f} from {reference}, of too few documents for an interval"
    lower = found.signal is Signal.LOSS
    unit = "nats" if lower else "points"
    scale = 1.0 if lower else 100.0
    interval = (
        f"{scale * found.difference:+.4f} {unit}, 95 % interval {scale * found.low:+.4f} to {scale * found.high:+.4f}"
        f" over the {found.count:,} {'documents' if lower else 'items'} of one seed"
    )
    if not found.primary:
        return f"against {reference}: {interval}; exploratory, no verdict"
    interval += "" if found.p_holm is None else f"; p = {found.p_holm:.2g} after Holm"
    match found.evidence:
        case Evidence.WITHIN_NOISE:
            return f"cannot be told from {reference} ({interval}: within noise)"
        case evidence:
            return f"{'beats' if evidence is Evidence.STRONG else 'loses to'} {reference} ({interval})"


def over_seeds(comparisons: Sequence[SeedSpread]) -> tuple[str, ...]:
    """One sentence per registered comparison: in how many seeds, by how much, and what it comes to."""
    primary = [c for c in comparisons if c.primary]
    said: list[str] = []
    for c in primary:
        unit, scale, digits = ("nats", 1.0, 4) if c.signal is Signal.LOSS else ("points", 100.0, 2)
        low, high = (None if v is None else f"{scale * v:+.{digits}f}" for v in (c.low, c.high))
        interval = "" if low is None or high is None else f", 95 % {low} to {high} over seeds and documents"
        sure = "" if c.p_holm is None else f", p = {c.p_holm:.2g} after Holm"
        lacking = f"; {len(c.without)} seeds do not have it" if c.without else ""
        said.append(
            f"{c.label}: better in {c.better} of {len(c.values)} seeds, mean {scale * c.mean:+.{digits}f} {unit}{interval}"
            f"{sure} ({c.evidence.holds}{lacking})."
        )
    others = len(comparisons) - len(primary)
    if others:
        said.append(f"{others} further comparisons of the main table are exploratory: intervals without verdicts.")
    return tuple(said)


def _flattery(found: Optimism, *, winner: str, fixed: str) -> str:
    """The optimism of selection: what the winner loses of its lead over a model fixed in advance."""
    interval = (
        "" if found.low is None or found.high is None else f" (95 % interval {found.low:+.4f} to {found.high:+.4f})"
    )
    return (
        f"Optimism of selection: {winner}, the winner on validation, has {found.validation:.4f} there and {found.test:.4f} "
        f"on test, {found.validation - found.test:+.4f}, against {found.reference_gap:+.4f} of {fixed}, which nothing chose: "
        f"choosing flatters by {found.flattery:+.4f} nats{interval}."
    )


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
    undecided = [v for v in admitted if v.undecided and not v.forced]
    if undecided:
        cures = dict.fromkeys(v.noise.cure for v in undecided if v.noise is not None)
        named = ", ".join(f"{v.branch} ({v.gap})" for v in undecided)
        text += (
            f", {named} undecided: the tolerance lies within the spread of J, and {' and '.join(cures)} would decide"
        )
    if rejected:
        named = ", ".join(f"{v.branch} ({v.gap})" for v in rejected)
        text += f"; {named} did not (evaluate.force or a larger evaluate.tolerance admits)"
    if forced:
        text += f"; {', '.join(forced)} did not, but was forced in"
    low = [v.branch for v in admitted if v.suspiciously_low]
    if low:
        text += f"; {', '.join(low)} lies below the baseline by more than the tolerance, which may be overfitting"
    return f"{text}."
