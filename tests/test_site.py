"""The site of the docs builds, and every link on it leads somewhere."""

import logging
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def build(config_file, site):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(config_file), strict=True, site_dir=str(site)))


def test_the_site_builds_strictly_with_every_page_and_no_request_elsewhere(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        build(ROOT / "mkdocs.yml", tmp_path / "site")
    first = (tmp_path / "site" / "index.html").read_text()
    for page in ("merge", "own-study", "foreign-runs", "which-k", "python", "formats", "cluster", "scores"):
        assert (tmp_path / "site" / page / "index.html").is_file()
        assert f'href="{page}/"' in first
    assert "fonts.googleapis" not in first


def test_a_broken_link_fails_the_build(tmp_path):
    from mkdocs.exceptions import Abort

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Here\n\n[nowhere](gone.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nvalidation: {links: {not_found: warn}}\n")
    with pytest.raises(Abort):
        build(tmp_path / "mkdocs.yml", tmp_path / "site")
