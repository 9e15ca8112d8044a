import shutil
from pathlib import Path

import pytest

from tests.report.bowl import Bowl
from tests.report.conftest import SMALL
from trajsoup.core.scores import ValidationScores
from trajsoup.report.sections import make_sections
from trajsoup.report.soups import checkpoints_data, soups_data
from trajsoup.report.study import open_study
from trajsoup.study.records.sweeps import SweepRecord

EXAMPLE = Path(__file__).parents[1] / "data" / "example-study"


def test_a_point_of_a_sweep_has_the_row_of_w_that_gives_its_loss(records):
    bowl = Bowl(SMALL)
    soups = soups_data(records)
    for sweep in records.every(SweepRecord).values():
        assert sweep.points
        for point in sweep.points:
            soup = soups[point.row]
            expected = bowl.scores(ValidationScores, dict(soup["row"]), seed=1).losses.loss()
            assert soup["scores"]["validation loss"] == pytest.approx(expected, abs=1e-12), point.row


def test_every_name_that_a_click_can_open_is_known(records):
    known = {*soups_data(records), *checkpoints_data(records)}
    for shown in make_sections(records):
        for table in shown.content.every_table:
            assert {row.soup for row in table.rows} - {None} <= known


def test_the_example_of_a_real_run_gives_every_section(tmp_path):
    records = open_study(shutil.copytree(EXAMPLE, tmp_path / "example"))
    made = make_sections(records)
    assert [shown.entry.name for shown in made if shown.section is None] == [
        "neighbours",
        "trained-neighbours",
        "connectivity",
        "allocation",
    ]  # `sweeps: methods`, `neighbours`, `connectivity` and `allocation` are asked for
    tables = {table.name for shown in made for table in shown.content.every_table}
    assert {"accuracy", "loss", "post-training", "main", "compute-fields", "geometry-fields"} <= tables
    names = {f.name for shown in made for f in shown.content.figures}
    assert {
        "frontier-loss",
        "surface",
        "merge-size",
        "predicted",
        "cosines",
        "plane",
        "screen",
        "training",
        "saturation",
        "displacement",
    } <= names
    assert {"ablation-coefficients", "ablation-selections", "ablation-allocation", "ablation-sampling"} <= names
    for name in ("coefficients", "selections", "allocation", "sampling"):
        assert records.require(SweepRecord, name).default is not None
