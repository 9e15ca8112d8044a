import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "trajsoup"
_ROW = re.compile(r"^\| (?P<paper>[^|]+) \| (?P<functions>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
_LABEL = re.compile(r"\b(?:eq|sec|app|thm|cor|tab|fig|alg):[a-z0-9][a-z0-9_-]*")


def rows_of_the_map():
    text = (ROOT / "docs" / "paper-map.md").read_text()
    return [m for m in _ROW.finditer(text) if _LABEL.search(m["paper"])]


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    return generate


@pytest.mark.parametrize("page", ["cli.md", "methods.md", "study-file.md"])
def test_a_generated_page_is_what_the_code_says(page):
    assert (ROOT / "docs" / page).read_text() == generator().PAGES[page](), "run `make docs`"


@pytest.mark.parametrize("title", generator().EXAMPLES)
def test_every_example_of_a_study_file_is_one(title, tmp_path):
    from trajsoup.study.file.study import load_training_study

    (tmp_path / "study.yaml").write_text(generator().EXAMPLES[title])
    study = load_training_study(tmp_path / "study.yaml")
    assert study.horizon % study.checkpoint_every == 0


def test_the_example_of_runs_is_one(tmp_path):
    from trajsoup.study.file.study import load_study

    (tmp_path / "study.yaml").write_text(generator().RUNS)
    assert len(load_study(tmp_path / "study.yaml").runs.branches) == 1


def test_every_declared_field_of_a_study_file_is_on_its_page():
    """A new field is one declaration: it comes to the page by itself, and a new part of the file needs its section."""
    import dataclasses
    import typing

    from trajsoup.store.fields import declared
    from trajsoup.study.file.study import ForeignStudy, Study

    page = (ROOT / "docs" / "study-file.md").read_text()
    left, seen = [Study, ForeignStudy], set()
    while left:
        kind = left.pop()
        seen.add(kind)
        for field in declared(kind):
            assert f"| `{field.key}` | {field.help.replace('|', chr(92) + '|')}" in page, (kind, field.key)
            inside = [field.hint, *typing.get_args(field.hint)]
            left += [k for k in inside if isinstance(k, type) and dataclasses.is_dataclass(k) and k not in seen]
    assert len(seen) > 8


@pytest.mark.parametrize("row", rows_of_the_map(), ids=lambda row: row["paper"].strip())
def test_every_function_and_test_in_the_paper_map_exists(row):
    for place in re.findall(r"`([^`]+)`", row["functions"]):
        file, name = place.split(":")
        assert re.search(rf"^(?:def|class) {name}\b", (SOURCE / file).read_text(), re.MULTILINE), place
    for place in re.findall(r"`([^`]+)`", row["tests"]):
        assert (ROOT / place.split("::")[0]).is_file(), place


def test_every_label_cited_in_the_core_is_in_the_paper_map():
    mapped = set(_LABEL.findall((ROOT / "docs" / "paper-map.md").read_text()))
    cited = {label for file in (SOURCE / "core").rglob("*.py") for label in _LABEL.findall(file.read_text())}
    assert cited - mapped == set()


def test_the_python_page_shows_what_really_comes_out(tmp_path):
    """Every example of docs/python.md, run in a process of its own on small runs and on a finished study."""
    from tests.bowls import make_bowl, write_run

    bowl = make_bowl()
    for name, seed in (("a", 1), ("b", 2)):
        write_run(tmp_path / "runs" / name, bowl, seed=seed, learning_rate=0.06)
    shutil.copytree(ROOT / "tests" / "data" / "example-study", tmp_path / "study")
    (tmp_path / "study" / "soup").mkdir()
    page = ROOT / "docs" / "python.md"
    flags = "optionflags=doctest.ELLIPSIS"
    code = f"import doctest, sys; sys.exit(doctest.testfile({str(page)!r}, module_relative=False, {flags})[0] and 1)"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert result.returncode == 0, result.stdout
    assert (tmp_path / "soup" / "soup.json").is_file()


def test_every_name_of_the_package_is_typed_and_shown_or_documented():
    import trajsoup

    text = (SOURCE / "__init__.py").read_text()
    typed = set(re.findall(r"^    from trajsoup\.[\w.]+ import \w+ as (\w+)$", text, re.MULTILINE))
    assert typed == set(trajsoup.__all__) - {"__version__"}
    page = (ROOT / "docs" / "python.md").read_text()
    for name in typed:
        assert re.search(rf"\b{name}\b", page), f"docs/python.md does not show {name}"
        documented = getattr(trajsoup, name).__doc__ or ""
        assert documented, name
        assert ">>>" in documented or not inspect.isfunction(getattr(trajsoup, name)), f"{name} has no example"


def test_no_page_links_to_a_missing_file():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_sizes_on_paper_are_what_the_simulation_prints():
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
    scale = importlib.util.module_from_spec(spec)
    sys.modules["scale"] = scale  # dataclasses look their module up
    spec.loader.exec_module(scale)
    page = (ROOT / "docs" / "scale.md").read_text()
    assert page == scale.page_with_tables(page), "run `python benchmarks/scale.py --write`"
