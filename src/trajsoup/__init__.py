"""Trajectory Soup: average the best checkpoints of several training branches into one better model.

    from trajsoup import Choice, make_soup, plan_soup, scan_branches

    make_soup(plan_soup(scan_branches(["runs/a", "runs/b"]), Choice(k=4)), "soup")

docs/python.md shows each name at work. They are imported on first use, so `import trajsoup` costs nothing and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:  # what a type checker and an editor see; a test keeps the two lists the same
    from trajsoup.core.coefficients import WEIGHTINGS as WEIGHTINGS
    from trajsoup.core.coefficients import weighting as weighting
    from trajsoup.core.methods.table import METHODS as METHODS
    from trajsoup.core.methods.table import method as method
    from trajsoup.core.pool import Candidate as Candidate
    from trajsoup.core.pool import Pool as Pool
    from trajsoup.core.screening import screen as screen
    from trajsoup.core.selection import SELECTIONS as SELECTIONS
    from trajsoup.core.selection import selection as selection
    from trajsoup.core.signal import Signal as Signal
    from trajsoup.core.soup import Row as Row
    from trajsoup.core.soup import soup_row as soup_row
    from trajsoup.engine.blend import blend as blend
    from trajsoup.engine.gram import gram as gram
    from trajsoup.engine.layout import make_layout as make_layout
    from trajsoup.engine.sinks import MemorySink as MemorySink
    from trajsoup.engine.workers import Options as Options
    from trajsoup.errors import BlendError as BlendError
    from trajsoup.errors import CheckpointError as CheckpointError
    from trajsoup.errors import MismatchError as MismatchError
    from trajsoup.errors import OutputError as OutputError
    from trajsoup.errors import ScreenError as ScreenError
    from trajsoup.errors import SelectionError as SelectionError
    from trajsoup.errors import StudyError as StudyError
    from trajsoup.errors import TrajsoupError as TrajsoupError
    from trajsoup.errors import VerifyError as VerifyError
    from trajsoup.merge.branches import Branches as Branches
    from trajsoup.merge.branches import load_branches as load_branches
    from trajsoup.merge.branches import save_branches as save_branches
    from trajsoup.merge.branches import scan_branches as scan_branches
    from trajsoup.merge.choice import Choice as Choice
    from trajsoup.merge.doctor import examine as examine
    from trajsoup.merge.make import make_soup as make_soup
    from trajsoup.merge.plan import OutputForm as OutputForm
    from trajsoup.merge.plan import explicit_row as explicit_row
    from trajsoup.merge.plan import plan_row as plan_row
    from trajsoup.merge.plan import plan_soup as plan_soup
    from trajsoup.merge.verify import verify_soup as verify_soup
    from trajsoup.report.writing import write_report as write_report
    from trajsoup.store.checkpoint import open_checkpoint as open_checkpoint
    from trajsoup.study.file.study import load_study as load_study
    from trajsoup.study.records.answer import AnswerRecord as AnswerRecord
    from trajsoup.study.records.files import Records as Records
    from trajsoup.study.records.files import records as records
    from trajsoup.study.records.rows import RowsRecord as RowsRecord
    from trajsoup.study.records.screen import ScreenRecord as ScreenRecord
    from trajsoup.study.run import run_study as run_study
else:
    _HOME = {
        "core.coefficients": ("WEIGHTINGS", "weighting"),
        "core.methods.table": ("METHODS", "method"),
        "core.pool": ("Candidate", "Pool"),
        "core.screening": ("screen",),
        "core.selection": ("SELECTIONS", "selection"),
        "core.signal": ("Signal",),
        "core.soup": ("Row", "soup_row"),
        "engine.blend": ("blend",),
        "engine.gram": ("gram",),
        "engine.layout": ("make_layout",),
        "engine.sinks": ("MemorySink",),
        "engine.workers": ("Options",),
        "errors": (
            "BlendError",
            "CheckpointError",
            "MismatchError",
            "OutputError",
            "ScreenError",
            "SelectionError",
            "StudyError",
            "TrajsoupError",
            "VerifyError",
        ),
        "merge.branches": ("Branches", "load_branches", "save_branches", "scan_branches"),
        "merge.choice": ("Choice",),
        "merge.doctor": ("examine",),
        "merge.make": ("make_soup",),
        "merge.plan": ("OutputForm", "explicit_row", "plan_row", "plan_soup"),
        "merge.verify": ("verify_soup",),
        "report.writing": ("write_report",),
        "store.checkpoint": ("open_checkpoint",),
        "study.file.study": ("load_study",),
        "study.records.answer": ("AnswerRecord",),
        "study.records.files": ("Records", "records"),
        "study.records.rows": ("RowsRecord",),
        "study.records.screen": ("ScreenRecord",),
        "study.run": ("run_study",),
    }
    _MODULE = {name: module for module, names in _HOME.items() for name in names}
    __all__ = ["__version__", *_MODULE]

    def __getattr__(name: str) -> object:
        if name not in _MODULE:
            raise AttributeError(f"module 'trajsoup' has no attribute {name!r}")
        return getattr(import_module(f"trajsoup.{_MODULE[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
