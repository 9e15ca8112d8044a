"""What compute, branches and checkpoints bring, and how far predictions held."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.frontier import FullCost
from trajsoup.core.signal import Signal
from trajsoup.report import contents as c
from trajsoup.report.captions.words import counted
from trajsoup.report.figures.style import best_of, better, difference_text, score_text
from trajsoup.study.stages.theory_words import LARGER_SOUPS


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


def predicted(theory: c.Theory) -> str:
    """How far the quadratic model holds."""
    record = theory.record
    found = next((held for held in record.held_out if held.name == LARGER_SOUPS), None)
    if found is None:
        return "Nothing was left to predict: it takes soups of three branches."
    text = (
        f"Soups of three branches and more, predicted from one and two: mean error "
        f"{difference_text(found.mean_error, Signal.LOSS)} over {counted(found.soups, 'soup', 'soups')}, worst "
        f"{found.worst:.4f}."
    )
    if abs(found.mean_error) > max(0.5 * found.worst, 0.01 * found.gain):
        text += " The errors lean to one side: the quadratic model " + (
            "promises too much." if found.mean_error > 0 else "promises too little."
        )
    best = [(b.n_branches, b.from_pairs, b.measured) for b in record.best if b.measured is not None]
    if best:
        ns, promised, measured = (", ".join(str(one[i]) for one in best) for i in range(3))
        text += f" Best K for N = {ns}: predicted {promised}, measured {measured}."
    return text


def _best_ks(sweep: c.Surface) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for n in sorted({cell.n_branches for cell in sweep.cells}):
        cells = [cell for cell in sweep.cells if cell.n_branches == n]
        best = best_of([cell.value for cell in cells], sweep.rank_by)
        found.append((n, next(cell.k for cell in cells if cell.value == best)))
    return found
