"""A section is one function and one line: here it is added from outside the package."""

import pytest

from trajsoup.report import sections
from trajsoup.report.page import page_parts
from trajsoup.report.section import Drawn, Entry, Section
from trajsoup.report.sections import make_sections, register
from trajsoup.report.study import open_study
from trajsoup.report.table import pairs_table
from trajsoup.study.records.plan import PlanRecord


def toy(records):
    """The horizon of the plan, drawn."""
    import plotly.graph_objects as go

    if (plan := records.read(PlanRecord)) is None:
        return None
    figure = Drawn(
        name="toy-figure", title="Toy", says="One bar.", draw=lambda: go.Figure(go.Bar(x=["t"], y=[plan.horizon]))
    )
    return Section(figures=(figure,), more=(pairs_table("toy-table", "Toy", [("horizon", str(plan.horizon))]),))


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(sections, "SECTIONS", [*sections.SECTIONS])
    entry = Entry(name="toy", title="A toy", make=toy, missing="There is no plan to play with.")
    register(entry, before="provenance")
    return entry


def test_a_section_from_outside_is_on_the_page_in_its_place(registered, records):
    parts = page_parts(records)
    assert '<a href="#toy">A toy</a>' in parts.body
    assert parts.body.index('<section id="branches">') < parts.body.index('<section id="toy">')
    assert parts.body.index('<section id="toy">') < parts.body.index('<section id="provenance">')
    assert parts.data["figures"]["toy-figure"]["data"][0]["type"] == "bar"
    assert 'id="table-toy-table"' in parts.body


def test_its_tables_and_figures_are_written_beside_the_page(registered, records, tmp_path, monkeypatch):
    from trajsoup.report.writing import write_report

    monkeypatch.setenv("TRAJSOUP_BROWSER", "no-such-browser")
    write_report(records.study, tmp_path)
    assert (tmp_path / "tables" / "toy-table.csv").read_text() == "name,value\nhorizon,600000000000\n"


def test_without_its_record_a_section_says_what_is_missing(registered, tmp_path):
    (tmp_path / "records").mkdir()
    records = open_study(tmp_path)
    (shown,) = [shown for shown in make_sections(records) if shown.entry is registered]
    assert shown.section is None
    assert "There is no plan to play with." in page_parts(records).body


def test_two_sections_of_one_name_are_our_own_mistake(registered):
    with pytest.raises(AssertionError, match="'toy' already"):
        register(registered)
