"""What the site needs beyond docs/: the pages of the root, and links between the two that work in both places.

README.md is the first page. A link to a file that is no page (a script, a dated measurement) becomes its path in words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
_LINK = re.compile(r"(?<!!)\[(?P<words>[^\]]*)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages of the root."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Let links of a forge be links of the site."""
    of_root = page.file.src_uri in PAGES.values()
    folder = ROOT if of_root else ROOT / "docs"

    def link(found: re.Match[str]) -> str:
        path = (folder / found["target"]).resolve()
        if not path.exists():
            return found[0]  # the build complains
        relative = path.relative_to(ROOT).as_posix()
        target = PAGES.get(relative, relative.removeprefix("docs/") if relative.startswith("docs/") else None)
        return (
            f"{found['words']} (`{relative}`)"
            if target is None
            else f"[{found['words']}]({target}{found['anchor'] or ''})"
        )

    parts = re.split(r"(```.*?```)", markdown, flags=re.DOTALL)
    text = "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)
    return text.replace("](docs/images/", "](images/") if of_root else text
