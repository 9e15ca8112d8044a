"""The order of the report: which figures and tables stand where. One list for the file and for the live page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trajsoup.core.signal import Signal
from trajsoup.report import captions, tables
from trajsoup.report import contents as c
from trajsoup.report.figures import ablations, answer, branches, curves, geometry, scaling

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A figure of the page."""

    name: str  # of its file and its element
    title: str
    caption: str
    figure: Figure
    wide: bool = False  # takes the whole width of the page

    def spec(self) -> dict[str, Any]:
        """What plotly.js draws; plotly's default template is left out, since the page sets colours itself."""
        plain = self.figure.to_plotly_json()
        plain["layout"].pop("template", None)
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the page; `empty` says what is missing where there is nothing to show yet."""

    name: str
    title: str
    figures: tuple[Drawn, ...] = ()
    tables: tuple[tables.Table, ...] = ()  # before the figures
    more: tuple[tables.Table, ...] = ()  # after them
    numbers: tuple[tables.Table, ...] = ()  # behind figures that show the same: folded until asked for
    empty: str = ""

    @property
    def every_table(self) -> tuple[tables.Table, ...]:
        """All tables, in order."""
        return (*self.tables, *self.more, *self.numbers)


def sections(contents: c.Contents) -> tuple[Section, ...]:
    """Everything below the answer, in order."""
    return tuple(_filled(make(contents)) for make in _ORDER)


def _filled(section: Section) -> Section:
    """Two figures stand side by side; one that would stand alone takes the whole line."""
    narrow = [f for f in section.figures if not f.wide]
    if len(narrow) % 2 == 0:
        return section
    figures = tuple(replace(f, wide=True) if f is narrow[-1] else f for f in section.figures)
    return replace(section, figures=figures)


def _main(contents: c.Contents) -> Section:
    best = None if contents.answer is None else contents.answer.soup
    figures: list[Drawn] = []
    for rank in Signal:
        rows = [d for d in contents.differences if d.rank_by is rank]
        if rows:
            figures.append(
                Drawn(
                    name=f"differences-{rank.value}",
                    title=f"Gain in {rank.value}",
                    caption=captions.differences(rows),
                    figure=answer.differences(rows, best=best),
                )
            )
    listed: list[tables.Table] = []
    if contents.differences:
        listed.append(tables.differences_table(contents.differences))
    if contents.seeds:
        listed.append(tables.seeds_table(contents.seeds))
    if contents.further_seeds:
        listed.append(
            tables.seeds_table(contents.further_seeds, name="further-seeds", title="Sweeps and fine-tuning over seeds")
        )
    return Section(
        name="results",
        title="Results",
        figures=tuple(figures),
        tables=tuple(tables.score_table(t) for t in contents.tables),
        numbers=tuple(listed),
        empty="No soup has been scored on test yet.",
    )


def _curves(contents: c.Contents) -> Section:
    overall = [p for p in contents.panels if p.category == c.OVERALL]
    figures = [
        Drawn(
            name=f"curves-{p.rank_by.value}-{p.split}",
            title=f"{p.rank_by.value.capitalize()} over tokens ({p.split})",
            caption=captions.over_tokens(p),
            figure=curves.over_tokens(p),
            wide=True,
        )
        for p in overall
    ]
    for split in dict.fromkeys(p.split for p in contents.panels):
        panels = [p for p in contents.panels if p.category != c.OVERALL and p.split == split]
        if panels:
            figures.append(
                Drawn(
                    name=f"categories-{split}",
                    title=f"Accuracy by category ({split})",
                    caption=captions.categories(panels),
                    figure=curves.categories(panels),
                    wide=True,
                )
            )
    raw = next((p for p in overall if any(len(k.points) > 1 for k in p.curves if k.raw)), None)
    if raw is not None:
        figures.append(
            Drawn(
                name="saturation",
                title="Saturation along one branch",
                caption=captions.saturation(raw),
                figure=curves.saturation(raw),
            )
        )
    return Section(
        name="curves", title="Over tokens", figures=tuple(figures), empty="No checkpoint has been scored yet."
    )


def _frontier(contents: c.Contents) -> Section:
    return Section(
        name="compute",
        title="Compute",
        figures=tuple(
            Drawn(
                name=f"frontier-{data.rank_by.value}",
                title=f"{data.rank_by.value.capitalize()} over training compute ({data.split})",
                caption=captions.frontier(data),
                figure=scaling.compute_frontier(data),
                wide=True,
            )
            for data in contents.frontiers
        ),
        more=(tables.costs_table(contents.costs),) if contents.costs else (),
        numbers=(tables.pairs_table("spent", "Spent by the whole study", contents.spent),) if contents.spent else (),
        empty="The frontier has not been swept: `trajsoup sweep` makes it.",
    )


def _surface(contents: c.Contents) -> Section:
    sweep, theory = contents.surface, contents.theory
    figures: list[Drawn] = []
    if sweep is not None:
        figures = [
            Drawn(
                name="surface",
                title=f"N branches by K checkpoints ({sweep.split})",
                caption=captions.surface(sweep),
                figure=scaling.surface(sweep),
            ),
            Drawn(
                name="merge-size",
                title=f"Merge size ({sweep.split})",
                caption=captions.merge_size(sweep),
                figure=scaling.merge_size(sweep),
            ),
        ]
    if theory is not None and theory.record.soups:
        figures.append(
            Drawn(
                name="predicted",
                title=f"Predicted against measured ({theory.record.split.value})",
                caption=captions.predicted(theory),
                figure=scaling.predicted(theory),
            )
        )
    return Section(
        name="scaling",
        title="Branches and checkpoints",
        figures=tuple(figures),
        more=() if theory is None else tables.theory_tables(theory.record),
        empty="The (N, K) sweep has not run: `trajsoup sweep` makes it.",
    )


def _ablations(contents: c.Contents) -> Section:
    return Section(
        name="ablations",
        title="Ablations",
        figures=tuple(
            Drawn(name=f"ablation-{a.name}", title=a.title, caption=captions.ablation(a), figure=ablations.ablation(a))
            for a in contents.ablations
        ),
        numbers=tuple(
            tables.ablation_table(a) for a in contents.ablations if any(v.low is not None for v in a.variants)
        ),
        empty="No ablation has been swept: `trajsoup sweep` makes them.",
    )


def _geometry(contents: c.Contents) -> Section:
    data = contents.geometry
    figures: list[Drawn] = []
    if data is not None:
        made: list[tuple[bool, str, str, Callable[[c.Geometry], str], Callable[[c.Geometry], Figure]]] = [
            (len(data.branches) > 1, "cosines", "Alignment of branches", captions.cosines, geometry.cosines),
            (bool(data.tracks), "plane", "Trajectories in a plane", captions.plane, geometry.plane),
            (
                any(len(p.points) > 2 for p in data.profiles),
                "interpolation",
                f"Along the line between two anchors ({data.split})",
                captions.interpolation,
                geometry.interpolation,
            ),
            (
                len(data.pairs) > 1,
                "direction-gain",
                "Alignment and gain",
                captions.direction_gain,
                geometry.direction_gain,
            ),
        ]
        figures = [
            Drawn(name=name, title=title, caption=say(data), figure=draw(data))
            for wanted, name, title, say, draw in made
            if wanted
        ]
    return Section(name="geometry", title="Geometry", figures=tuple(figures), empty="No geometry has been computed.")


def _branches(contents: c.Contents) -> Section:
    figures: list[Drawn] = []
    if any(b.gaps for b in contents.branches):
        figures.append(
            Drawn(
                name="screen",
                title="Compatibility screen",
                caption=captions.screen(contents.branches),
                figure=branches.screen(contents.branches),
            )
        )
    if any(b.losses for b in contents.branches):
        figures.append(
            Drawn(
                name="training",
                title="Training",
                caption=captions.training(contents.branches),
                figure=branches.training(contents.branches),
            )
        )
    return Section(
        name="branches",
        title="Branches",
        figures=tuple(figures),
        tables=(tables.branches_table(contents.branches),) if contents.branches else (),
        empty="No branch is known yet.",
    )


def _provenance(contents: c.Contents) -> Section:
    found = contents.provenance
    listed = [tables.ingredients_table(found.ingredients)] if found.ingredients else []
    listed += [tables.pairs_table("settings", "Settings", [*found.versions, *found.settings])]
    return Section(name="provenance", title="Provenance", more=tuple(listed))


_ORDER = (_main, _curves, _frontier, _surface, _ablations, _geometry, _branches, _provenance)
