"""What a browser test needs: how the browser is started, and what it must not do."""

from __future__ import annotations

from urllib.parse import urlsplit

NO_BROWSER = "no chromium: install it (Debian: apt-get install chromium), or name one in TRAJSOUP_BROWSER"
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
)
SETTLE_MILLISECONDS = 60_000  # two shared cores may be slow; nothing waits that long when all is well


class Visit:
    """One page, with everything it complained about and everything it asked for beyond its own address."""

    def __init__(self, context, address: str) -> None:
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.page = context.new_page()
        self.page.set_default_timeout(SETTLE_MILLISECONDS)
        own = urlsplit(address)
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._note(request.url, own))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-drawn=all]", state="attached")

    def _note(self, url: str, own) -> None:
        asked = urlsplit(url)
        if asked.scheme not in ("data", "blob") and (asked.scheme, asked.netloc) != (own.scheme, own.netloc):
            self.outside.append(url)


def drawn(page) -> dict[str, int]:
    """Figure -> how many marks plotly drew in it."""
    return page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.plot')].map(e => [e.dataset.figure,"
        " e.querySelectorAll('.point, .js-line, .heatmaplayer image, .xy .trace').length]))"
    )


def overflow(page) -> int:
    """By how many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")
