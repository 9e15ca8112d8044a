"""The branches: recipes, how they trained, and what the screen says of them (tab:branch-mapping, sec:problem-formulation)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trajsoup.report.cells import tokens
from trajsoup.report.progress import BranchState, branch_states
from trajsoup.report.section import Drawn, Section
from trajsoup.report.style import QUIET, colours_of, faded, figure, plain, token_axis, tokens_text
from trajsoup.report.table import Cell, Row, Table, number, tabulate, text
from trajsoup.report.words import counted
from trajsoup.study.records.files import Records
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.screen import ScreenRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_POINTS = 600  # drawn of one curve: a page is about 1,000 pixels wide
SMOOTHED = 25  # a running mean spans this fraction of a curve: one twenty-fifth


def section(records: Records) -> Section | None:
    """Recipes and verdicts; J and the training loss over tokens."""
    branches, screen = branch_states(records), records.read(ScreenRecord)
    if not branches:
        return None
    figures: list[Drawn] = []
    if screen is not None and any(v.gaps for v in screen.verdicts):
        colours = colours_of([b.name for b in branches])
        figures.append(
            Drawn(
                name="screen",
                title="Compatibility screen",
                says=screen_words(screen),
                draw=lambda: _screen(screen, [colours.get(v.branch, QUIET) for v in screen.verdicts]),
            )
        )
    if any(b.losses for b in branches):
        figures.append(
            Drawn(name="training", title="Training", says=_training_words(branches), draw=lambda: _training(branches))
        )
    return Section(
        figures=tuple(figures),
        tables=(branches_table(branches, records.read(PlanRecord), screen),),
        numbers=() if screen is None else (screen_table(screen),),
    )


def branches_table(branches: Sequence[BranchState], plan: PlanRecord | None, screen: ScreenRecord | None) -> Table:
    """Recipes, with what differs from the baseline in bold, and what became of each branch."""
    plans = {} if plan is None else plan.branches
    verdicts = {} if screen is None else {v.branch: v for v in screen.verdicts}
    fields = list(dict.fromkeys(field for p in plans.values() for field in p.recipe))
    varied = [field for field in fields if any(field in p.changed for p in plans.values())]
    rows: list[Row] = []
    for b in branches:
        recipe, changed = (plans[b.name].recipe, plans[b.name].changed) if b.name in plans else ({}, {})
        verdict = verdicts.get(b.name)
        rows.append(
            Row(
                cells=(
                    text(b.name),
                    *(Cell(text=recipe.get(field, "–"), best=field in changed) for field in varied),
                    text(f"running, {b.share:.0%}" if b.status == "running" else b.status),
                    tokens(b.tokens),
                    number(None if verdict is None else verdict.loss_gap, "+.2%"),
                    text("not screened" if verdict is None else verdict.word),
                    text(b.message or _why(b.name, screen)),
                )
            )
        )
    recipes = [p.recipe for p in plans.values()]
    same = [f"{field} {recipes[0][field]}" for field in fields if field not in varied]
    return Table(
        name="branches",
        title="Recipes and verdicts",
        columns=("branch", *varied, "status", "tokens", "J", "screen", "why"),
        rows=tuple(rows),
        notes=("Bold differs from the baseline." + (f" The same for all: {'; '.join(same)}." if same else ""),),
    )


def screen_table(screen: ScreenRecord) -> Table:
    """Who passed."""
    low = ", below the baseline: overfitting?"
    return tabulate(
        "screen",
        "Compatibility screen",
        screen.verdicts,
        {
            "branch": lambda v: text(v.branch),
            "loss": lambda v: number(v.loss, ".4f"),
            "J": lambda v: text(v.gap),
            "verdict": lambda v: text(v.word + low * v.suspiciously_low),
            "admitted earlier at": lambda v: text(_earlier(v.branch, screen)),
        },
        notes=[
            f"Against {screen.baseline}, tolerance {screen.tolerance:.1%}, on a {screen.measured_on}. J and verdict "
            "are of the full horizon; a soup whose branches stop earlier takes those that pass where they stop."
        ],
    )


def _earlier(branch: str, screen: ScreenRecord) -> str:
    """At how many of the saved positions a soup may take the branch."""
    if not screen.early:
        return "not screened"
    passed = [at.horizon for at in screen.early if branch in at.admitted]
    if len(passed) in (0, len(screen.early)):
        return "all positions" if passed else "none"
    return f"{len(passed)} of {len(screen.early)} positions, first {tokens_text(passed[0])}, last {tokens_text(passed[-1])}"


def screen_words(screen: ScreenRecord) -> str:
    """Who was admitted, who was not."""
    rejected = [f"{v.branch} (J {v.gap})" for v in screen.verdicts if not v.admitted]
    undecided = [f"{v.branch} (J {v.gap})" for v in screen.verdicts if v.admitted and v.undecided]
    words = f"{len(screen.verdicts) - len(rejected)} of {len(screen.verdicts)} branches admitted."
    words += f" Rejected: {', '.join(rejected)}." if rejected else ""
    words += f" Undecided, and so admitted: {', '.join(undecided)}." if undecided else ""
    gaps = [v.loss_gap for v in screen.verdicts if v.branch != screen.baseline]
    return words + (f" J at the horizon from {min(gaps):+.2%} to {max(gaps):+.2%}." if gaps else "")


def running_mean(values: Sequence[float]) -> list[float]:
    """The mean of the values up to each one, over a fixed window: no value of the future moves a point."""
    window = max(len(values) // SMOOTHED, 1)
    found: list[float] = []
    total = 0.0
    for i, value in enumerate(values):
        total += value - (values[i - window] if i >= window else 0.0)
        found.append(total / min(i + 1, window))
    return found


def thinned(points: Sequence[tuple[int, float]], *, most: int = MOST_POINTS) -> list[tuple[int, float]]:
    """At most `most` points: means over equal stretches, so that noise is drawn as its middle and not as an accident."""
    if len(points) <= most:
        return list(points)
    kept: list[tuple[int, float]] = []
    for i in range(most):
        part = points[i * len(points) // most : (i + 1) * len(points) // most]
        kept.append((part[-1][0], sum(loss for _, loss in part) / len(part)))
    return kept


def _why(branch: str, screen: ScreenRecord | None) -> str | None:
    if screen is None:
        return None
    if branch == screen.baseline:
        return "the baseline"
    v = next((v for v in screen.verdicts if v.branch == branch), None)
    if v is None:
        return "not screened: it has no loss at the horizon"
    side = "at most" if v.loss_gap <= screen.tolerance else "above"
    words = f"J = {v.gap} at the horizon, {side} the tolerance {screen.tolerance:.2%}"
    if v.undecided:
        words += ", which lies within its spread" + ("" if v.noise is None else f": {v.noise.cure} would decide")
    return words + ("; far below the baseline, look for overfitting" if v.suspiciously_low else "")


def _screen(screen: ScreenRecord, colours: Sequence[str]) -> Figure:
    """J, the relative gap of training loss to the baseline, against tokens; above the line a branch is rejected."""
    size, title = token_axis(max(position for v in screen.verdicts for position, _ in v.gaps))
    drawn = figure(x=title, y="J, loss gap to the baseline (%)")
    for v, colour in zip(screen.verdicts, colours, strict=True):
        drawn.add_scatter(
            x=[position / size for position, _ in v.gaps],
            y=[100 * gap for _, gap in v.gaps],
            mode="lines+markers",
            name=plain(v.branch) + ("" if v.admitted else " (rejected)"),
            line={"color": colour, "width": 2, "dash": "solid" if v.admitted else "dash"},
            marker={"size": 6, "symbol": "circle" if v.admitted else "x"},
            hovertemplate=f"<b>{plain(v.branch)}</b><br>%{{x:.4g}}: J <b>%{{y:+.3f}} %</b><extra></extra>",
        )
    drawn.add_hline(
        y=100 * screen.tolerance,
        line={"dash": "dot", "color": QUIET, "width": 1.5},
        annotation={"text": f"tolerance {screen.tolerance:.2%}", "xanchor": "right"},
    )
    return drawn


def _training(branches: Sequence[BranchState]) -> Figure:
    """Training loss of every branch as a running mean, the logged loss faintly behind; a failed one ends in a cross."""
    size, title = token_axis(max(position for b in branches for position, _ in b.losses))
    drawn = figure(x=title, y="training loss (nats per token)")
    colours = colours_of([b.name for b in branches])
    for b in branches:
        points = thinned(b.losses)
        if not points:
            continue
        x, losses, colour = [position / size for position, _ in points], [loss for _, loss in points], colours[b.name]
        drawn.add_scatter(
            x=x,
            y=losses,
            mode="lines",
            line={"color": faded(colour, 0.22), "width": 1},
            legendgroup=b.name,
            showlegend=False,
            hoverinfo="skip",
        )
        drawn.add_scatter(
            x=x,
            y=running_mean(losses),
            mode="lines",
            name=plain(b.name),
            legendgroup=b.name,
            line={"color": colour, "width": 2.2},
            customdata=[[None, loss] for loss in losses],
            hovertemplate=f"<b>{plain(b.name)}</b><br>%{{x:.4g}}: running mean <b>%{{y:.4f}}</b>"
            "<br>logged %{customdata[1]:.4f}<extra></extra>",
        )
        if b.broken:
            drawn.add_scatter(
                x=x[-1:],
                y=losses[-1:],
                mode="markers",
                marker={"symbol": "x", "size": 12, "color": colour},
                hovertemplate=f"<b>{plain(b.name)}</b> {plain(b.status)}<extra></extra>",
                showlegend=False,
            )
    return drawn


def _training_words(branches: Sequence[BranchState]) -> str:
    """How far the branches are and where they ended."""
    drawn = [b for b in branches if b.losses]
    ends = {b.name: running_mean([loss for _, loss in b.losses])[-1] for b in drawn if not b.broken}
    words = f"{counted(len(drawn), 'branch', 'branches')}, the longest at {tokens_text(max(b.tokens for b in drawn))} tokens."
    if ends:
        low = min(ends, key=lambda name: ends[name])
        words += f" Lowest at the end: {low} ({ends[low]:.4f}, running mean)."
    broken = [b.name for b in drawn if b.broken]
    return words + (f" A cross marks where {', '.join(broken)} stopped." if broken else "")
