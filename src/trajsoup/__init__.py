"""Trajectory Soup: average the best checkpoints of several training branches into one better model.

    from trajsoup import Choice, make_soup, plan_soup, scan_branches

Names are imported on first use, so that `import trajsoup` costs nothing and needs no torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Branches": "study.branches",
    "Candidate": "core.pool",
    "Choice": "study.choice",
    "Coefficients": "core.coefficients",
    "MemorySink": "engine.sinks",
    "Options": "engine.workers",
    "Pool": "core.pool",
    "Signal": "core.signal",
    "Row": "core.soup",
    "Select": "core.selection",
    "Strategy": "core.soup",
    "TrajsoupError": "errors",
    "blend": "engine.blend",
    "examine": "study.doctor",
    "explicit_row": "study.merge",
    "gram": "engine.gram",
    "load_branches": "study.branches",
    "make_layout": "engine.layout",
    "make_soup": "study.merge",
    "open_checkpoint": "store.checkpoint",
    "plan_row": "study.merge",
    "plan_soup": "study.merge",
    "save_branches": "study.branches",
    "scan_branches": "study.branches",
    "screen": "core.screening",
    "soup_row": "core.soup",
    "verify_soup": "study.verify",
}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'trajsoup' has no attribute {name!r}")
    return getattr(import_module(f"trajsoup.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
