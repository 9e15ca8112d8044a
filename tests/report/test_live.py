"""The live page in a browser: a record that is written appears without a reload."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.report.bowl import Bowl
from tests.report.conftest import SMALL
from tests.report.sample_study import write_metrics, write_study

START_SECONDS = 60


@contextlib.contextmanager
def served(study):
    """`trajsoup serve` in its own process; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    source = str(Path(__file__).parents[2] / "src")
    process = subprocess.Popen(
        [sys.executable, "-m", "trajsoup", "serve", str(study), "--port", str(port)],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = process.stdout.readline().strip()
        assert address == f"http://127.0.0.1:{port}/"
        for _ in range(START_SECONDS * 10):
            with contextlib.suppress(urllib.error.URLError, TimeoutError):
                urllib.request.urlopen(f"{address}plotly.js", timeout=5).close()
                break
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("live"), dataclasses.replace(SMALL, until="plan", done=0.25))


def test_progress_and_then_the_answer_appear_on_an_open_page(visit, running, tmp_path):
    with served(running) as address:
        page = visit(address, viewport={"width": 1280, "height": 900})
        page.wait_for_selector("#live:not([hidden]):not(.lost)")
        assert "150B of 600B tokens" in page.locator(".progress").inner_text()
        marks = page.locator("#figure-training .js-line").first.get_attribute("d")

        write_metrics(running, "EXP1", Bowl(SMALL), points=SMALL.logged, done=0.75)
        page.locator(".progress", has_text="450B of 600B tokens").wait_for()
        page.wait_for_selector("html[data-drawn=all]", state="attached")
        assert page.locator("#figure-training .js-line").first.get_attribute("d") != marks

        finished = write_study(tmp_path / "finished", SMALL)
        shutil.copytree(finished / "records", running / "records", dirs_exist_ok=True)
        page.locator("h1", has_text="beats").wait_for()
        page.wait_for_selector("html[data-drawn=all]", state="attached")
        assert page.locator("#figure-surface .heatmaplayer image").count() == 1
        page.locator("h1 button").click()
        assert "Its row of W" in page.locator("#detail").inner_text()
