import shutil

import pytest
import torch

from tests.checkpoints import write_checkpoint
from tests.command import refused, succeeds, trajsoup
from tests.runs import CONFIG, SIDE_FILES, weights


@pytest.fixture
def alien(tmp_path):
    chance = torch.Generator().manual_seed(7)
    tensors = {
        name: torch.randn(t.shape, generator=chance).to(t.dtype) if t.is_floating_point() else t
        for name, t in weights(0).items()
    }
    write_checkpoint(tmp_path / "alien" / "step_1", tensors, config=CONFIG, files=SIDE_FILES)
    return tmp_path / "alien"


def test_good_runs_end_with_0_and_a_verdict_each(runs):
    done = succeeds("doctor", runs / "EXP1", runs / "EXP2", "--fork-point", runs / "base")
    assert done.out.count("averages well") == 2
    assert "EXP2: same basin as the fork point" in done.out


def test_runs_without_a_common_fork_point_end_with_1_and_say_so(runs, alien):
    for extra in ([], ["--fork-point", runs / "base"]):
        done = trajsoup("doctor", runs / "EXP1", alien, *extra)
        assert done.code == 1
        assert "alien: shares no fork point with" in done.out
        assert "leave it out" in done.out
        assert "error" not in done.err


def test_the_result_as_json(runs, alien):
    done = trajsoup("doctor", runs / "EXP1", alien, "--json")
    assert done.code == 1
    assert done.json["healthy"] is False
    assert [b["outlook"] for b in done.json["branches"]] == ["reference", "leave it out"]
    assert succeeds("doctor", runs / "EXP1", runs / "EXP2", "--json").json["healthy"] is True


def test_a_study_file_will_do(runs, tmp_path):
    succeeds("scan", runs / "EXP1", runs / "EXP3", "-o", tmp_path / "study.yaml", "--fork-point", runs / "base")
    done = succeeds("doctor", tmp_path / "study.yaml")
    assert "EXP3: training loss +5.0% against the baseline: the screen would reject it" in done.out


def test_a_fork_point_that_is_not_there_is_one_message(runs, tmp_path):
    assert "the fork point cannot be used" in refused("doctor", runs / "EXP1", "--fork-point", tmp_path / "gone")


def test_nan_is_named(runs, tmp_path):
    shutil.copytree(runs / "EXP1", tmp_path / "EXP1")
    bad = {**weights(3), "norm.weight": torch.full((8,), float("nan"), dtype=torch.bfloat16)}
    write_checkpoint(tmp_path / "EXP1" / "checkpoint-40", bad)
    done = trajsoup("doctor", tmp_path / "EXP1", "--fork-point", runs / "base")
    assert "checkpoint-40: tensor 'norm.weight' in model.safetensors holds NaN or Inf" in done.out
