import contextlib
import dataclasses
import fcntl
import io
import os
import pty
import re
import select
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.command import refused, succeeds, trajsoup
from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from trajsoup.errors import install


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
    assert install("report") in refused("report", study, "--no-images")


def served(monkeypatch, *args):
    calls = []
    monkeypatch.setattr("trajsoup.report.serve.run_server", lambda folder, **settings: calls.append(settings))
    monkeypatch.setattr("trajsoup.report.serve.listening", lambda host, port: contextlib.nullcontext((host, port)))
    done = succeeds("serve", *args)
    return calls[0], done.out


def test_serve_binds_to_this_machine_without_a_token(study, monkeypatch):
    settings, out = served(monkeypatch, study)
    assert settings == {"bound": ("127.0.0.1", 8765), "host": "127.0.0.1", "token": None}
    assert out == "http://127.0.0.1:8765/\n"


def test_serve_makes_a_token_when_bound_elsewhere(study, monkeypatch):
    monkeypatch.delenv("TRAJSOUP_TOKEN", raising=False)
    first, out = served(monkeypatch, study, "--host", "0.0.0.0")
    second, _ = served(monkeypatch, study, "--host", "0.0.0.0")
    assert first["token"] != second["token"]
    assert len(first["token"]) >= 32
    assert f"?token={first['token']}" in out


def test_serve_prints_no_address_that_another_program_has(study):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused("serve", study, "--port", str(taken.getsockname()[1]))
    assert "cannot listen on port" in said
    assert "http://" not in said


def test_serve_refuses_an_empty_token(study):
    assert "the token is empty" in refused("serve", study, "--host", "0.0.0.0", "--token", "")


def test_status_watch_shows_stages_branches_and_the_answer(tmp_path):
    from trajsoup.cli.overview import overview
    from trajsoup.report.study import open_study

    def printed(shape, folder):
        from rich.console import Console

        console = Console(width=140, record=True, file=io.StringIO())
        console.print(overview(open_study(write_study(folder, shape))))
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
    assert "yes" in whole
    assert "Does the soup beat the best single merge of the same token budget?" in whole
    assert "the model to take: whole/soup" in whole


def test_status_of_a_folder_shows_the_same_overview_without_a_study_file(study):
    text = succeeds("status", study).out
    assert "● plan  ● train" in text
    assert "admitted" in text
    stages = {line["stage"]: line["state"] for line in succeeds("status", study, "--json").json}
    assert (stages["plan"], stages["answer"]) == ("done", "done")


def test_status_watch_waits_for_a_study_follows_it_and_ends_with_it(tmp_path):
    """On a real terminal: a pty of 100 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    folder = tmp_path / "study"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "trajsoup", "status", str(folder), "--watch"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "TERM": "xterm-256color"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    try:
        seen = read_until(master, "waiting for")
        write_study(folder, dataclasses.replace(SMALL, until="plan", done=0.5))
        seen = read_until(master, "50%")
        assert "300B tokens" in seen
        write_study(folder, SMALL)
        read_until(master, "the model to take: study/soup")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def read_until(terminal, text):
    """What the terminal shows until `text` appears, control sequences left out."""
    seen = ""
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], 120)
        assert ready, f"nothing more came, and {text!r} did not appear in {seen!r}"
        try:
            seen += os.read(terminal, 1 << 16).decode("utf-8", "replace")
        except OSError:  # the other side is gone
            pytest.fail(f"it ended, and {text!r} did not appear in {seen!r}")
        seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    return seen


def test_following_a_study_is_for_people_alone(study):
    done = trajsoup("status", study, "--watch", "--json")
    assert done.code == 2
    assert "leave one of the two out" in done.err
