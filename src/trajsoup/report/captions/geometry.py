"""Angles, planes and lines between anchors."""

from __future__ import annotations

import statistics

from trajsoup.core.signal import Signal
from trajsoup.report import contents as c
from trajsoup.report.captions.words import SAME, counted
from trajsoup.report.figures.style import difference_text, score_text


def cosines(geometry: c.Geometry) -> str:
    """The range of pairwise cosines, and what that means."""
    n = len(geometry.branches)
    pairs = [
        (value, geometry.branches[i], geometry.branches[j])
        for i in range(n)
        for j in range(i)
        if (value := geometry.cosines[i][j]) is not None
    ]
    if not pairs:
        return "One branch has no pair: there is no angle."
    low, high = min(pairs), max(pairs)
    mean = statistics.fmean(value for value, _, _ in pairs)
    kind = "weakly" if mean < 0.5 else "strongly"
    return (
        f"{len(pairs)} pairs, mean cosine {mean:.3f}: the directions overlap {kind}. Least alike: {low[2]} and {low[1]} "
        f"({low[0]:.3f}); most alike: {high[2]} and {high[1]} ({high[0]:.3f})."
    )


def plane(geometry: c.Geometry) -> str:
    """How much of the movement the plane shows."""
    if geometry.variance_share is None:
        return "The plane of the two leading components."
    first, second = geometry.variance_share
    return (
        f"The plane holds {first + second:.0%} of the checkpoints' variance ({first:.0%} and {second:.0%}); distances "
        "across it are hidden. Dotted grey lines join anchors of equal tokens: along them lie their interpolations."
    )


def direction_gain(geometry: c.Geometry) -> str:
    """Whether weaker alignment goes with larger gains here."""
    gains = [p.gain for p in geometry.pairs]
    positive = sum(gain > 0 for gain in gains)
    mean = difference_text(statistics.fmean(gains), geometry.gain_unit)
    text = f"{positive} of {len(gains)} pairs gain by merging, {mean} on average."
    if geometry.pearson is None:
        return f"{text} No relation can be fitted: {geometry.missing or 'too few pairs'}."
    certain = geometry.pearson_p is not None and geometry.pearson_p < 0.05
    sense = "larger" if geometry.pearson < 0 else "smaller"
    p = "" if geometry.pearson_p is None else f", p = {geometry.pearson_p:.2g}"
    rank = "" if geometry.spearman is None else f"; Spearman {geometry.spearman:+.2f}"
    return (
        f"{text} Weaker alignment goes with {sense} gains (Pearson {geometry.pearson:+.2f}{p}{rank})"
        + ("." if certain else ": not distinguishable from no relation.")
        + " The band is 95% for the mean gain."
    )


def interpolation(geometry: c.Geometry) -> str:
    """Whether the way between two anchors is a valley or a barrier."""
    barriers: list[float] = []
    depths: list[tuple[float, str]] = []
    for profile in geometry.profiles:
        (_, first, _), (_, second, _) = profile.points[0], profile.points[-1]
        x, low, _ = min(profile.points, key=lambda p: p[1])
        barriers.append(max(y - (first + (second - first) * at) for at, y, _ in profile.points))
        ends = f"ends {score_text(first, Signal.LOSS)} and {score_text(second, Signal.LOSS)}"
        words = f"{profile.first} to {profile.second}, lowest at {x:.0%} ({score_text(low, Signal.LOSS)}; {ends})"
        depths.append((min(first, second) - low, words))
    free = sum(barrier <= SAME for barrier in barriers)
    text = (
        f"{free} of {counted(len(barriers), 'line has', 'lines have')} no barrier above the straight line of its ends."
    )
    if max(barriers) > SAME:
        text += f" The highest barrier: {difference_text(max(barriers), Signal.LOSS).removeprefix('+')}."
    return f"{text} Deepest below both ends: {max(depths)[1]}."
