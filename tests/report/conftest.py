"""Studies to report on, and a real browser to look at them with."""

from __future__ import annotations

import contextlib

import pytest

from tests.report.bowl import Shape
from tests.report.browsing import NO_BROWSER, SWITCHES, Visit
from tests.report.sample_study import write_study
from trajsoup.report.export import find_browser
from trajsoup.report.page import render_page
from trajsoup.report.study import open_study

SMALL = Shape(branches=("EXP1", "EXP2", "EXP3"), checkpoints=12, logged=60)


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """A finished study of three branches."""
    return write_study(tmp_path_factory.mktemp("study"), SMALL)


@pytest.fixture(scope="session")
def records(study):
    return open_study(study)


@pytest.fixture(scope="session")
def page(records, tmp_path_factory):
    """The report of that study, as a file."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(records), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium():
    """A browser; the module is skipped where there is none, and pytest's last lines say so."""
    found = find_browser()
    if found is None:
        pytest.skip(NO_BROWSER)
    playwright = pytest.importorskip(
        "playwright.sync_api", reason=f"no playwright (pip install playwright) or {NO_BROWSER}"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=list(SWITCHES))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Open an address; at the end the page must have logged no error and asked for nothing outside."""
    with contextlib.ExitStack() as stack:
        visits: list[Visit] = []

        def opened(address, **settings):
            one = Visit(stack.enter_context(contextlib.closing(chromium.new_context(**settings))), str(address))
            visits.append(one)
            return one.page

        yield opened
        for one in visits:
            assert one.errors == []
            assert one.outside == []
