import dataclasses
import io

import pytest

from tests.command import refused, succeeds
from tests.report.conftest import SMALL
from tests.report.sample_study import write_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"), dataclasses.replace(SMALL, rejected="EXP3"))


def test_report_writes_page_tables_and_says_how_many(study, tmp_path):
    done = succeeds("report", study, "--output", tmp_path / "out", "--no-images")
    assert f"{tmp_path / 'out' / 'report.html'} (" in done.out
    assert "0 image files" in done.out
    assert (tmp_path / "out" / "tables" / "loss.csv").read_text().startswith("model,")


def test_report_goes_into_the_study_unless_told_otherwise(study):
    succeeds("report", study, "--no-images")
    first = (study / "report" / "report.html").read_bytes()
    succeeds("report", study, "--no-images")
    assert (study / "report" / "report.html").read_bytes() == first  # the same records give the same bytes


def test_a_folder_that_is_no_study_is_refused(tmp_path):
    assert "holds no records/" in refused("report", tmp_path, "--no-images")
    assert "holds no records/" in refused("serve", tmp_path)


def test_a_missing_library_is_named_with_the_extra(study, monkeypatch):
    monkeypatch.setattr("trajsoup.report.writing.NEEDED", ("no_such_library",))
    assert "trajectory-soup[report]" in refused("report", study, "--no-images")


def served(monkeypatch, *args):
    calls = []
    monkeypatch.setattr("trajsoup.report.serve.run_server", lambda folder, **settings: calls.append(settings))
    done = succeeds("serve", *args)
    return calls[0], done.out


def test_serve_binds_to_this_machine_without_a_token(study, monkeypatch):
    settings, out = served(monkeypatch, study)
    assert settings == {"host": "127.0.0.1", "port": 8765, "token": None}
    assert out == "http://127.0.0.1:8765/\n"


def test_serve_makes_a_token_when_bound_elsewhere(study, monkeypatch):
    monkeypatch.delenv("TRAJSOUP_TOKEN", raising=False)
    first, out = served(monkeypatch, study, "--host", "0.0.0.0")
    second, _ = served(monkeypatch, study, "--host", "0.0.0.0")
    assert first["token"] != second["token"]
    assert len(first["token"]) >= 32
    assert f"?token={first['token']}" in out


def test_serve_refuses_an_empty_token(study):
    assert "the token is empty" in refused("serve", study, "--host", "0.0.0.0", "--token", "")


def test_status_watch_shows_stages_branches_and_the_answer(tmp_path):
    from trajsoup.cli.overview import overview
    from trajsoup.report.reading import read_contents

    def printed(shape, folder):
        from rich.console import Console

        console = Console(width=140, record=True, file=io.StringIO())
        console.print(overview(read_contents(write_study(folder, shape))))
        return console.export_text()

    half = printed(
        dataclasses.replace(SMALL, until="plan", done=0.5, branches=("[bold]EXP1", "EXP2")), tmp_path / "half"
    )
    assert "● plan  ◐ train  ○ validation" in half
    assert "[bold]EXP1" in half
    assert "50%" in half
    assert "no answer yet" in half
    whole = printed(dataclasses.replace(SMALL, rejected="EXP3"), tmp_path / "whole")
    assert "rejected" in whole
    assert "Trajectory Soup changes the test loss by" in whole
