"""Take the pictures of docs/images from the report of any study: `make pictures STUDY=folder`.

records -> report.html -> a real browser: light, dark, on a phone -> docs/images/*.png
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from trajsoup.report.export import HOW_TO_GET_ONE, SWITCHES, find_browser
from trajsoup.report.page import render_page
from trajsoup.report.study import open_study

IMAGES = Path(__file__).parent / "images"
PICTURES = (  # file, width, height, scheme, scale, what is at the top
    ("report-light.png", 1280, 1000, "light", 1, None),
    ("report-results.png", 1280, 1000, "light", 1, "#results"),
    ("report-dark.png", 1280, 1180, "dark", 1, "#scaling"),
    ("report-phone.png", 390, 844, "light", 2, None),
)


def main() -> None:
    """Render the study's page and photograph it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("study", type=Path, help="folder that holds records/")
    arguments.add_argument("--output", type=Path, default=IMAGES)
    given = arguments.parse_args()
    browser = find_browser()
    if browser is None:
        raise SystemExit(f"no browser: {HOW_TO_GET_ONE}")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = Path(folder, "report.html")
        page.write_text(render_page(open_study(given.study)), encoding="utf-8")
        switches = [switch for switch in SWITCHES if not switch.startswith("--headless")]
        chromium = driver.chromium.launch(executable_path=browser, args=switches)
        for name, width, height, scheme, scale, top in PICTURES:
            context = chromium.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=scale
            )
            seen = context.new_page()
            seen.goto(page.as_uri())
            seen.wait_for_selector("html[data-drawn=all]", state="attached", timeout=120_000)
            if top is not None:
                seen.evaluate(f"document.querySelector({top!r}).scrollIntoView({{behavior: 'instant'}})")
            seen.wait_for_timeout(400)
            seen.screenshot(path=given.output / name)
            context.close()
            print(given.output / name)  # noqa: T201 - a script for people
        chromium.close()


if __name__ == "__main__":
    main()
