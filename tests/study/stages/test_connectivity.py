"""Paths between models: every pair, copies that fork later, trained curves, the region of three; and the page of them."""

import itertools
import json
from dataclasses import replace

import pytest
import safetensors.numpy

import tests.golden.study as golden
from tests.golden.entry import run_found
from tests.lm.stand_in import SEQUENCE
from tests.study.choosing.fields import four_branches, options
from tests.study.tiny_study import load_study, make_fork_point, make_study, run_tiny
from trajsoup.core.interpolation import GRID
from trajsoup.errors import StudyError
from trajsoup.merge.branches import save_branches, scan_branches
from trajsoup.report.sections import connectivity
from trajsoup.study.file.sweeps import parse_sweeps
from trajsoup.study.records.connectivity import ConnectivityRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.sweeps.region import RANDOM, SIDE, triangle
from trajsoup.study.sweeps.table import sweep_entries

FOUND = """
corpus: {train: documents.txt}
evaluate: {baseline: run0, validation_tokens: 9k, test_tokens: 3k, probe_tokens: 1k, ks: [1, 2], horizons: 2,
           resamples: 100, tolerance: 0.5}
sweeps: [region]
connectivity: {curves: 1, curve_tokens: 40k, curve_lr: 3e-3}
"""
RUNS = ("run0", "run1", "run2")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("connectivity")
    fork_point, runs = golden._write_runs(folder)
    return Records(run_found(folder, fork_point, runs, settings=FOUND, corpus=golden._corpus(folder)).parent)


def test_every_pair_has_its_instability_with_an_interval_and_in_words(found):
    record = found.require(ConnectivityRecord)
    assert {(p.first, p.second) for p in record.pairs} == set(itertools.combinations(RUNS, 2))
    for pair in record.pairs:
        assert pair.grid == GRID
        assert pair.instability == pytest.approx(max(pair.losses) - (pair.losses[0] + pair.losses[-1]) / 2)
        assert pair.losses[pair.grid.index(pair.worst)] == max(pair.losses)
        assert pair.low <= pair.instability <= pair.high
        assert ("not stable" in pair.words) is not pair.stable
    assert f"{sum(p.stable for p in record.pairs)} of 3 pairs of anchors are linearly connected" in record.words[0]


def test_a_bend_learns_its_tokens_and_lowers_the_loss_of_the_curve(found):
    record = found.require(ConnectivityRecord)
    assert [c.path for c in record.curves] == ["bezier", "chain"]
    straight = record.pairs[0]
    for curve in record.curves:
        assert 40_000 <= curve.gradient_tokens < 50_000
        assert curve.losses[0] == pytest.approx(straight.losses[0])
        assert curve.losses[-1] == pytest.approx(straight.losses[-1])
        assert curve.losses[10] < straight.losses[5]  # in the middle, where the bend weighs most
    assert record.curves[0].words.startswith("Bezier curve from run0 to run1, bend trained on ")
    bends = list((found.study / "bends").iterdir())
    assert len(bends) == 2
    assert safetensors.numpy.load_file(bends[0] / "model.safetensors").keys()


def test_the_region_is_said_in_the_record_and_only_its_best_points_are_reported_on_test(found):
    sweep = found.require(SweepRecord, "region")
    assert len(sweep.points) == (SIDE + 1) * (SIDE + 2) // 2 + RANDOM
    assert sum(p.test_loss is not None for p in sweep.points) == 2
    assert [w.split(":")[0] for w in sweep.words] == [
        "run0+run1+run2, 45 points of their triangle",
        f"run0+run1+run2, {RANDOM} points of their simplex",
    ]
    for p in sweep.points:
        assert sum(p.shares.values()) == pytest.approx(1)
        assert sum(p.weights.values()) == pytest.approx(1)


def test_the_page_draws_all_of_it(found):
    shown = connectivity.section(found)
    assert [f.name for f in shown.figures] == ["region", "region-simplex", "connectivity", "bent-curves"]
    assert [len(f.spec()["data"]) for f in shown.figures] == [1, 2, 3, 3]
    (table,) = shown.numbers
    assert len(table.rows) == 5
    assert shown.figures[0].spec()["data"][0]["type"] == "scatterternary"


def test_a_point_of_the_region_is_the_mixture_of_its_anchors():
    entries = sweep_entries(four_branches(), parse_sweeps(["region"], where="")[0])
    corner = next(e for e in entries if e.at.shares == {"EXP1": 1.0})
    (alone,) = options(corner)
    assert {key.split("/")[0] for key in alone.weights} == {"EXP1"}
    half = next(e for e in entries if e.at.shares == {"EXP1": 0.5, "EXP2": 0.5})
    (mixed,) = options(half)
    assert {key: w / 2 for key, w in alone.weights.items()}.items() <= dict(mixed.weights).items()
    assert len(triangle("abc")) == 45


def test_two_branches_have_no_region():
    field = replace(four_branches(), admitted=("EXP1", "EXP2"))
    assert sweep_entries(field, parse_sweeps(["region"], where="")[0]) == ()


@pytest.mark.parametrize("depth", [1000, 24 * 8 * SEQUENCE, 999 * 8 * SEQUENCE])
def test_a_depth_where_nothing_is_saved_or_left_to_train_is_refused_when_the_file_is_read(tmp_path, depth):
    with pytest.raises(StudyError, match=rf"depths has {depth:,}: use multiples of checkpoint_every"):
        make_study(tmp_path / "study", tmp_path, more=f"\n    connectivity: {{depths: {depth}}}\n")


def test_runs_that_exist_are_not_trained_on(runs, tmp_path):
    save_branches(scan_branches([runs / "EXP1", runs / "EXP2"]), tmp_path / "found.yaml")
    with (tmp_path / "found.yaml").open("a") as file:
        file.write("corpus: {train: documents.txt}\nconnectivity: {depths: [1M]}\n")
    with pytest.raises(StudyError, match=r"connectivity.depths trains copies .* and these runs exist: leave it out"):
        load_study(tmp_path / "found.yaml")


def test_copies_fork_from_the_fork_point_and_from_a_later_checkpoint(tmp_path):
    more = "\n    sweeps: []\n    connectivity: {depths: [0, 1024], depth_tokens: 512}\n"
    study = run_tiny(tmp_path / "study", make_fork_point(tmp_path / "fork"), more=more)
    record = study.records.require(ConnectivityRecord)
    assert [p.depth for p in record.depths] == [0, 1024]
    for path in record.depths:
        assert (path.tokens, path.k) == (512, 1)
        assert len(set(path.losses)) > 1  # the two copies saw other data
    first = tmp_path / "study" / "depths" / "1024-512" / "branches" / "copy-1" / "branch.json"
    assert "checkpoint" in json.loads(first.read_text())["fork_point"]
    assert "stay connected " in record.words[1]
    shown = connectivity.section(study.records)
    assert [f.name for f in shown.figures] == ["connectivity", "fork-depths"]
