import json
import os

import torch

from tests.checkpoints import write_checkpoint
from tests.command import refused, succeeds, trajsoup
from tests.runs import fingerprint
from trajsoup.merge.branches import load_branches, scan_branches


def test_scan_writes_a_study_and_says_what_to_do_next(runs, tmp_path):
    study = tmp_path / "deep" / "study.yaml"
    done = succeeds("scan", runs / "EXP1", runs / "EXP2", "-o", study, "--fork-point", runs / "base")
    assert "2 branches" in done.out
    assert f"study written to {study}; next: trajsoup doctor {study}" in done.out
    assert done.err == ""
    expected = scan_branches([runs / "EXP1", runs / "EXP2"], fork_point=runs / "base")
    assert load_branches(study) == expected


def test_scan_prints_what_it_found_as_json(runs, tmp_path):
    told = succeeds("scan", runs / "EXP1", "-o", tmp_path / "s.yaml", "--json").json
    assert told["study"] == str(tmp_path / "s.yaml")
    assert told["notes"] == []
    assert told["branches"]["EXP1"][1] == {
        "path": str(runs / "EXP1" / "checkpoint-20"),
        "step": 20,
        "tokens": 20_000,
        "train_loss": 2.4,
        "losses_logged": 1,
        "train_error": None,
        "val_loss": 2.2,
        "accuracy": 0.2,
    }


def test_a_loss_that_diverged_is_null_in_json(tmp_path):
    write_checkpoint(tmp_path / "run" / "step_1", {"w": torch.ones(2)})
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "val_loss": NaN, "train_loss": "inf"}\n')
    told = succeeds("scan", tmp_path / "run", "-o", tmp_path / "s.yaml", "--json").json
    assert told["branches"]["run"][0]["val_loss"] is None
    assert told["branches"]["run"][0]["train_loss"] is None


def test_what_is_missing_is_said_on_stderr(tmp_path):
    write_checkpoint(tmp_path / "run" / "step_1", {"w": torch.ones(2)})
    done = succeeds("scan", tmp_path / "run", "-o", tmp_path / "s.yaml")
    assert "note: tokens seen are not recorded" in done.err
    assert "note: 1 of 1 checkpoints have no training loss" in done.err
    assert "(steps)" in done.out
    done = succeeds("scan", tmp_path / "run", "-o", tmp_path / "t.yaml", "--tokens-per-step", 4096)
    assert "tokens seen" not in done.err
    assert "4,096" in done.out


def test_an_existing_study_is_kept_unless_the_user_says_otherwise(runs, tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text("mine")
    assert "study.yaml exists: pass --overwrite" in refused("scan", runs / "EXP1", "-o", study)
    assert study.read_text() == "mine"
    succeeds("scan", runs / "EXP1", "-o", study, "--overwrite")
    assert study.read_text() != "mine"


def test_a_scan_that_fails_writes_nothing(runs, tmp_path):
    assert "there is no run at" in refused("scan", runs / "EXP1", tmp_path / "gone", "-o", tmp_path / "study.yaml")
    assert "is given twice" in refused("scan", runs / "EXP1", runs / "EXP1", "-o", tmp_path / "study.yaml")
    assert os.listdir(tmp_path) == []
    assert trajsoup("scan").code == 2
    assert trajsoup("scan", runs / "EXP1", "--tokens-per-step", 0).code == 2


def test_the_study_file_can_be_edited_and_read_again(runs, tmp_path):
    study = tmp_path / "study.yaml"
    succeeds("scan", runs / "EXP1", runs / "EXP3", "-o", study)
    study.write_text(
        study.read_text().replace("tolerance: 0.01", "tolerance: 0.1").replace("val_loss: 2.0", "val_loss: 9")
    )
    told = succeeds("merge", study, "--k", 1, "--dry-run", "--json").json
    assert [v["admitted"] for v in told["screen"]] == [True, True]
    assert json.dumps(told["row"]).count("EXP3") == 1


def test_scanning_changes_no_run(runs, tmp_path):
    before = fingerprint(runs)
    succeeds("scan", runs / "EXP1", "-o", tmp_path / "study.yaml")
    assert fingerprint(runs) == before
