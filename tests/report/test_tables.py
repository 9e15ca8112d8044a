import csv
import io

from trajsoup.core.signal import Signal
from trajsoup.report.contents import OVERALL, Branch, ScoreRow, ScoreTable
from trajsoup.report.tables import branches_table, csv_text, markdown, score_table


def losses(*rows):
    return ScoreTable(
        name="loss", title="Loss", rank_by=Signal.LOSS, split="test", columns=("web", OVERALL), rows=tuple(rows)
    )


def test_the_lowest_loss_and_the_highest_accuracy_are_bold():
    rows = (ScoreRow(soup="a", label="a", values=(2.0, 1.5)), ScoreRow(soup="b", label="b", values=(1.9, 1.6)))
    best = [[cell.best for cell in row.cells] for row in score_table(losses(*rows)).rows]
    assert best == [[False, False, True], [False, True, False]]
    accuracy = ScoreTable(
        name="a",
        title="A",
        rank_by=Signal.ACCURACY,
        split="test",
        columns=(OVERALL,),
        rows=(ScoreRow(soup="a", label="a", values=(0.6,)), ScoreRow(soup="b", label="b", values=(0.7,))),
    )
    assert [row.cells[1].best for row in score_table(accuracy).rows] == [False, True]
    assert score_table(accuracy).rows[1].cells[1].text == "70.00"


def test_a_difference_inside_noise_is_marked_beside_the_best():
    rows = (
        ScoreRow(soup="a", label="a", values=(2.0, 1.5), in_noise=(False, False)),
        ScoreRow(soup="b", label="b", values=(1.9, 1.5001), in_noise=(False, True)),
    )
    text = markdown(score_table(losses(*rows)))
    assert "| a | 2.0000 | **1.5000** |" in text
    assert "| b | **1.9000** | 1.5001 ≈ |" in text


def test_a_missing_score_is_a_dash_and_never_the_best():
    missing = ScoreRow(soup="a", label="a", values=(None, None))
    rows = (missing, ScoreRow(soup="b", label="b", values=(1.9, 1.5)), ScoreRow(soup="c", label="c", values=(2.0, 1.6)))
    first, second, _ = score_table(losses(*rows)).rows
    assert [cell.text for cell in first.cells] == ["a", "–", "–"]
    assert not any(cell.best for cell in first.cells)
    assert all(cell.best for cell in second.cells[1:])


def test_a_column_in_which_all_are_equal_has_no_best():
    rows = (ScoreRow(soup="a", label="a", values=(2.0, 1.5)), ScoreRow(soup="b", label="b", values=(2.0, 1.6)))
    made = score_table(losses(*rows)).rows
    assert [[cell.best for cell in row.cells] for row in made] == [[False, False, True], [False, False, False]]
    assert [[cell.share for cell in row.cells[1:]] for row in made] == [[None, 1.0], [None, 0.0]]


def test_csv_holds_exact_values_and_no_formula():
    rows = (ScoreRow(soup="a", label="=cmd|' /C calc'!A0", values=(2.0, 1.0 / 3)),)
    read = list(csv.reader(io.StringIO(csv_text(score_table(losses(*rows))))))
    assert read[0] == ["model", "web", OVERALL]
    assert read[1][0].startswith("'=")
    assert float(read[1][2]) == 1.0 / 3


def test_names_cannot_break_a_markdown_table_or_become_html():
    rows = (ScoreRow(soup="a", label="<img src=x> | [y](z)\n`q`", values=(2.0, 1.0)),)
    line = markdown(score_table(losses(*rows))).splitlines()[4]
    assert line == "| &lt;img src=x&gt; \\| \\[y](z) \\`q\\` | 2.0000 | 1.0000 |"


def test_what_differs_from_the_baseline_is_bold_and_what_does_not_is_said_once():
    recipe = {"seed": "1", "peak_lr": "0.1", "clip": "1"}
    table = branches_table(
        [
            Branch(name="EXP1", status="finished", tokens=10, horizon=10, recipe=recipe),
            Branch(
                name="EXP2", status="finished", tokens=10, horizon=10, recipe={**recipe, "seed": "2"}, changed=("seed",)
            ),
        ]
    )
    assert table.columns[:2] == ("branch", "seed")
    assert [row.cells[1].best for row in table.rows] == [False, True]
    assert "peak_lr 0.1; clip 1" in table.caption
