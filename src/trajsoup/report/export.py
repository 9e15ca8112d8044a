"""Each figure as SVG and PNG, drawn by the same plotly.js as the page, in a browser for each core.

    figures -> a page that draws each and writes the images into itself -> chromium --headless --dump-dom -> files

Only a chromium (or chrome) is needed, no driver and no network. Where there is none, the report says so and how to
get it; everything else is written all the same.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trajsoup.errors import OutputError
from trajsoup.report.page import FILE_POLICY, asset, plotly_script, script_json
from trajsoup.report.section import Drawn
from trajsoup.store.confined import inside

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SWITCHES = (
    "--headless=new",
    "--no-sandbox",  # containers have no user namespaces; the page is our own file and asks for nothing
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-dev-shm-usage",
)
MOST_BROWSERS = 4  # each takes its time to start, and memory
WIDTH = 900
PNG_SCALE = 2
TIMEOUT_SECONDS = 180
VIRTUAL_MILLISECONDS = 10_000  # the page's clock, which stands still while it draws; real time is TIMEOUT_SECONDS
HOW_TO_GET_ONE = "install chromium (Debian: apt-get install chromium), or name one in TRAJSOUP_BROWSER"
_IMAGE = re.compile(r'<output data-name="([^"]+)" data-format="(svg|png)">([^<]*)</output>')


def find_browser() -> str | None:
    """The browser that TRAJSOUP_BROWSER names, or the first that is installed; None where there is none."""
    named = os.environ.get("TRAJSOUP_BROWSER")
    if named:
        return shutil.which(named)
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def export_figures(figures: Sequence[Drawn], folder: Path, *, browser: str) -> tuple[Path, ...]:
    """Write <name>.svg and <name>.png for every figure; return the files."""
    images = draw_images({f.name: f.spec() for f in figures}, browser=browser, at_once=len(os.sched_getaffinity(0)))
    missing = [f.name for f in figures if {(f.name, "svg"), (f.name, "png")} - images.keys()]
    if missing:
        raise OutputError(
            f"{browser} drew no image of {', '.join(missing)}: try another browser (TRAJSOUP_BROWSER), or pass --no-images"
        )
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for (name, kind), data in images.items():
        path = inside(folder, f"{name}.{kind}")
        path.write_bytes(data)
        written.append(path)
    return tuple(written)


def draw_images(specs: Mapping[str, dict[str, Any]], *, browser: str, at_once: int = 1) -> dict[tuple[str, str], bytes]:
    """(name, format) -> bytes of every image that the browser could draw, in `at_once` starts of it side by side."""
    at_once = min(at_once, MOST_BROWSERS, len(specs))
    shares = [{name: specs[name] for name in list(specs)[i::at_once]} for i in range(at_once)]
    with ThreadPoolExecutor(max(at_once, 1)) as pool:
        drawn = list(pool.map(lambda share: _draw(share, browser=browser), shares))
    return {key: image for part in drawn for key, image in part.items()}


def _draw(specs: Mapping[str, dict[str, Any]], *, browser: str) -> dict[tuple[str, str], bytes]:
    script = asset("export.js").replace("WIDTH", str(WIDTH)).replace("SCALE", str(PNG_SCALE))
    with tempfile.TemporaryDirectory(prefix="trajsoup-figures-") as temporary:
        page = Path(temporary, "figures.html")
        page.write_text(
            f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{FILE_POLICY}">'
            f'<body><script>{plotly_script()}</script><script type="application/json" id="figures">'
            f"{script_json(dict(specs))}</script><script>{script}</script>",
            encoding="utf-8",
        )
        try:
            done = subprocess.run(
                [
                    browser,
                    *SWITCHES,
                    f"--user-data-dir={temporary}/profile",
                    f"--virtual-time-budget={VIRTUAL_MILLISECONDS}",
                    "--dump-dom",
                    page.as_uri(),
                ],
                capture_output=True,
                timeout=TIMEOUT_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OutputError(
                f"{browser} could not draw the figures ({error}): try another browser (TRAJSOUP_BROWSER), or pass --no-images"
            ) from error
    found: dict[tuple[str, str], bytes] = {}
    for name, kind, address in _IMAGE.findall(done.stdout.decode("utf-8", "replace")):
        found[name, kind] = _bytes(address)
    return found


def _bytes(address: str) -> bytes:
    """What a data: address holds."""
    head, _, body = address.partition(",")
    if head.endswith(";base64"):
        return base64.b64decode(body)
    return unquote(_unescaped(body)).encode()


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
