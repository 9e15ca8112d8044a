"""Scores over tokens: strategies and raw checkpoints, overall and per category; serial saturation.

fig:traj-soup-performance-curves and fig:midtraining-saturation. Raw checkpoints are scored on validation only: what is
drawn beside them is drawn with its validation score, and test scores have panels of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trajsoup.core.budget import Setting
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report import style
from trajsoup.report.section import Drawn, Section
from trajsoup.report.words import SAME, joined
from trajsoup.study.records.files import Records
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.sweeps import SweepPoint, sweep_of
from trajsoup.study.records.validation import ScoredCheckpoint, ValidationRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BUDGET = "token budget"  # of sec:setup: per branch; in the Limited setting of all branches together
DASHES = ("solid", "dash", "dot", "dashdot")
Scored = list[tuple[SweepPoint, float]]
Raw = list[tuple[ScoredCheckpoint, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture: what was scored by one signal on one split, overall or in one category."""

    signal: Signal
    split: Split
    category: str | None  # None: overall
    merged: Mapping[str, Scored]  # series -> its points in order of budget
    raw: Mapping[str, Raw]  # branch -> its checkpoints in order of tokens
    fork_point: float | None

    @property
    def last_tokens(self) -> int:
        """The right end of the axis."""
        ends = [budget(p) for line in self.merged.values() for p, _ in line]
        return max([*ends, *(c.tokens for line in self.raw.values() for c, _ in line)], default=1)

    def leaders(self, points: Mapping[str, SweepPoint]) -> list[str]:
        """The series that validation prefers; those that tie there are all first. Test is drawn, and picks nothing."""
        costs = {s: self.signal.cost(p.score(self.signal, Split.VALIDATION, self.category)) for s, p in points.items()}
        return [series for series, cost in costs.items() if cost == min(costs.values())]

    @property
    def is_empty(self) -> bool:
        """Whether there is no line to draw."""
        return not self.raw and not any(len(line) > 1 for line in self.merged.values())


def section(records: Records) -> Section | None:
    """Overall panels first, validation with raw checkpoints and then test; then the categories; then saturation."""
    if (validation := records.read(ValidationRecord)) is None:
        return None
    sweep = sweep_of(records, "horizons")
    points = () if sweep is None else tuple(p for p in sweep.points if p.horizon is not None)
    rows = records.read(RowsRecord)
    best = None if rows is None else rows.best_soup()
    chosen = frozenset(() if best is None else best.weights)
    figures: list[Drawn] = []
    for split in (Split.VALIDATION, Split.TEST):
        for signal in Signal:
            panel = _panel(validation, points, signal, split)
            if not panel.is_empty:
                figures.append(
                    Drawn(
                        name=f"curves-{signal.value}-{split.value}",
                        title=f"{signal.value.capitalize()} over tokens ({split.value})",
                        says=over_tokens_words(panel, chosen),
                        draw=partial(over_tokens, panel, chosen),
                        wide=True,
                    )
                )
    names = dict.fromkeys(name for p in points for name in p.validation_categories)
    for split in (Split.VALIDATION, Split.TEST):
        panels = [_panel(validation, points, Signal.ACCURACY, split, name) for name in names]
        if panels and not any(panel.is_empty for panel in panels):
            figures.append(
                Drawn(
                    name=f"categories-{split.value}",
                    title=f"Accuracy by category ({split.value})",
                    says=_categories_words(panels),
                    draw=partial(_categories, panels),
                    wide=True,
                )
            )
    raw = _panel(validation, (), Signal.LOSS, Split.VALIDATION)
    if any(len(line) > 1 for line in raw.raw.values()):
        figures.append(
            Drawn(
                name="saturation",
                title="Saturation along one branch",
                says=_saturation_words(validation),
                draw=partial(_saturation, raw),
            )
        )
    return Section(figures=tuple(figures)) if figures else None


def budget(point: SweepPoint) -> int:
    """The token budget of sec:setup: of all branches together in the Limited setting, of each in the Extended one."""
    return round(point.x) if isinstance(point.x, int | float) else point.horizon or 0


def over_tokens(panel: Panel, chosen: frozenset[str]) -> Figure:
    """Every strategy against tokens, raw checkpoints behind; rings mark the ingredients of the best soup.

    A strategy has one colour; its Limited curve is dashed. Merges of single branches share one entry of the legend.
    """
    size, title = style.token_axis(panel.last_tokens, name=BUDGET)
    figure = style.figure(x=title, y=style.unit(panel.signal), height=style.HEIGHT)
    style.beside(figure)
    if (bounds := focus(panel)) is not None:
        figure.update_yaxes(range=[style.shown(value, panel.signal) for value in bounds])
    for i, (branch, line) in enumerate(panel.raw.items()):
        trace = _raw_trace(
            branch, line, panel, size, style.faded(style.QUIET, 0.9), dash=DASHES[i % len(DASHES)], width=1.2
        )
        trace |= {"legendgroup": "raw", "showlegend": i == 0, "name": "raw checkpoints"}
        figure.add_scatter(**trace)
    for trace in _strategies(panel, size):
        figure.add_scatter(**trace)
    rings = [(c, value) for line in panel.raw.values() for c, value in line if c.key in chosen]
    if rings:
        texts = [f"{_hover(c.branch, c.key, c.tokens, v, panel)}<br>an ingredient of the best soup" for c, v in rings]
        figure.add_scatter(
            x=[c.tokens / size for c, _ in rings],
            y=[style.shown(value, panel.signal) for _, value in rings],
            mode="markers",
            name="in the best soup",
            marker={"size": 12, "color": "rgba(0,0,0,0)", "line": {"width": 2, "color": style.SOUP}},
            **style.marks([c.key for c, _ in rings], texts),
        )
    return figure


def focus(panel: Panel) -> tuple[float, float] | None:
    """A range of scores that leaves out raw checkpoints from before the first merge; None: nothing is left out.

    The first checkpoints after the fork point are so far off that everything else would be one line.
    """
    merged = [(budget(p), value) for line in panel.merged.values() for p, value in line]
    raw = [(c.tokens, value) for line in panel.raw.values() for c, value in line]
    first = min((tokens for tokens, _ in merged), default=0)
    late = [value for tokens, value in raw if tokens >= first]
    if not merged or not late:
        return None
    kept = [*late, *(value for _, value in merged)]
    pad = 0.08 * (max(kept) - min(kept)) or 0.01
    low, high = min(kept) - pad, max(kept) + pad
    return None if all(low <= value <= high for _, value in raw) else (low, high)


def over_tokens_words(panel: Panel, chosen: frozenset[str]) -> str:
    """Which strategy leads, where, and how it compares with the best raw checkpoint and the fork point."""
    signal = panel.signal
    if not panel.merged:
        return "Only raw checkpoints so far: no strategy has been scored over tokens." + _fork_words(panel)
    here: dict[int, dict[str, SweepPoint]] = {}
    shown = {p.row: value for line in panel.merged.values() for p, value in line}
    for series, line in panel.merged.items():
        for p, _ in line:
            here.setdefault(budget(p), {})[series] = p
    leads = {tokens: panel.leaders(here[tokens]) for tokens in sorted(here)}
    leaders = list(leads.values())[-1]
    final = shown[here[max(here)][leaders[0]].row]
    count = sum(set(leaders) <= set(names) for names in leads.values())
    alone = len(leaders) == 1
    text = (
        f"{joined(leaders)} {'leads' if alone else 'lead together'} on validation at {count} of {len(leads)} horizons and "
        f"{'ends' if alone else 'end'} at {style.score_text(final, signal)} ({panel.split.value})."
    )
    if any(line[0][0].setting is Setting.LIMITED for line in panel.merged.values()):
        text += " The budget of a Limited curve is that of all its branches together."
    raw = [(c, value) for line in panel.raw.values() for c, value in line]
    if raw:
        lowest = min((value for _, value in raw), key=signal.cost)
        word = "better" if signal.improves(final - lowest) else "worse"
        apart = "as good as" if abs(final - lowest) < SAME else f"{style.size_text(final - lowest, signal)} {word} than"
        text += f" That is {apart} the best raw checkpoint, {style.score_text(lowest, signal)}."
        ringed = sum(c.key in chosen for c, _ in raw)
        text += f" Rings mark the {ringed} checkpoints of the best soup." if ringed else ""
        if (bounds := focus(panel)) is not None:
            outside = sum(not bounds[0] <= value <= bounds[1] for _, value in raw)
            text += f" {outside} early checkpoints lie outside the axis: a double click shows all."
    return text + _fork_words(panel)


def _panel(
    validation: ValidationRecord,
    points: Sequence[SweepPoint],
    signal: Signal,
    split: Split,
    category: str | None = None,
) -> Panel:
    merged: dict[str, Scored] = {}
    for p in sorted(points, key=budget):
        if (value := p.score(signal, split, category)) is not None:
            merged.setdefault(p.series, []).append((p, value))
    raw: dict[str, Raw] = {c.branch: [] for c in validation.checkpoints}
    for c in sorted(validation.checkpoints, key=lambda c: c.tokens):
        overall = c.loss if signal is Signal.LOSS else c.accuracy
        value = overall if category is None else c.categories.get(category)
        if value is not None and split is Split.VALIDATION:
            raw[c.branch].append((c, value))
    fork = validation.fork_point_loss if signal is Signal.LOSS else validation.fork_point_accuracy
    return Panel(
        signal=signal,
        split=split,
        category=category,
        merged=merged,
        raw={branch: line for branch, line in raw.items() if line},
        fork_point=fork if category is None and split is Split.VALIDATION else None,
    )


def _categories(panels: Sequence[Panel]) -> Figure:
    """Small multiples: the same strategies, one panel for each category."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    grid = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[style.plain(p.category) for p in panels],
        horizontal_spacing=0.09,
        vertical_spacing=min(0.12, 0.5 / rows),
    )
    figure = go.Figure(grid)
    seen: set[str] = set()
    size, title = style.token_axis(max(panel.last_tokens for panel in panels), name=BUDGET)
    for i, panel in enumerate(panels):
        for trace in _strategies(panel, size):
            trace["showlegend"] = trace["name"] not in seen
            seen.add(trace["name"])
            figure.add_scatter(**trace, row=i // columns + 1, col=i % columns + 1)
    frame = style.layout(x="", y="", height=80 + 250 * rows)
    figure.update_layout({k: v for k, v in frame.items() if k not in ("xaxis", "yaxis")})
    style.beside(figure)
    figure.update_layout(margin={"t": 40})
    figure.update_xaxes(zeroline=False, automargin=True)
    figure.update_yaxes(zeroline=False, automargin=True)
    figure.update_xaxes(title_text=title, row=rows)
    return figure


def _categories_words(panels: Sequence[Panel]) -> str:
    """In how many categories the same strategy ends first; strategies that tie are all first."""
    firsts: list[str] = []
    for panel in panels:
        firsts += panel.leaders({series: line[-1][0] for series, line in panel.merged.items()})
    most = max(firsts.count(series) for series in firsts)
    leaders = [series for series in dict.fromkeys(firsts) if firsts.count(series) == most]
    verb = "is" if len(leaders) == 1 else "are each"
    return f"At the last horizon {joined(leaders)} {verb} first on validation in {most} of {len(panels)} categories."


def _saturation(panel: Panel) -> Figure:
    """Raw checkpoints of every branch: how the gain per token shrinks along one run; the fork point is a line."""
    size, title = style.token_axis(panel.last_tokens)
    figure = style.figure(x=title, y=style.unit(panel.signal), height=360)
    colours = style.colours_of(list(panel.raw))
    for branch, line in panel.raw.items():
        figure.add_scatter(**_raw_trace(branch, line, panel, size, colours[branch], dash="solid", width=2))
    if panel.fork_point is not None:
        figure.add_hline(
            y=style.shown(panel.fork_point, panel.signal),
            line={"dash": "dot", "color": style.QUIET, "width": 1.5},
            annotation={"text": "fork point", "xanchor": "right"},
        )
    return figure


def _saturation_words(validation: ValidationRecord) -> str:
    """How much of a branch's gain its first half brought."""
    fork = validation.fork_point_loss
    begin = "" if fork is None else f" The fork point has {style.score_text(fork, Signal.LOSS)}."
    if not validation.saturation:
        return f"No branch is long enough, or none improves, so saturation cannot be read here.{begin}"
    parts = ", ".join(f"{branch} {share:.0%}" for branch, share in validation.saturation.items())
    return (
        f"Share of each branch's improvement that its first half already brought: {parts}. The closer to 100%, the less a "
        f"longer run would add.{begin}"
    )


def _fork_words(panel: Panel) -> str:
    return (
        "" if panel.fork_point is None else f" The fork point has {style.score_text(panel.fork_point, panel.signal)}."
    )


def _strategies(panel: Panel, size: float) -> list[dict[str, Any]]:
    """A line for each strategy, ours on top: Limited dashed, and branches merged alone thin and under one name."""
    ordered = sorted(panel.merged.items(), key=lambda item: item[1][0][0].strategy == style.OURS)
    kinds = {series: _kind(line[0][0]) for series, line in panel.merged.items()}
    colours = style.strategy_colours(list(kinds.values()))
    traces: list[dict[str, Any]] = []
    for series, line in ordered:
        first = line[0][0]
        limited = first.setting is Setting.LIMITED
        name = "Single EXP Merge (each branch)" if first.alone else style.plain(series)
        colour = colours[kinds[series]]
        texts = [_hover(series, p.row, budget(p), value, panel) for p, value in line]
        traces.append(
            {
                "x": [budget(p) / size for p, _ in line],
                "y": [style.shown(value, panel.signal) for _, value in line],
                "name": name,
                "legendgroup": name,
                "showlegend": name not in [trace["name"] for trace in traces],
                "mode": "lines+markers",
                "line": {"color": colour, "width": 1.4 if first.alone else 2.6, "dash": "dash" if limited else "solid"},
                "marker": {
                    "size": 4 if first.alone else 7,
                    "color": colour,
                    "symbol": "circle-open" if limited else "circle",
                },
                **style.marks([p.row for p, _ in line], texts),
            }
        )
    return traces


def _kind(point: SweepPoint) -> str:
    return f"{point.strategy}, alone" if point.alone else point.strategy


def _raw_trace(
    branch: str, line: Raw, panel: Panel, size: float, colour: str, *, dash: str, width: float
) -> dict[str, Any]:
    return {
        "x": [c.tokens / size for c, _ in line],
        "y": [style.shown(value, panel.signal) for _, value in line],
        "name": style.plain(branch),
        "mode": "lines+markers",
        "line": {"color": colour, "width": width, "dash": dash},
        "marker": {"size": 4, "color": colour},
        **style.marks([c.key for c, _ in line], [_hover(branch, c.key, c.tokens, value, panel) for c, value in line]),
    }


def _hover(curve: str, name: str, tokens: int, value: float, panel: Panel) -> str:
    return (
        f"<b>{style.plain(curve)}</b> at {style.tokens_text(tokens)} tokens<br>{panel.split.value} {panel.signal.value} "
        f"<b>{style.score_text(value, panel.signal)}</b><br>{style.plain(name)}"
    )
