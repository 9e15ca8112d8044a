"""The site of the docs builds, and every link on it leads somewhere."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(config_file, site):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--config-file",
            str(config_file),
            "--site-dir",
            str(site),
        ],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_the_site_builds_strictly_with_every_page_and_no_request_elsewhere(tmp_path):
    built = build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert built.returncode == 0, built.stderr
    first = (tmp_path / "site" / "index.html").read_text()
    for page in ("merge", "own-study", "foreign-runs", "which-k", "python", "formats", "cluster", "scores"):
        assert (tmp_path / "site" / page / "index.html").is_file()
        assert f'href="{page}/"' in first
    assert "fonts.googleapis" not in first


def test_a_broken_link_fails_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Here\n\n[nowhere](gone.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nvalidation: {links: {not_found: warn}}\n")
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode == 1
    assert "gone.md" in built.stderr
