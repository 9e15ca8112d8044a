import pytest

from trajsoup.cli.console import progress_bar, show_json, show_notes, show_table
from trajsoup.core.quantity import format_bytes
from trajsoup.store.json_file import json_text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (16e9, "16.0 GB"), (2.5e12, "2.50 TB")],
)
def test_sizes_are_for_people(nbytes, text):
    assert format_bytes(nbytes) == text


def test_tables_do_not_cut_names_or_read_markup_in_them(capsys):
    name = "a-very-long-branch-name-" * 6 + "[red]x[/red]"
    show_table("title", ["branch", "loss", "n"], [[name, 2.5, 12345], ["b", None, 1]])
    out = capsys.readouterr().out
    assert name in out
    assert "2.5000" in out
    assert "12,345" in out
    assert " - " in out


def test_on_a_narrow_terminal_a_table_comes_in_parts_whose_words_and_numbers_are_whole(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # of 80 columns
    names = ["first", "second", *(f"loss at {n}0.5k tokens" for n in range(1, 13))]
    rows = [[a, b, *(f"{seed}.{n:02}75 [{seed}.{n:02}11, {seed}.{n:02}99]" for n in range(1, 13))]
            for seed, (a, b) in enumerate([("EXP1", "EXP2"), ("EXP1", "EXP3"), ("EXP2", "EXP3")], start=1)]  # fmt: skip
    show_table("title", names, rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    words = [word for line in lines for word in line.split()]
    parts = words.count("first")
    assert parts > 1
    assert words.count("title") == 1
    assert words.count("EXP1") == 2 * parts  # whatever tells rows apart is in every part
    assert words.count("second") == parts
    assert {word for row in rows for cell in row for word in cell.split()} <= set(words)
    assert {f"{n}0.5k" for n in range(1, 13)} <= set(words)


def test_notes_go_to_stderr(capsys):
    show_notes(["a", "b"])
    assert capsys.readouterr() == ("", "note: a\nnote: b\n")


def test_progress_is_silent_where_nobody_watches(capsys):
    with progress_bar("reading", 100) as progress:
        progress(50)
    assert capsys.readouterr() == ("", "")


def test_json_is_what_every_reader_takes(capsys, tmp_path):
    show_json({"path": tmp_path, "losses": (1.5, float("nan"), float("-inf")), "none": None, "deep": {"x": [True, 3]}})
    assert capsys.readouterr().out == (
        f'{{\n  "path": "{tmp_path}",\n  "losses": [\n    1.5,\n    null,\n    null\n  ],\n  "none": null,\n'
        '  "deep": {\n    "x": [\n      true,\n      3\n    ]\n  }\n}\n'
    )
    assert json_text(float("inf")) == "null"
