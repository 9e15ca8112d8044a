"""Who was admitted, and how training went."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.report import contents as c
from trajsoup.report.captions.words import counted
from trajsoup.report.figures.branches import running_mean
from trajsoup.report.figures.style import tokens_text


def screen(branches: Sequence[c.Branch]) -> str:
    """Who was admitted, who was not."""
    judged = [b for b in branches if b.admitted is not None]
    if not judged:
        return "The screen has not run yet."
    rejected = [b for b in judged if not b.admitted]
    text = f"{len(judged) - len(rejected)} of {len(judged)} branches admitted."
    if rejected:
        names = ", ".join(f"{b.name} (J {b.loss_gap:+.2%})" for b in rejected if b.loss_gap is not None)
        text += f" Rejected: {names}."
    gaps = [b.loss_gap for b in judged if b.loss_gap]
    if gaps:
        text += f" J at the horizon from {min(gaps):+.2%} to {max(gaps):+.2%}."
    return text


def training(branches: Sequence[c.Branch]) -> str:
    """How far the branches are and where they ended."""
    drawn = [b for b in branches if b.losses]
    if not drawn:
        return "No branch has logged a loss."
    ends = {
        b.name: running_mean([loss for _, loss in b.losses])[-1]
        for b in drawn
        if b.status not in ("failed", "diverged")
    }
    text = f"{counted(len(drawn), 'branch', 'branches')}, the longest at {tokens_text(max(b.tokens for b in drawn))} tokens."
    if ends:
        low = min(ends, key=lambda name: ends[name])
        text += f" Lowest at the end: {low} ({ends[low]:.4f}, running mean)."
    broken = [b.name for b in drawn if b.status in ("failed", "diverged")]
    if broken:
        text += f" A cross marks where {', '.join(broken)} stopped."
    return text
