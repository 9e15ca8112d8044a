"""Nothing is written down that nobody reads: a field of a record is shown, printed, or used by a later stage."""

import ast
import dataclasses
import importlib
import re
from pathlib import Path

import pytest

import trajsoup

ROOT = Path(trajsoup.__file__).parent
KINDS = sorted(
    path.stem for path in (ROOT / "study" / "records").glob("*.py") if path.stem not in ("__init__", "files")
)


@pytest.fixture(scope="module")
def read():
    """Every attribute that the package reads, and every word of the page's templates and scripts."""
    found = set()
    for path in ROOT.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    for path in (ROOT / "report" / "assets").glob("*.j*"):
        found |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_record_is_read_by_somebody(kind, read):
    module = importlib.import_module(f"trajsoup.study.records.{kind}")
    own = [c for c in vars(module).values() if dataclasses.is_dataclass(c) and c.__module__ == module.__name__]
    assert own
    unread = {f"{c.__name__}.{f.name}" for c in own for f in dataclasses.fields(c) if f.name not in read}
    assert unread == set()
