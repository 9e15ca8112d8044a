import dataclasses
from pathlib import Path

import pytest

from trajsoup.report.page import page_parts
from trajsoup.report.sections import geometry, geometry_gains, geometry_paths
from trajsoup.report.study import open_study
from trajsoup.study.records.geometry import GeometryRecord
from trajsoup.study.records.validation import ValidationRecord

EXAMPLE = Path(__file__).parents[2] / "data" / "example-study"


@pytest.fixture
def example():
    return open_study(EXAMPLE)


def test_the_gains_on_the_page_are_those_of_the_record(example):
    """They were averaged over every K of the grid at one horizon; the record averages over horizons at one K."""
    record = example.require(GeometryRecord)
    drawn = page_parts(example).data["figures"]["direction-gain"]["data"]
    assert list(zip(drawn[-1]["x"], drawn[-1]["y"], strict=True)) == [(p.cosine, p.gain) for p in record.pairs]
    assert list(zip(drawn[1]["x"], drawn[1]["y"], strict=True)) == [(p.x, p.y) for p in record.relation_line]
    lows = list(reversed(drawn[0]["y"]))[: len(record.relation_line)]
    assert lows == [p.low for p in record.relation_line]
    (table,) = [t for t in geometry.tables(record) if t.name == "pairs"]
    assert [row.cells[3].value for row in table.rows] == [p.gain for p in record.pairs]


def test_how_it_was_measured_stands_below_the_figures(example):
    (fields,) = geometry.section(example).more
    shown = dict(fields.texts)
    assert shown["averaged before PCA"] == "tail-k, 4 checkpoints"
    assert shown["matched tokens"] == "32,768 to 98,304"
    assert shown["interpolation grid"] == "0 to 1, 11 points"
    assert shown["pair gains averaged over"] == "24.58k, 49.15k, 73.73k, 98.3k tokens"


def test_every_displacement_is_drawn_under_its_branch(example):
    record = example.require(GeometryRecord)
    (figure,) = [f for f in geometry.section(example).figures if f.name == "displacement"]
    drawn = {c[0]: y for trace in figure.draw().data for c, y in zip(trace.customdata, trace.y, strict=True)}
    assert drawn == record.displacements


def test_direction_and_gain_are_not_related_without_evidence(example):
    record = example.require(GeometryRecord)

    def words(**changes):
        return geometry_gains.gain_words(
            dataclasses.replace(record, relation=dataclasses.replace(record.relation, **changes))
        )

    assert "Weaker alignment goes with larger gains" in words(pearson=-0.9, pearson_p=0.01)
    assert "not distinguishable from no relation" in words(pearson_p=0.4)
    assert "2 pairs are too few" in words(pearson=None, missing="2 pairs are too few")


def test_barriers_are_those_of_the_recorded_paths(example):
    record = example.require(GeometryRecord)
    high = tuple(dataclasses.replace(path, barrier=0.25) for path in record.paths)
    assert "At 4 matched horizons, 4 without a barrier" in geometry_paths._path_words(record, [])
    words = geometry_paths._path_words(dataclasses.replace(record, paths=high), [])
    assert "0 without a barrier" in words
    assert "The highest barrier: 0.2500 nats." in words


def test_a_study_without_geometry_has_no_section(tmp_path):
    (tmp_path / "records").mkdir()
    assert geometry.section(open_study(tmp_path)) is None


def test_the_gain_in_points_of_the_overall_average_is_drawn_beside_the_one_in_loss(records):
    record = records.require(GeometryRecord)
    figures = {f.name: f for f in geometry.section(records).figures}
    drawn = figures["direction-gain-accuracy"].draw().data[-1]
    assert list(drawn.y) == pytest.approx([100 * p.accuracy_gain for p in record.pairs])
    assert "points" in figures["direction-gain-accuracy"].says
    for pair in record.pairs:
        assert pair.accuracy_gain == pytest.approx(sum(pair.accuracy_gains.values()) / len(pair.accuracy_gains))
        assert pair.accuracy_gains.keys() == pair.gains.keys()
    assert record.accuracy_relation.pairs == len(record.pairs)


def test_raw_merged_and_best_interpolation_are_drawn_over_tokens(records):
    record, validation = records.require(GeometryRecord), records.require(ValidationRecord)
    (figure,) = [f for f in geometry.section(records).figures if f.name == "interpolation-tokens"]
    traces = {trace.name: trace for trace in figure.draw().data}
    assert set(traces) == {"EXP1 raw", "EXP1 merged", "EXP2 raw", "EXP2 merged", "best interpolation"}
    raw = [c.loss for c in validation.checkpoints if c.branch == "EXP1"]
    assert list(traces["EXP1 raw"].y) == raw
    assert list(traces["EXP2 merged"].y) == [path.losses[-1] for path in record.paths]
    assert list(traces["best interpolation"].y) == [min(path.losses) for path in record.paths]
    (table,) = [t for t in geometry.tables(record) if t.name == "paths"]
    shown = [(row.cells[4].value, row.cells[6].value) for row in table.rows]
    assert shown == [(path.losses[0], path.best_lambda) for path in record.paths]
