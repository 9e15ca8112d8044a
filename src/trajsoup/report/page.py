"""The page: one renderer for the file on disk and for the live page.

    records -> answer, sections -> parts (HTML of the body, figures, soups) -> one HTML file
                                         \\-> the same parts as JSON, for a page that is already open

The file holds everything, plotly.js included, and asks the network for nothing: its content security policy forbids
it. The live page is the same template, with plotly.js beside it so that text is painted first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from trajsoup import __version__
from trajsoup.report.progress import branch_states, is_running, stage_states
from trajsoup.report.section import Shown
from trajsoup.report.sections import make_sections
from trajsoup.report.sections.answer import read_answer, why_no_answer
from trajsoup.report.soups import checkpoints_data, soups_data
from trajsoup.report.style import difference_text, interval_text, size_text, tokens_text
from trajsoup.store.json_file import plain
from trajsoup.study.records.comparisons import Evidence
from trajsoup.study.records.files import Records
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.train import TrainRecord

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


def page_parts(records: Records, *, made: Sequence[Shown] | None = None) -> Parts:
    """Render the body and collect what the script draws and shows."""
    made = make_sections(records) if made is None else made
    plan, branches = records.read(PlanRecord), branch_states(records)
    stages = stage_states(records, branches)
    running = is_running(stages)
    specs = {f.name: f.spec() for shown in made for f in shown.content.figures}
    body = (
        environment()
        .get_template("body.html.j2")
        .render(
            title=study_title(records),
            folder=records.study.resolve().name,
            answer=read_answer(records),
            why_no_answer=why_no_answer(records),
            stages=stages,
            running=running,
            branches=branches,
            notes=() if plan is None else plan.notes,
            sections=_in_order(made, records),
            to_come=[shown.entry for shown in made if running and shown.is_empty],
            specs=specs,
        )
    )
    return Parts(
        body=body,
        data={
            "figures": specs,
            "soups": soups_data(records),
            "checkpoints": checkpoints_data(records),
        },
    )


def _in_order(made: Sequence[Shown], records: Records) -> list[Shown]:
    """What there is to see; while branches train, their curves first."""
    there = [shown for shown in made if not shown.is_empty]
    return sorted(there, key=lambda shown: records.read(TrainRecord) is None and shown.entry.name != "branches")


def study_title(records: Records) -> str:
    """What the study is called: by its plan, or its folder."""
    plan = records.read(PlanRecord)
    return plan.title if plan is not None and plan.title else records.study.resolve().name


def render_page(records: Records, *, parts: Parts | None = None, live: str | None = None) -> str:
    """One HTML document: a file that stands alone, or, where `live` names the version shown, the page of a server."""
    parts = page_parts(records) if parts is None else parts
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            title=study_title(records),
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


def environment() -> Any:
    """Of all templates: what they are given is escaped, and what they are not given is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("trajsoup.report", ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"difference": difference_text, "size": size_text, "tokens": tokens_text}
    found.globals |= {"interval": interval_text, "Evidence": Evidence}
    return found


def asset(name: str) -> str:
    """A file that ships with the package."""
    return (resources.files("trajsoup.report") / ASSETS / name).read_text(encoding="utf-8")


def script_json(data: Any) -> str:
    """JSON that can stand inside a script element: no character of it is read as HTML, and NaN is null."""
    text = json.dumps(plain(data), separators=(",", ":"), allow_nan=False, ensure_ascii=True, default=_listed)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _listed(value: Any) -> Any:
    """Numpy's arrays and numbers, which plotly keeps."""
    return plain(value.tolist())
