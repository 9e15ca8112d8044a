"""The report draws what the records hold: the only mathematics it knows are types, enums and how numbers are written."""

import ast

import pytest

from tests.test_layers import MODULES, imported, layer_of, name_of

REPORT = [path for path in MODULES if layer_of(path) == "report"]
ALLOWED = {"trajsoup.core.budget", "trajsoup.core.quantity", "trajsoup.core.signal", "trajsoup.core.splits"}
COMPUTING = {"numpy", "scipy", "statistics", "random", "pandas", "torch"}


@pytest.mark.parametrize("path", REPORT, ids=name_of)
def test_the_report_imports_no_mathematics(path):
    names = imported(path)
    core = {name for name in names if name.startswith("trajsoup.core.")}
    assert {name for name in core if ".".join(name.split(".")[:3]) not in ALLOWED} == set()
    assert {name.split(".")[0] for name in names} & COMPUTING == set()


@pytest.mark.parametrize("path", REPORT, ids=name_of)
def test_no_meaning_is_read_out_of_a_name(path):
    """Strings are cut where text is written (signs, units, addresses), never to learn what a row or a series is."""
    cutting = {"startswith", "removeprefix", "rpartition", "partition", "rsplit"}
    used = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    writes = {"style.py": {"removeprefix"}, "export.py": {"partition"}, "serve.py": {"partition", "startswith"}}
    assert used & cutting <= writes.get(path.name, set())
