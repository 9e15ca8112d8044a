"""Whether a choice matters."""

from __future__ import annotations

from trajsoup.core.signal import Signal
from trajsoup.report import contents as c
from trajsoup.report.captions.words import SAME
from trajsoup.report.figures.style import best_of, better, difference_text, score_text, tokens_text


def ablation(study: c.Ablation) -> str:
    """Whether anything beats the reference, and by how much the worst choice costs."""
    rank = study.rank_by
    last = max((v.position or 0.0 for v in study.variants), default=0.0)
    shown = [v for v in study.variants if not study.over_tokens or v.position == last]
    if not shown:
        return "Nothing was scored."
    values = {v.label: v.value for v in shown}
    best = next(name for name, value in values.items() if value == best_of(list(values.values()), rank))
    worst = max(values, key=lambda name: values[name] if rank is Signal.LOSS else -values[name])
    spread = abs(values[best] - values[worst])
    if spread < SAME:
        return f"All {len(values)} variants score the same on {study.split}: {score_text(values[best], rank)}."
    where = f" at {tokens_text(last)} tokens each" if study.over_tokens else ""
    text = f"Best on {study.split}{where}: {best}; worst: {worst}; {difference_text(spread, rank).removeprefix('+')} apart."
    reference = next((v for v in shown if v.soup is not None and v.soup == study.default), None)
    if reference is not None:
        ahead = [v for v in shown if better(v.value, reference.value, rank)]
        certain = [v.label for v in ahead if v.high is not None and v.low is not None and v.low * v.high > 0]
        if not ahead:
            text += f" Nothing beats {reference.label}."
        elif certain:
            text += f" Better than {reference.label} beyond noise: {', '.join(certain)}."
        else:
            names = ", ".join(v.label for v in ahead)
            text += f" Nominally ahead of {reference.label}: {names}; no interval excludes a tie."
    return text
