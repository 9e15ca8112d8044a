"""Names in records come from files that somebody else may have written."""

import json
import shutil
from pathlib import Path

import pytest

from trajsoup.errors import OutputError
from trajsoup.report import writing
from trajsoup.report.writing import write_report

EXAMPLE = Path(__file__).parents[1] / "data" / "example-study"


def test_a_sweep_whose_name_is_a_path_writes_nothing_outside_the_report(tmp_path):
    study = tmp_path / "a" / "study"
    shutil.copytree(EXAMPLE, study)
    record = study / "records" / "sweeps" / "coefficients.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"name": "x/../../../pwned"}))
    before = {path for path in tmp_path.rglob("*") if study / "report" not in path.parents}
    with pytest.raises(OutputError, match="leads out of"):
        write_report(study, images=False)
    after = {path for path in tmp_path.rglob("*") if study / "report" not in path.parents}
    assert after - before <= {study / "report"}


@pytest.mark.parametrize("name", ["report", "report/tables", "report/figures"])
def test_a_link_in_the_place_of_a_folder_of_the_report_is_not_written_through(tmp_path, name, monkeypatch):
    elsewhere, study = tmp_path / "elsewhere", tmp_path / "study"
    elsewhere.mkdir()
    shutil.copytree(EXAMPLE, study)
    (study / name).parent.mkdir(exist_ok=True)
    (study / name).symlink_to(elsewhere)
    monkeypatch.setattr(writing, "find_browser", lambda: "never started")
    with pytest.raises(OutputError, match="leads out"):
        write_report(study)
    assert not list(elsewhere.iterdir())
