"""The report and the live page at the size of the paper's study: how long, how large, how soon.

python benchmarks/report.py [--rounds 3] [--branches 5] [--checkpoints 24] [--logged 1000]

The study is synthetic (records of a quadratic bowl), so that nothing is trained. Times are wall clock on this machine;
the load average is printed beside them, since two shared cores make them longer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.report.bowl import Shape  # noqa: E402
from tests.report.browsing import SWITCHES  # noqa: E402
from tests.report.sample_study import write_study  # noqa: E402

from trajsoup.report.export import find_browser  # noqa: E402

TABLE = (
    ("report: page and tables", "s", 10.0),
    ("report: page, tables, SVG and PNG", "s", 10.0),
    ("size of the page", "MB", 8.0),
    ("live page: first paint", "s", 1.0),
    ("live page: all figures drawn", "s", None),
    ("record written to shown on the page", "s", 2.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--branches", type=int, default=5)
    parser.add_argument("--checkpoints", type=int, default=24)
    parser.add_argument("--logged", type=int, default=1000)
    asked = parser.parse_args()
    names = tuple(f"EXP{i + 1}" for i in range(asked.branches))
    shape = Shape(branches=names, checkpoints=asked.checkpoints, logged=asked.logged)
    found: dict[str, list[float]] = {name: [] for name, _, _ in TABLE}
    with tempfile.TemporaryDirectory() as folder:
        study = write_study(Path(folder), shape)
        for _ in range(asked.rounds):
            plain = seconds_of_report(study, "--no-images")
            whole = seconds_of_report(study)
            size = (study / "report" / "report.html").stat().st_size / 1e6
            paint, drawn, update = live(study, shape)
            for (name, _, _), value in zip(TABLE, (plain, whole, size, paint, drawn, update), strict=True):
                found[name].append(value)
    print(f"{asked.branches} branches x {asked.logged:,} logged points x {asked.checkpoints} checkpoints, ", end="")
    print(f"{asked.rounds} rounds, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n")
    print("| what | median | least | most | goal |\n|---|---:|---:|---:|---:|")
    for name, unit, goal in TABLE:
        values = found[name]
        goal_text = "" if goal is None else f"<= {goal:g} {unit}"
        print(
            f"| {name} | {statistics.median(values):.2f} {unit} | {min(values):.2f} | {max(values):.2f} | {goal_text} |"
        )


def seconds_of_report(study: Path, *options: str) -> float:
    """The whole command, Python's start included."""
    start = time.perf_counter()
    subprocess.run([*command("report"), str(study), *options], check=True, stdout=subprocess.DEVNULL, env=environment())
    return time.perf_counter() - start


def live(study: Path, shape: Shape) -> tuple[float, float, float]:
    """First paint, everything drawn, and the delay of an update; the server has been asked once, as after a reload."""
    from playwright.sync_api import sync_playwright

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [*command("serve"), str(study), "--port", str(port)], stdout=subprocess.DEVNULL, env=environment()
    )
    address = f"http://127.0.0.1:{port}/"
    try:
        wait_for(address)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=find_browser(), args=list(SWITCHES))
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            page.set_default_timeout(120_000)
            start = time.perf_counter()
            page.goto(address)
            page.wait_for_selector("html[data-drawn=all]", state="attached")
            drawn = time.perf_counter() - start
            paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
            page.wait_for_selector("#live:not([hidden]):not(.lost)")
            path = study / "records" / "plan.json"
            record = json.loads(path.read_text())
            title = f"written at {time.monotonic_ns()}"
            start = time.perf_counter()
            path.write_text(json.dumps({**record, "title": title}))
            page.locator(".study", has_text=title).wait_for()
            update = time.perf_counter() - start
            browser.close()
    finally:
        server.terminate()
        server.wait(30)
    return paint, drawn, update


def wait_for(address: str) -> None:
    for _ in range(600):
        with contextlib.suppress(urllib.error.URLError):
            urllib.request.urlopen(address, timeout=60).close()
            return
        time.sleep(0.1)
    raise SystemExit("the server did not start")


def command(name: str) -> list[str]:
    return [sys.executable, "-m", "trajsoup", name]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    main()
