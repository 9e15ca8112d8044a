"""The page in a real browser: drawn, quiet, and answering to hover, click, theme and width."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from tests.report.browsing import Visit, drawn, overflow
from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from trajsoup.report.page import render_page
from trajsoup.report.sections import make_sections
from trajsoup.report.soups import soups_data
from trajsoup.report.study import open_study
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.sweeps import sweep_of
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.records.validation import ValidationRecord

WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
HOSTILE = (
    "<script>alert(1)</script>",
    'a"><img src=x onerror=alert(1)>',
    "</script><b>%{x}",
    "{{7*7}}'&amp;",
    "two\nlines",
    "=cmd|' /C calc'!A0",
    "\u202eright to left \u2603",
    "long" * 45,
)


@pytest.fixture(scope="module")
def seen(chromium, page):
    """The page on a laptop, opened once for the tests that leave it as it was."""
    with contextlib.closing(chromium.new_context(viewport=WIDE)) as context:
        one = Visit(context, page.as_uri())
        yield one.page
        assert one.errors == []
        assert one.outside == []


@pytest.fixture(scope="module")
def short_page(tmp_path_factory):
    """A page of few figures, for what does not depend on their number."""
    return as_file(tmp_path_factory.mktemp("short"), dataclasses.replace(SMALL, until="screen"))


def as_file(folder, shape):
    path = folder / "report.html"
    path.write_text(render_page(open_study(write_study(folder / "study", shape))), encoding="utf-8")
    return path.as_uri()


def click_mark(page, figure, *, mark=".point"):
    """Bring a figure into view and click its first mark."""
    page.locator(f"#card-{figure}").scroll_into_view_if_needed()
    box = page.locator(f"#figure-{figure} {mark}").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.wait_for_selector(f"#figure-{figure} .hovertext", state="attached")
    hover = page.locator(f"#figure-{figure} .hovertext").first.text_content()
    page.mouse.click(x, y)
    return hover


def test_every_figure_is_drawn_from_a_file_without_an_error_or_a_request(seen, records):
    marks = drawn(seen)
    assert set(marks) == {f.name for shown in make_sections(records) for f in shown.content.figures}
    assert [name for name, count in marks.items() if count == 0] == []


def test_hover_shows_exact_values_and_a_click_on_a_soup_its_row_of_w(seen, records):
    hover = click_mark(seen, "merge-size")
    first = sweep_of(records, "scaling").cells[0]
    assert "N = 1, K = 1, M = 1" in hover
    assert f"{first.loss:.4f}" in hover
    dialog = seen.locator("#detail")
    assert dialog.is_visible()
    shown = dialog.inner_text()
    ((checkpoint, _),) = soups_data(records)[first.row]["row"]
    assert "Its row of W" in shown
    assert checkpoint in shown
    assert "1.00000" in shown
    seen.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_a_row_of_the_main_table_shows_the_weights_and_hashes_of_its_soup(seen, records):
    seen.locator("#table-loss tr[data-soup='trajectory-soup/extended'] button").click()
    rows = seen.locator("#detail tbody tr").all_inner_texts()
    (soup,) = [row for row in records.require(RowsRecord).rows if row.name == "trajectory-soup/extended"]
    hashes = {k.key: k.sha256 for b in records.require(TrainRecord).branches for k in b.checkpoints}
    assert len(rows) == len(soup.weights)
    for row, (key, weight) in zip(rows, soup.weights.items(), strict=True):
        assert key in row
        assert f"{weight:.6g}"[:6] in row
        assert hashes[key][:16] in row
    seen.keyboard.press("Escape")


def test_a_click_on_a_raw_checkpoint_names_the_soups_it_is_in(seen, records):
    hover = click_mark(seen, "saturation")
    key = records.require(ValidationRecord).checkpoints[0].key
    assert key in hover
    assert seen.locator("#detail h2").inner_text() == key
    assert "a raw checkpoint" in seen.locator("#detail").inner_text()
    seen.keyboard.press("Escape")


def test_the_toolbar_of_a_figure_covers_no_legend(seen):
    covered = seen.evaluate(
        """[...document.querySelectorAll('.plot')].filter(plot => {
            const bar = plot.querySelector('.modebar'), legend = plot.querySelector('.legend');
            if (!bar || !legend) return false;
            const a = bar.getBoundingClientRect(), b = legend.getBoundingClientRect();
            return a.width && b.width && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        }).map(plot => plot.dataset.figure)"""
    )
    assert seen.locator(".plot .modebar").count() > 0
    assert covered == []


def test_tables_sort_by_number_both_ways(seen):
    button = seen.locator("#table-loss thead button").last

    def column():
        return [float(text) for text in seen.locator("#table-loss tbody td:last-child").all_inner_texts()]

    before = column()
    button.click()
    assert column() == sorted(before)
    button.click()
    assert column() == sorted(before, reverse=True)
    assert seen.locator("#table-loss th[aria-sort=descending]").count() == 1


def test_tables_sort_and_soups_open_from_the_keyboard(seen):
    button = seen.locator("#table-accuracy thead button").last
    button.focus()
    seen.keyboard.press("Enter")
    assert seen.locator("#table-accuracy th[aria-sort=ascending]").count() == 1
    soup = seen.locator("#table-accuracy tbody button").first
    soup.focus()
    seen.keyboard.press("Enter")
    assert seen.locator("#detail").is_visible()
    seen.keyboard.press("Escape")
    assert soup.evaluate("element => element === document.activeElement")  # back where one was


def test_every_figure_says_in_words_what_it_shows(seen):
    labels = seen.locator(".plot").evaluate_all("all => all.map(e => [e.getAttribute('role'), e.ariaLabel])")
    captions = seen.locator(".figures figcaption").all_inner_texts()
    assert all(role == "img" for role, _ in labels)
    assert all(caption in label for (_, label), caption in zip(labels, captions, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_its_ground(visit, short_page, scheme):
    page = visit(short_page, viewport=WIDE, color_scheme=scheme)
    style = "getComputedStyle(document.documentElement).getPropertyValue"
    grounds = [page.evaluate(f"{style}('--{name}')") for name in ("card", "ground")]
    for name in ("ink", "soft", "accent", "good", "bad", "warn"):
        colour = page.evaluate(f"{style}('--{name}')")
        for ground in grounds:
            assert contrast(colour, ground) >= 4.5, (name, colour, ground)  # WCAG AA


def contrast(one, other):
    """The contrast ratio of two colours written as #rrggbb."""

    def luminance(colour):
        parts = [int(colour.strip()[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def text_colour(page):
    return page.evaluate("getComputedStyle(document.querySelector('#figure-training .xtick text')).fill")


def test_light_and_dark_follow_the_system_and_the_button(visit, short_page):
    light = visit(short_page, viewport=WIDE, color_scheme="light")
    dark = visit(short_page, viewport=WIDE, color_scheme="dark")
    assert background(light) != background(dark)
    assert text_colour(light) != text_colour(dark)
    before, written = background(light), text_colour(light)
    light.locator("#theme").click()
    light.wait_for_selector("html[data-drawn=all]", state="attached")
    assert background(light) == background(dark)
    assert text_colour(light) == text_colour(dark) != written
    light.locator("#theme").click()
    assert background(light) == before


@pytest.mark.parametrize("viewport", [WIDE, {"width": 340, "height": 700}], ids=["laptop", "phone"])
def test_the_page_never_scrolls_sideways(visit, page, viewport):
    seen = visit(page.as_uri(), viewport=viewport)
    assert overflow(seen) <= 0
    widths = seen.evaluate(
        "[...document.querySelectorAll('.plot .main-svg')].map(e => e.getBoundingClientRect().right)"
    )
    assert max(widths) <= viewport["width"]


def test_on_paper_the_page_is_light_and_has_no_buttons(visit, short_page):
    seen = visit(short_page, viewport=WIDE, color_scheme="dark")
    seen.emulate_media(media="print")
    seen.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert background(seen) == "rgb(255, 255, 255)"
    assert not seen.locator("#theme").is_visible()
    assert not seen.locator("header").is_visible()
    assert len(seen.pdf()) > 20_000
    assert [name for name, count in drawn(seen).items() if count == 0] == []
    assert seen.locator("details:not([open])").count() == 0  # paper cannot unfold
    seen.evaluate("dispatchEvent(new Event('afterprint'))")
    seen.emulate_media(media="screen")
    seen.wait_for_selector("html[data-drawn=all]", state="attached")
    assert background(seen) != "rgb(255, 255, 255)"


def test_a_study_of_one_branch_has_a_page(visit, tmp_path):
    seen = visit(as_file(tmp_path, dataclasses.replace(SMALL, branches=("only",))), viewport=WIDE)
    assert "no answer" in seen.locator("#answer").inner_text().lower()
    assert "One branch only" in seen.locator("#card-merge-size").inner_text()
    assert min(drawn(seen).values()) > 0


def test_a_study_that_still_trains_shows_how_far_it_is(visit, tmp_path):
    seen = visit(as_file(tmp_path, dataclasses.replace(SMALL, until="plan", done=0.5)), viewport=PHONE)
    text = seen.locator("#answer").inner_text()
    assert "still running" in text
    assert "300B of 600B tokens" in text
    assert seen.locator("progress").count() == 3
    assert drawn(seen).keys() == {"training"}
    assert seen.locator("main > section").nth(1).get_attribute("id") == "branches"  # the curves, at once below
    assert "The (N, K) sweep has not run" in seen.locator("#to-come").text_content()


def test_rejected_and_failed_branches_say_why(visit, tmp_path):
    shape = dataclasses.replace(
        SMALL, branches=("EXP1", "EXP2", "EXP3", "EXP4", "EXP5"), rejected="EXP4", failed="EXP5"
    )
    seen = visit(as_file(tmp_path, shape), viewport=WIDE)
    assert "EXP5 failed. the process of EXP5 ended with code 1" in seen.locator(".problem").inner_text()
    rows = {row.split()[0]: row for row in seen.locator("#table-branches tbody tr").all_inner_texts()}
    assert "rejected" in rows["EXP4"]
    assert "above the tolerance 5.00%" in rows["EXP4"]
    assert "failed" in rows["EXP5"]
    assert "Rejected: EXP4" in seen.locator("#card-screen figcaption").inner_text()


@pytest.mark.parametrize("hostile", [HOSTILE[:4], HOSTILE[4:]], ids=["markup", "other"])
def test_hostile_names_are_shown_as_text(visit, tmp_path, hostile):
    shape = dataclasses.replace(SMALL, branches=hostile, title="<script>alert('title')</script>")
    seen = visit(as_file(tmp_path, shape), viewport=WIDE)
    assert seen.title() == "<script>alert('title')</script> · Trajectory Soup"
    names = [cell.strip() for cell in seen.locator("#table-branches tbody th").all_text_contents()]
    assert names == list(hostile)
    assert seen.locator("main img, main script, dialog script").count() == 0
    legend = seen.locator("#figure-training .legendtext").all_text_contents()
    assert [text.replace("\u200b", "") for text in legend] == [name.replace("\n", " ") for name in hostile]
    assert overflow(seen) <= 0
    hover = click_mark(seen, "saturation").replace("\u200b", "")
    assert any(name.replace("\n", " ") in hover for name in hostile)
    seen.keyboard.press("Escape")
    seen.locator("#table-loss tr[data-soup='trajectory-soup/extended'] button").click()
    assert hostile[1].replace("\n", " ") in seen.locator("#detail").inner_text()
    assert seen.locator("dialog img").count() == 0
