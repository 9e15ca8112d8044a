"""Trajectory Soup: average the best checkpoints of several training branches into one better model.

    from trajsoup import Choice, make_soup, plan_soup, scan_branches

Names are imported on first use, so that `import trajsoup` costs nothing and needs no torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Branches": "merge.branches",
    "Candidate": "core.pool",
    "Choice": "merge.choice",
    "METHODS": "core.methods.table",
    "MemorySink": "engine.sinks",
    "Options": "engine.workers",
    "Pool": "core.pool",
    "Row": "core.soup",
    "SELECTIONS": "core.selection",
    "Signal": "core.signal",
    "TrajsoupError": "errors",
    "WEIGHTINGS": "core.coefficients",
    "blend": "engine.blend",
    "examine": "merge.doctor",
    "explicit_row": "merge.plan",
    "gram": "engine.gram",
    "load_branches": "merge.branches",
    "make_layout": "engine.layout",
    "make_soup": "merge.make",
    "method": "core.methods.table",
    "open_checkpoint": "store.checkpoint",
    "plan_row": "merge.plan",
    "plan_soup": "merge.plan",
    "save_branches": "merge.branches",
    "scan_branches": "merge.branches",
    "screen": "core.screening",
    "selection": "core.selection",
    "soup_row": "core.soup",
    "verify_soup": "merge.verify",
    "weighting": "core.coefficients",
}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'trajsoup' has no attribute {name!r}")
    return getattr(import_module(f"trajsoup.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
