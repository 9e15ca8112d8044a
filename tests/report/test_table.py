import csv
import io
import json

from trajsoup.report.table import Cell, Row, Table, number, text


def table(*cells, columns=("model", "web", "overall")):
    return Table(name="loss", title="Loss", columns=columns, rows=tuple(Row(cells=line) for line in cells))


def test_the_best_is_bold_and_what_ties_with_it_is_marked():
    found = table(
        (text("a"), Cell(text="2.0000", value=2.0), Cell(text="1.5000", value=1.5, best=True)),
        (text("b"), Cell(text="1.9000", value=1.9, best=True), Cell(text="1.5001", value=1.5001, in_noise=True)),
    ).markdown()
    assert "| a | 2.0000 | **1.5000** |" in found
    assert "| b | **1.9000** | 1.5001 ≈ |" in found


def test_csv_and_json_hold_exact_values_with_bounds_in_columns_of_their_own():
    found = table((text("a"), number(1 / 3, ".2f", low=0.25, high=0.5), number(None, ".2f")))
    assert found.texts == [["a", "0.33 [0.25, 0.50]", "–"]]
    head, line = csv.reader(io.StringIO(found.csv()))
    assert head == ["model", "web", "web low", "web high", "overall"]
    assert [float(value) for value in line[1:4]] == [1 / 3, 0.25, 0.5]
    read = json.loads(found.json())
    assert read["columns"] == head
    assert read["rows"] == [["a", 1 / 3, 0.25, 0.5, "–"]]


def test_no_name_becomes_a_formula():
    for evil in ("=cmd|' /C calc'!A0", "+1+1", "@SUM(A1)", "-1+1", "\t=1"):
        found = table((text(evil), number(-1.0, ".1f"), text("-")), columns=("model", "=x", "y"))
        head, line = csv.reader(io.StringIO(found.csv()))
        assert head[1] == "'=x"
        assert line == [f"'{evil}", "-1.0", "-"]


def test_names_cannot_break_a_markdown_table_or_become_html():
    line = table((text("<img src=x> | [y](z)\n`q`"), text("1"), text("2"))).markdown().splitlines()[4]
    assert line == "| &lt;img src=x&gt; \\| [y\\](z) \\`q\\` | 1 | 2 |"


def test_a_column_of_numbers_stays_one_where_some_are_missing():
    found = table((text("a"), number(1.0), text(None)), (text("b"), number(None), text("x")))
    assert [found.numeric(i) for i in range(3)] == [False, True, False]
