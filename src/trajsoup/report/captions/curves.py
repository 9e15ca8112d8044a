"""Which strategy leads over tokens, and how a branch saturates."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.report import contents as c
from trajsoup.report.captions.words import SAME, joined
from trajsoup.report.figures.curves import focus
from trajsoup.report.figures.style import best_of, better, difference_text, score_text


def over_tokens(panel: c.CurvePanel) -> str:
    """Which strategy leads, where, and since when."""
    merged = [curve for curve in panel.curves if not curve.raw and curve.points]
    raw = [curve for curve in panel.curves if curve.raw and curve.points]
    if not merged:
        return "Only raw checkpoints so far: no strategy has been scored over tokens."
    horizons = sorted({p.tokens for curve in merged for p in curve.points})
    leads: dict[int, tuple[str, ...]] = {}
    final = merged[0].points[-1].value
    for tokens in horizons:
        here = {curve.name: p.value for curve in merged for p in curve.points if p.tokens == tokens}
        final = best_of(list(here.values()), panel.rank_by)
        leads[tokens] = tuple(name for name, value in here.items() if value == final)
    leaders = leads[horizons[-1]]
    count = sum(1 for names in leads.values() if set(leaders) <= set(names))
    text = (
        f"{joined(leaders)} {'leads' if len(leaders) == 1 else 'lead together'} at {count} of {len(horizons)} horizons "
        f"and {'ends' if len(leaders) == 1 else 'end'} at {score_text(final, panel.rank_by)} ({panel.split})."
    )
    if any("limited" in curve.name.lower() for curve in merged):
        text += " The budget of a Limited curve is that of all its branches together."
    if raw:
        best = best_of([p.value for curve in raw for p in curve.points], panel.rank_by)
        apart = difference_text(abs(final - best), panel.rank_by).removeprefix("+")
        word = "better" if better(final, best, panel.rank_by) else "worse"
        same = abs(final - best) < SAME
        text += " That is " + ("as good as" if same else f"{apart} {word} than")
        text += f" the best raw checkpoint, {score_text(best, panel.rank_by)}."
        chosen = sum(p.selected for curve in raw for p in curve.points)
        if chosen:
            text += f" Rings mark the {chosen} checkpoints of the best soup."
        bounds = focus(panel)
        if bounds is not None:
            outside = sum(not bounds[0] <= p.value <= bounds[1] for curve in raw for p in curve.points)
            text += f" {outside} early checkpoints lie outside the axis: a double click shows all."
    return text


def categories(panels: Sequence[c.CurvePanel]) -> str:
    """In how many categories the same strategy ends first; strategies that tie are all first."""
    firsts: list[str] = []
    for panel in panels:
        last = {curve.name: curve.points[-1].value for curve in panel.curves if not curve.raw and curve.points}
        if last:
            best = best_of(list(last.values()), panel.rank_by)
            firsts += [name for name, value in last.items() if value == best]
    if not firsts:
        return "No category has been scored over tokens."
    most = max(firsts.count(name) for name in firsts)
    leaders = [name for name in dict.fromkeys(firsts) if firsts.count(name) == most]
    verb = "is" if len(leaders) == 1 else "are each"
    return f"At the last horizon {joined(leaders)} {verb} first in {most} of {len(panels)} categories."


def saturation(panel: c.CurvePanel) -> str:
    """How much of a branch's gain its first half brought."""
    parts: list[str] = []
    for curve in panel.curves:
        if not curve.raw or len(curve.points) < 3:
            continue
        first, last = curve.points[0], curve.points[-1]
        middle = min(curve.points, key=lambda p: abs(p.tokens - (first.tokens + last.tokens) / 2))
        total = last.value - first.value
        if total and better(last.value, first.value, panel.rank_by):
            parts.append(f"{curve.name} {(middle.value - first.value) / total:.0%}")
    if not parts:
        return "No branch is long enough, or none improves, so saturation cannot be read here."
    return (
        "Share of each branch's improvement that its first half already brought: " + ", ".join(parts) + ". "
        "The closer to 100%, the less a longer run would add."
    )
