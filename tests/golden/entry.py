"""How the golden study is run: the one place of these tests that names the package's functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trajsoup.merge.branches import save_branches, scan_branches
from trajsoup.study.file.study import load_study
from trajsoup.study.run import run_study


def run_found(folder: Path, fork_point: Path, runs: Sequence[Path], *, settings: str, corpus: Any) -> Path:
    """Scan, save, run; return the folder of the records."""
    found = scan_branches(list(runs), fork_point=fork_point, tokens_per_step=1000)
    save_branches(found, folder / "found.yaml")
    (folder / "documents.txt").write_text("the corpus is handed over\n")
    with (folder / "found.yaml").open("a") as file:
        file.write(settings)
    return run_study(load_study(folder / "found.yaml"), corpus=corpus, cache=folder / "cache").records.folder
