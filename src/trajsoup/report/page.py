"""The page: one renderer for the file on disk and for the live page.

    Contents -> sections -> parts (HTML of the body, figures, soups) -> one HTML file
                                  \\-> the same parts as JSON, for a page that is already open

The file holds everything, plotly.js included, and asks the network for nothing: its content security policy forbids
it. The live page is the same template, with plotly.js beside it so that text is painted first.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib import resources
from typing import Any

from trajsoup import __version__
from trajsoup.core.signal import Signal
from trajsoup.report import contents as c
from trajsoup.report.figures.style import difference_text, score_text, tokens_text
from trajsoup.report.glance import lines
from trajsoup.report.sections import Section, sections

ASSETS = "assets"
FILE_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
LIVE_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What changes when records change."""

    body: str  # HTML
    data: dict[str, Any]  # figures, soups and checkpoints, for the page's script

    def json(self) -> str:
        """For a page that is already open."""
        return script_json({"body": self.body, **self.data})


def page_parts(contents: c.Contents, *, made: tuple[Section, ...] | None = None) -> Parts:
    """Render the body and collect what the script draws and shows."""
    made = sections(contents) if made is None else made
    body = (
        _environment()
        .get_template("body.html.j2")
        .render(
            contents=contents,
            sections=made,
            glance=lines(contents),
            level=next((d.level for d in contents.differences if d.level is not None), None),
            Evidence=c.Evidence,
        )
    )
    return Parts(
        body=body,
        data={
            "figures": {f.name: f.spec() for section in made for f in section.figures},
            "soups": {name: _soup(soup) for name, soup in contents.soups.items()},
            "checkpoints": {
                key: [k.branch, k.tokens, k.loss, k.accuracy, k.sha256] for key, k in contents.checkpoints.items()
            },
        },
    )


def render_page(contents: c.Contents, *, parts: Parts | None = None, live: str | None = None) -> str:
    """One HTML document: a file that stands alone, or, where `live` names the version shown, the page of a server."""
    parts = page_parts(contents) if parts is None else parts
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=contents.study,
            body=parts.body,
            data=script_json(parts.data),
            css=asset("page.css"),
            script=asset("page.js"),
            plotly=None if live is not None else plotly_script(),
            live=live,
            policy=FILE_POLICY if live is None else LIVE_POLICY,
            version=__version__,
        )
    )


def plotly_script() -> str:
    """plotly.js, as plotly's package ships it."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("trajsoup.report", ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"score": score_text, "difference": difference_text, "tokens": tokens_text, "gain": _gain}
    environment.globals |= {"LOSS": Signal.LOSS}
    return environment


def asset(name: str) -> str:
    """A file that ships with the package."""
    return (resources.files("trajsoup.report") / ASSETS / name).read_text(encoding="utf-8")


def _soup(soup: c.Soup) -> dict[str, Any]:
    return {
        "label": soup.label,
        "strategy": soup.strategy,
        "k": soup.k,
        "members": soup.members,
        "size": soup.merge_size,
        "horizon": soup.horizon,
        "scores": soup.scores,
        "row": [[i.checkpoint, i.weight] for i in soup.ingredients],
    }


def _gain(difference: c.Difference) -> str:
    """A difference without its sign, for a sentence that says which side it is on."""
    return difference_text(abs(difference.value), difference.rank_by).removeprefix("+")


def script_json(data: Any) -> str:
    """JSON that can stand inside a script element: no character of it is read as HTML, and NaN is null."""
    text = json.dumps(_plain(data), separators=(",", ":"), allow_nan=False, ensure_ascii=True, default=_listed)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(data: Any) -> Any:
    match data:
        case float():
            return data if math.isfinite(data) else None
        case dict():
            return {key: _plain(value) for key, value in data.items()}
        case list() | tuple():
            return [_plain(value) for value in data]
        case _:
            return data


def _listed(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return dict(value)
