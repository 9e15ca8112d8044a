import struct
import xml.etree.ElementTree as ElementTree

import pytest

from tests.report.browsing import NO_BROWSER
from trajsoup.errors import OutputError
from trajsoup.report import export
from trajsoup.report.export import PNG_SCALE, WIDTH, export_figures, find_browser
from trajsoup.report.sections import make_sections
from trajsoup.report.writing import write_report


def some_figures(records):
    return [f for shown in make_sections(records) for f in shown.content.figures if f.name in ("surface", "training")]


def test_each_figure_becomes_an_svg_and_a_png_of_the_same_shape(records, tmp_path):
    browser = find_browser()
    if browser is None:
        pytest.skip(NO_BROWSER)
    written = export_figures(some_figures(records), tmp_path, browser=browser)
    assert {path.name for path in written} == {"surface.svg", "surface.png", "training.svg", "training.png"}
    for name in ("surface", "training"):
        root = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert float(root.attrib["width"]) == WIDTH
        head = (tmp_path / f"{name}.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", head[16:24])
        assert width == PNG_SCALE * WIDTH
        assert height == PNG_SCALE * float(root.attrib["height"])
    assert "EXP3" in "".join(ElementTree.parse(tmp_path / "training.svg").getroot().itertext())


def test_a_browser_that_draws_nothing_is_named_with_the_remedy(records, tmp_path):
    with pytest.raises(OutputError, match=r"/bin/true drew no image of surface, training.*--no-images"):
        export_figures(some_figures(records), tmp_path, browser="/bin/true")
    assert list(tmp_path.iterdir()) == []


def test_without_a_browser_everything_else_is_written(records, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAJSOUP_BROWSER", "no-such-browser")
    written = write_report(records.study, tmp_path / "report")
    assert written.page.is_file()
    assert written.images == 0
    assert "no browser was found: install chromium" in written.notes[0]
    assert (tmp_path / "report" / "tables.md").read_text().startswith("### Limited minus serial over the budget")
    assert len(list((tmp_path / "report" / "tables").glob("*.csv"))) == written.tables


def test_the_first_installed_browser_is_used_unless_one_is_named(monkeypatch):
    monkeypatch.delenv("TRAJSOUP_BROWSER", raising=False)
    monkeypatch.setattr(export.shutil, "which", lambda name: f"/opt/{name}" if name == "google-chrome" else None)
    assert find_browser() == "/opt/google-chrome"
    monkeypatch.setenv("TRAJSOUP_BROWSER", "mine")
    assert find_browser() is None
