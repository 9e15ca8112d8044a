"""Captions that say what to see in this study, computed from its numbers. Plain text: the page escapes it.

Every function takes what its figure takes. A caption never says more than the numbers do: where a difference lies
inside noise it says so, and where there is too little to see it says that.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from trajsoup.core.frontier import FullCost
from trajsoup.core.pool import RankBy
from trajsoup.report import contents as c
from trajsoup.report.figures.branches import running_mean
from trajsoup.report.figures.curves import focus
from trajsoup.report.figures.style import best_of, better, difference_text, score_text, tokens_text

SAME = 5e-5  # what four decimals cannot show


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
    names, verb = _joined([row.label for row in winners]), "is" if len(winners) == 1 else "are"
    text = f"{names} {verb} best overall on {table.split} ({score_text(best, table.rank_by)})"
    open_columns = [i for i in range(len(table.columns)) if table.best(i) != table.worst(i)]
    if len(winners) == 1 and open_columns:
        first = sum(1 for i in open_columns if winners[0].values[i] == table.best(i))
        text += f" and best in {first} of {_count(len(open_columns), 'column', 'columns')}"
    text += "." if len(open_columns) == len(table.columns) else ", where models differ at all."
    if any(any(row.in_noise) for row in table.rows):
        text += " ≈ marks a value whose paired difference from the best lies inside noise."
    return text + (" Lower is better." if table.rank_by is RankBy.LOSS else " In percent.")


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
        f"{_joined(leaders)} {'leads' if len(leaders) == 1 else 'lead together'} at {count} of {len(horizons)} horizons "
        f"and {'ends' if len(leaders) == 1 else 'end'} at {score_text(final, panel.rank_by)} ({panel.split})."
    )
    if any("limited" in curve.name.lower() for curve in merged):
        text += " The budget of a Limited curve is that of all its branches together."
    if raw:
        best = best_of([p.value for curve in raw for p in curve.points], panel.rank_by)
        word = "better" if better(final, best, panel.rank_by) else "worse"
        text += (
            f" That is {word} than the best raw checkpoint, {score_text(best, panel.rank_by)}, by "
            f"{difference_text(abs(final - best), panel.rank_by).removeprefix('+')}."
        )
        chosen = sum(p.selected for curve in raw for p in curve.points)
        if chosen:
            text += f" Rings mark the {chosen} checkpoints of the best soup."
        bounds = focus(panel)
        if bounds is not None:
            outside = sum(not bounds[0] <= p.value <= bounds[1] for curve in raw for p in curve.points)
            text += f" {outside} early checkpoints lie outside the axis: a double click shows all."
    return text


def categories(panels: Sequence[c.CurvePanel]) -> str:
    """In how many categories the same strategy ends first."""
    ends: list[str] = []
    for panel in panels:
        last = {curve.name: curve.points[-1].value for curve in panel.curves if not curve.raw and curve.points}
        if last:
            best = best_of(list(last.values()), panel.rank_by)
            ends.append(next(name for name, value in last.items() if value == best))
    if not ends:
        return "No category has been scored over tokens."
    leader = max(dict.fromkeys(ends), key=ends.count)
    return f"At the last horizon {leader} is first in {ends.count(leader)} of {len(panels)} categories."


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


def frontier(data: c.Frontier) -> str:
    """What the soups add at the largest compute that raw training reached, and what the fits say."""
    rank = data.rank_by
    raw = [p for p in data.points if p.raw]
    soups = [p for p in data.points if not p.raw and p.n_branches > 1]
    parts: list[str] = []
    if raw and soups:
        limit = max(p.compute for p in raw)
        there = next(p.score for p in raw if p.compute == limit)
        matched = [p.score for p in soups if p.compute <= limit * (1 + 1e-9)]
        if matched:
            soup = best_of(matched, rank)
            word = "better" if better(soup, there, rank) else "not better"
            parts.append(
                f"Within the compute of one full branch ({limit:.3g}) the best soup reaches {score_text(soup, rank)}, raw "
                f"training {score_text(there, rank)}: {word}."
            )
        every = max(soups, key=lambda p: p.compute)
        parts.append(f"With all branches spent ({every.compute:.3g}) the soup reaches {score_text(every.score, rank)}.")
    for arrow in data.arrows:
        sure = ", extrapolated" if arrow.extrapolated else ""
        parts.append(f"{arrow.name.capitalize()}: {difference_text(arrow.gain, rank)} for the soup{sure}.")
    for fit in data.fits:
        if fit.missing is not None:
            parts.append(f"No law for {fit.label}: {fit.missing}.")
        elif fit.formula is not None and fit.r_squared is not None:
            warning = f" ({fit.warning})" if fit.warning else ""
            parts.append(f"Law of {fit.label}: {fit.formula}, R² {fit.r_squared:.3f}{warning}.")
    return " ".join([*parts, "Dotted lines are extrapolated; bands are 95% over resampled points."])


def costs(rows: Sequence[tuple[str, FullCost]]) -> str:
    """How much the validation of soups adds to training, and what a merge reads."""
    parts: list[str] = []
    for series, cost in rows:
        share = cost.validation_share
        if share:
            words = f"{share:.1%}" if share >= 0.001 else "less than 0.1%"
            parts.append(f"validation adds {words} to the training FLOPs of {series}")
    text = f"{'; '.join(parts)}. " if parts else ""
    return text[:1].upper() + text[1:] + "Only training FLOPs are on the axis of the figure; the rest comes on top."


def surface(sweep: c.Surface) -> str:
    """Where the best cell lies, and whether K falls with N."""
    values = [cell.value for cell in sweep.cells]
    best = next(cell for cell in sweep.cells if cell.value == best_of(values, sweep.rank_by))
    parts = [
        f"Best on {sweep.split}: N = {best.n_branches}, K = {best.k} ({score_text(best.value, sweep.rank_by)}), out of "
        f"{len(values)} cells."
    ]
    counts = [(n, k) for n, k in _best_ks(sweep) if n]
    if len(counts) > 1:
        ks, ns = (", ".join(str(pair[i]) for pair in counts) for i in (1, 0))
        parts.append(f"The best K is {ks} for N = {ns}.")
    if any(cell.subsets > 1 for cell in sweep.cells):
        parts.append("A cell is the mean over all subsets of N branches; a click shows the best of them.")
    return " ".join(parts)


def merge_size(sweep: c.Surface) -> str:
    """What more branches bring at one merge size, and what more checkpoints bring at one N."""
    ns = sorted({cell.n_branches for cell in sweep.cells})
    if len(ns) < 2:
        return "One branch only: more branches cannot be compared with more checkpoints."
    sizes: dict[int, dict[int, float]] = {}
    for cell in sweep.cells:
        sizes.setdefault(cell.merge_size, {})[cell.n_branches] = cell.value
    shared = [(m, found) for m, found in sorted(sizes.items()) if len(found) > 1]
    wins = sum(1 for _, found in shared if better(found[max(found)], found[min(found)], sweep.rank_by))
    text = (
        f"At equal merge size the soup of more branches is better in {wins} of {len(shared)} cases." if shared else ""
    )
    last = {n: best_of([cell.value for cell in sweep.cells if cell.n_branches == n], sweep.rank_by) for n in ns}
    steps = ", ".join(f"N = {n}: {score_text(v, sweep.rank_by)}" for n, v in last.items())
    return f"{text} Best of each N: {steps}.".strip()


def predicted(sweep: c.Surface) -> str:
    """How far the quadratic model holds."""
    found = sweep.prediction
    if found is None or found.mean_error is None or found.worst_error is None:
        return "Nothing was left to predict: it takes soups of three branches."
    text = (
        f"Soups of three branches and more, predicted from one and two: mean error "
        f"{difference_text(found.mean_error, sweep.rank_by)} over {_count(len(found.soups), 'soup', 'soups')}, worst "
        f"{difference_text(found.worst_error, sweep.rank_by)}."
    )
    if abs(found.mean_error) > 0.5 * abs(found.worst_error):
        text += " The errors lean to one side: the quadratic model " + (
            "promises too much." if found.mean_error > 0 else "promises too little."
        )
    if found.best_k:
        ns, promised, measured = (", ".join(str(one[i]) for one in found.best_k) for i in range(3))
        text += f" Best K for N = {ns}: predicted {promised}, measured {measured}."
    return text


def ablation(study: c.Ablation) -> str:
    """Whether anything beats the reference, and by how much the worst choice costs."""
    rank = study.rank_by
    last = max((v.position or 0.0 for v in study.variants), default=0.0)
    shown = [v for v in study.variants if not study.over_tokens or v.position == last]
    if not shown:
        return "Nothing was scored."
    values = {v.label: v.value for v in shown}
    best = next(name for name, value in values.items() if value == best_of(list(values.values()), rank))
    worst = max(values, key=lambda name: values[name] if rank is RankBy.LOSS else -values[name])
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
        ends = f"ends {score_text(first, RankBy.LOSS)} and {score_text(second, RankBy.LOSS)}"
        words = f"{profile.first} to {profile.second}, lowest at {x:.0%} ({score_text(low, RankBy.LOSS)}; {ends})"
        depths.append((min(first, second) - low, words))
    free = sum(barrier <= SAME for barrier in barriers)
    text = f"{free} of {_count(len(barriers), 'line has', 'lines have')} no barrier above the straight line between its ends."
    if max(barriers) > SAME:
        text += f" The highest barrier: {difference_text(max(barriers), RankBy.LOSS).removeprefix('+')}."
    return f"{text} Deepest below both ends: {max(depths)[1]}."


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
    text = f"{_count(len(drawn), 'branch', 'branches')}, the longest at {tokens_text(max(b.tokens for b in drawn))} tokens."
    if ends:
        low = min(ends, key=lambda name: ends[name])
        text += f" Lowest at the end: {low} ({ends[low]:.4f}, running mean)."
    broken = [b.name for b in drawn if b.status in ("failed", "diverged")]
    if broken:
        text += f" A cross marks where {', '.join(broken)} stopped."
    return text


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _best_ks(sweep: c.Surface) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for n in sorted({cell.n_branches for cell in sweep.cells}):
        cells = [cell for cell in sweep.cells if cell.n_branches == n]
        best = best_of([cell.value for cell in cells], sweep.rank_by)
        found.append((n, next(cell.k for cell in cells if cell.value == best)))
    return found
