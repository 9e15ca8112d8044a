"""Against the neighbours (sec:related): every method on the same checkpoints, tokens and splits."""

from __future__ import annotations

from functools import partial

from trajsoup.core.budget import Setting
from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.report.cells import difference, estimate, score, tokens
from trajsoup.report.section import Drawn, Section
from trajsoup.report.sections.neighbours_figures import Difference, Placed, difference_of, differences, over_budget
from trajsoup.report.table import Table, number, tabulate, text
from trajsoup.study.file.primary import LIMITED, SINGLE
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.neighbours import NeighboursRecord, TrainedNeighbour
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord, sweep_of

LOSS = Signal.LOSS
LEVELS = (None, Setting.LIMITED, Setting.EXTENDED)  # one branch first
TRAINED = "methods that train"
GRADIENT = 1.0  # a gradient token is a forward and a backward pass, as a training token is


def section(records: Records) -> Section | None:
    """A table of all methods, their quality over the budget, and what won here. None where they were not compared."""
    sweep = sweep_of(records, "methods")
    if sweep is None or not sweep.points:
        return None
    trained = records.read(NeighboursRecord)
    found = [_differing(sweep, p) for p in sweep.points]
    placed = [_placed(sweep, p) for p in sweep.points if p.test_loss is not None]
    if trained is not None:
        own = [m for m in trained.models if m.name not in (LIMITED, SINGLE)]  # those are in the sweep
        found += [_differing_trained(trained, m) for m in own]
        placed += [_placed_trained(trained, m) for m in own]
    apart = Drawn(
        name="neighbours-differences",
        title="How far from Trajectory Soup",
        says=says(sweep),
        draw=partial(differences, [d for d in found if d is not None]),
        wide=True,
    )
    budget = Drawn(
        name="neighbours",
        title="Quality over the budget",
        says="Tokens of training, and of gradients where a method learns from some; the lower, the better.",
        draw=partial(over_budget, placed),
        wide=True,
    )
    return Section(tables=(neighbours_table(sweep),), figures=(apart, budget))


def neighbours_table(sweep: SweepRecord) -> Table:
    """Every model: what it spent, how it scores, and how far it is from Trajectory Soup."""
    return tabulate(
        "neighbours",
        f"{sweep.title} ({sweep.points[0].chosen_on.split.value} chooses, test is reported)",
        sorted(sweep.points, key=lambda p: (LEVELS.index(p.setting), LOSS.cost(p.validation_loss))),
        {
            "method": lambda p: text(p.x),
            "level": lambda p: text(p.series),
            "branches": lambda p: text("+".join(p.branches)),
            "tokens": lambda p: tokens(p.trained_tokens),
            "each up to": lambda p: tokens(p.horizon),
            "validation passes": lambda p: number(p.chosen_on.validation_passes),
            "gradient tokens": lambda p: tokens(p.chosen_on.gradient_tokens or None),
            "merged": lambda p: number(p.merge_size),
            "validation loss": lambda p: score(p.validation_loss, LOSS),
            "test loss": lambda p: estimate(p.test_loss, LOSS),
            "loss from Trajectory Soup": lambda p: difference(compared(sweep, p, LOSS)),
            "test average": lambda p: estimate(p.test_accuracy, Signal.ACCURACY),
            "average from Trajectory Soup": lambda p: difference(compared(sweep, p, Signal.ACCURACY)),
            "loss from one branch of T": lambda p: difference(second_level(sweep, p)),
        },
        soup=lambda p: p.row,
        ours=lambda p: p.strategy == style.OURS,
        notes=(
            *sweep.notes,
            "Differences are paired over test documents or items, against the Trajectory Soup of the same setting; one "
            "branch of T stands against the Limited soup, which has T tokens too. They are exploratory.",
            "Tokens are those trained of the branches that it averages. A method that looks at the end of a branch may end "
            "it at a quarter, half or three quarters, by validation: up to there.",
            "Passes and gradient tokens are what choosing consumed besides training.",
            "Loss from one branch of T: the mean of a method's anchors over branches minus the method on the best branch.",
        ),
    )


def compared(sweep: SweepRecord, point: SweepPoint, signal: Signal) -> ComparisonRecord | None:
    """The point minus the Trajectory Soup of its setting."""
    soups = {p.row for p in sweep.points if p.strategy == style.OURS}
    found = (c for c in sweep.comparisons if c.model == point.row and c.reference in soups and c.signal is signal)
    return next(found, None)


def second_level(sweep: SweepRecord, point: SweepPoint) -> ComparisonRecord | None:
    """The mean of a method's anchors over branches minus the same method on the best branch of T."""
    alone = {p.row for p in sweep.points if p.setting is None and p.x == point.x}
    found = (c for c in sweep.comparisons if c.model == point.row and c.reference in alone and c.signal is LOSS)
    return next(found, None)


def says(sweep: SweepRecord) -> str:
    """What won here: at the budget T, and with every branch at T. By validation, with what that has on test."""
    words = [_winner(sweep, within) for within in (("T", (None, Setting.LIMITED)), ("N T", (Setting.EXTENDED,)))]
    words += [_levels(sweep, setting) for setting in (Setting.LIMITED, Setting.EXTENDED)]
    return " ".join(word for word in words if word)


def _levels(sweep: SweepRecord, setting: Setting) -> str:
    """For how many methods of one trajectory the second level adds something."""
    points = [p for p in sweep.points if p.setting is setting]
    found = [c for p in points if (c := second_level(sweep, p)) is not None]
    if not found:
        return ""
    better = sum(c.high is not None and c.high < 0 for c in found)
    worse = sum(c.low is not None and c.low > 0 for c in found)
    return (
        f"Of {len(found)} methods of one trajectory, the mean over {points[0].series} is clearly better than the best branch "
        f"of T in {better} and clearly worse in {worse}."
    )


def _winner(sweep: SweepRecord, within: tuple[str, tuple[Setting | None, ...]]) -> str:
    budget, settings = within
    points = [p for p in sweep.points if p.setting in settings and p.test_loss is not None]
    ours = next((p for p in points if p.strategy == style.OURS), None)
    if ours is None or len(points) < 2:
        return ""
    assert ours.test_loss is not None
    chosen = min(points, key=lambda p: LOSS.cost(p.validation_loss))
    words = f"At a budget of {budget}, Trajectory Soup has {style.score_text(ours.test_loss.value, LOSS)} on test."
    if chosen is ours:
        return f"{words} Of {len(points)} models validation prefers it."
    return f"{words} Of {len(points)} models validation prefers {_called(chosen)}: {_against(sweep, chosen)}."


def _called(point: SweepPoint) -> str:
    return f"{point.x} of {point.series}"


def _against(sweep: SweepRecord, point: SweepPoint) -> str:
    c = compared(sweep, point, LOSS)
    if c is None or c.difference is None:
        return "not compared"
    interval = style.interval_text(c.low, c.high, LOSS)
    clear = c.low is not None and c.high is not None and not c.low <= 0 <= c.high
    verdict = ("better" if c.difference < 0 else "worse") if clear else "which cannot be told apart"
    return (
        f"{style.difference_text(c.difference, LOSS)} from it{'' if interval is None else f' [{interval}]'}, {verdict}"
    )


def _differing(sweep: SweepRecord, point: SweepPoint) -> Difference | None:
    c = compared(sweep, point, LOSS)
    return None if c is None else difference_of(c, method=str(point.x), level=point.series, opens=point.row)


def _differing_trained(found: NeighboursRecord, model: TrainedNeighbour) -> Difference | None:
    c = found.against(model.name, LIMITED, LOSS)
    return None if c is None else difference_of(c, method=model.label, level=TRAINED, opens=None)


def _placed(sweep: SweepRecord, point: SweepPoint) -> Placed:
    assert point.test_loss is not None
    words = f"<b>{style.plain(_called(point))}</b><br>test <b>{style.score_text(point.test_loss.value, LOSS)}</b>"
    if compared(sweep, point, LOSS) is not None:
        words = f"{words}<br>{style.plain(_against(sweep, point))}"
    return Placed(
        level=point.series,
        tokens=point.trained_tokens + GRADIENT * point.chosen_on.gradient_tokens,
        loss=point.test_loss.value,
        ours=point.strategy == style.OURS,
        opens=point.row,
        words=words,
    )


def _placed_trained(found: NeighboursRecord, model: TrainedNeighbour) -> Placed:
    words = f"<b>{style.plain(model.label)}</b><br>test <b>{style.score_text(model.test_loss.value, LOSS)}</b>"
    c = found.against(model.name, LIMITED, LOSS)
    if c is not None:
        words = f"{words}<br>{style.plain(style.difference_text(c.difference, LOSS))} from Trajectory Soup"
    return Placed(level=TRAINED, tokens=model.tokens, loss=model.test_loss.value, words=words)
