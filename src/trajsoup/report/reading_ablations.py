"""Coefficients, selections, allocation and sampling density, from their sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report import contents as c
from trajsoup.report.reading_curves import score_of
from trajsoup.study.records import results as r

KINDS = ("coefficients", "selections", "allocation", "sampling")
ORDERED = ("allocation", "sampling")  # their entries have an order


def read_ablations(sweeps: Mapping[str, r.SweepRecord]) -> tuple[c.Ablation, ...]:
    """Each ablation on test where it was reported there, otherwise on validation."""
    found = sorted((s for s in sweeps.values() if s.kind in KINDS and s.points), key=lambda s: KINDS.index(s.kind))
    return tuple(_ablation(sweep) for sweep in found)


def _ablation(sweep: r.SweepRecord) -> c.Ablation:
    tested = all(score_of(p, Signal.LOSS, Split.TEST) is not None for p in sweep.points)
    split = Split.TEST if tested else Split.VALIDATION
    compared = [one for one in sweep.comparisons if one.signal is Signal.LOSS and one.difference is not None]
    default = _default(sweep, compared)
    variants: list[c.Variant] = []
    for i, p in enumerate(sweep.points):
        value = score_of(p, Signal.LOSS, split)
        if value is None:
            continue
        over_tokens = isinstance(p.x, int | float)
        difference, low, high = _from_default(p.row, default, compared) if tested else (None, None, None)
        variants.append(
            c.Variant(
                soup=p.row,
                label=p.series if over_tokens else str(p.x),
                series=p.series,
                value=value,
                difference=difference,
                low=low,
                high=high,
                position=(float(p.x) if over_tokens else float(i)) if sweep.kind in ORDERED else None,
            )
        )
    return c.Ablation(
        name=sweep.name,
        title=sweep.title,
        rank_by=Signal.LOSS,
        split=split.value,
        variants=tuple(variants),
        axis=sweep.x_label if sweep.kind in ORDERED else None,
        over_tokens=sweep.kind == "sampling",
        default=default,
    )


def _default(sweep: r.SweepRecord, compared: Sequence[r.ComparisonRecord]) -> str | None:
    """The row that every comparison of the sweep shares; without comparisons, the first, which is the paper's default."""
    shared = {p.row for p in sweep.points}
    for one in compared:
        shared &= {one.model, one.reference}
    if compared and len(shared) == 1:
        return shared.pop()
    return sweep.points[0].row if sweep.kind not in ORDERED else None


def _from_default(
    row: str, default: str | None, compared: Sequence[r.ComparisonRecord]
) -> tuple[float | None, float | None, float | None]:
    """The row minus the default; a comparison recorded the other way round changes its sign."""
    for one in compared:
        if (one.model, one.reference) == (row, default):
            return one.difference, one.low, one.high
        if (one.model, one.reference) == (default, row) and one.difference is not None:
            return -one.difference, None if one.high is None else -one.high, None if one.low is None else -one.low
    return None, None, None
