"""The page of `trajsoup watch --serve`: what could be had now, and the best at every look before. It loads itself again."""

from __future__ import annotations

from trajsoup.core.quantity import format_tokens
from trajsoup.merge.watch import Glance
from trajsoup.report.page import LIVE_POLICY, asset, environment
from trajsoup.report.table import Table, number, tabulate, text

REFRESH_SECONDS = 2
MOST_LOOKS = 200  # that the page remembers


class WatchPage:
    """The page as of the last look."""

    def __init__(self) -> None:
        self._looks: list[tuple[str, str, float]] = []  # farthest position, best model, its loss
        self.html = _page((), ("No checkpoint yet: waiting.",))

    def show(self, found: Glance) -> None:
        """Draw a look."""
        best = found.best
        if best is not None and best.loss is not None:
            at = max(run.position for run in found.runs)
            self._looks = [*self._looks, (format_tokens(at), f"{best.label} ({best.made_of})", best.loss)][-MOST_LOOKS:]
        self.html = _page((_lines(found), _runs(found), self._history(found)), found.words)

    def _history(self, found: Glance) -> Table:
        columns = {
            found.unit.value: lambda look: text(look[0]),
            "best model": lambda look: text(look[1]),
            "validation loss": lambda look: number(look[2], ".4f"),
        }
        return tabulate("looks", "The best at every look, newest first", self._looks[::-1], columns)


def _lines(found: Glance) -> Table:
    columns = {
        "model": lambda line: text(("* " if line is found.best else "") + line.label),
        "made of": lambda line: text(line.made_of),
        "validation loss": lambda line: number(line.loss, ".4f"),
    }
    return tabulate("now", "If I merged now (* the best)", found.lines, columns)


def _runs(found: Glance) -> Table:
    columns = {
        "run": lambda run: text(run.name),
        "checkpoints": lambda run: number(run.checkpoints),
        found.unit.value: lambda run: text(format_tokens(run.position)),
        "newest loss": lambda run: number(run.newest, ".4f"),
        "best loss": lambda run: number(run.best, ".4f"),
    }
    return tabulate("runs", "Runs", found.runs, columns)


def _page(tables: tuple[Table, ...], words: tuple[str, ...]) -> str:
    template = environment().get_template("watch.html.j2")
    return template.render(
        tables=tables, words=words, css=asset("page.css"), policy=LIVE_POLICY, seconds=REFRESH_SECONDS
    )
