"""The commands that run and read studies, on a study of seconds."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from tests.command import refused, succeeds
from trajsoup.store.lock import holding, this_process
from trajsoup.study.file.presets import Preset, preset_study, write_preset
from trajsoup.study.file.study import load_study
from trajsoup.study.run import is_finished

EXAMPLE = Path(__file__).parents[1] / "data" / "example-study"


@pytest.fixture
def study(tmp_path):
    """A finished study as its records alone: no checkpoint, no corpus."""
    shutil.copytree(EXAMPLE, tmp_path / "study")
    return tmp_path / "study" / "study.yaml"


def test_a_finished_study_prints_three_tables_and_six_lines_without_computing(study):
    done = succeeds("run", study)
    titles = ("Limited minus serial over the budget", "Main table", "Can the question be asked here?")
    assert all(title in done.out for title in titles)
    assert "95 % bootstrap interval" in done.out
    answer = done.out[done.out.index("Soup of the tokens of one run") : done.out.index("\nsoup:")].splitlines()
    assert len([line for line in answer if line]) == 6
    assert answer[0].startswith("Soup of the tokens of one run, against that run merged: +0.2505 nats [")
    assert answer[5].startswith("Conditions met: 2 of 5; not skills (")


def test_tables_come_as_markdown_and_csv(study):
    assert "| Trajectory Soup (Limited) |" in succeeds("run", study, "--format", "markdown").out
    printed = succeeds("run", study, "--format", "csv").out
    assert "Trajectory Soup (Limited),EXP" in printed
    assert "passed the screen" in printed  # every table, and the whole answer in words


def test_run_as_json_says_that_nothing_was_made_and_where_everything_is(study):
    done = succeeds("run", study, "--json").json
    assert done["made"] == []
    assert done["words"]
    assert Path(done["report"]).is_file()


def test_a_run_ends_with_where_the_soup_and_the_page_are_and_what_to_do_next(study):
    lines = succeeds("run", study.parent).out.splitlines()  # the study named by its folder
    assert [line.split(":")[0] for line in lines[-5:-2]] == ["soup", "report", "records"]
    assert lines[-5].endswith("(the records of the study are here, its models are not)")
    assert lines[-1].startswith("next: trajsoup sweep ")
    (study.parent / "soup").mkdir()
    lines = succeeds("run", study.parent).out.splitlines()
    assert lines[-1].startswith(f"next: trajsoup verify {study.parent / 'soup'}; trajsoup sweep ")
    assert (study.parent / "report" / "report.html").is_file()


@pytest.mark.parametrize("command", ["run", "plan", "status", "sweep", "geometry", "report"])
def test_a_study_is_named_by_its_file_or_by_its_folder(study, command):
    more = {"sweep": ["allocation"], "report": ["--no-images"], "plan": ["--no-corpus"]}.get(command, [])
    by_file, by_folder = (succeeds(command, name, *more, "--json").json for name in (study, study.parent))
    for payload in (by_file, by_folder):
        if command == "plan":
            del payload["free_bytes"]  # of the disk, which others fill meanwhile
    assert by_file == by_folder


def test_a_folder_without_a_study_file_says_what_writes_one(tmp_path):
    said = refused("geometry", tmp_path)
    assert said.endswith("holds no study file: name one, or let `trajsoup scan` write one of runs that exist")


def test_status_of_a_finished_and_of_a_new_study(study, tmp_path):
    assert {line["state"] for line in succeeds("status", study, "--json").json} == {"done"}
    shutil.rmtree(study.parent / "records")
    lines = succeeds("status", study, "--json").json
    assert {line["state"] for line in lines} == {"waiting"}
    assert "EXP1 begun" in next(line["detail"] for line in lines if line["stage"] == "train")


def test_status_says_which_branch_was_forced_in(study):
    record = study.parent / "records" / "screen.json"
    told = json.loads(record.read_text())
    told["verdicts"][-1] |= {"admitted": True, "forced": True}
    record.write_text(json.dumps(told))
    lines = [line for line in succeeds("status", study.parent).out.splitlines() if "forced in" in line]
    assert [told["verdicts"][-1]["branch"] in line for line in lines] == [True]


def test_a_sweep_that_is_known_is_printed(study):
    assert "fig:traj-soup-asym-allocation" in succeeds("sweep", study, "allocation").out


def test_an_unknown_sweep_names_those_that_exist(study):
    assert "did you mean allocation?" in refused("sweep", study, "alocation")


def test_a_sweep_before_the_run_says_what_to_do(study):
    shutil.rmtree(study.parent / "records")
    assert "trajsoup run" in refused("sweep", study)


def test_geometry_shows_angles_and_says_of_which_k_a_pair_gain_is(study):
    done = succeeds("geometry", study)
    assert "Angles between branches" in done.out
    assert "Pair gain on validation: nats that merging two anchors of K = 2 took off" in done.out
    assert "The worth of a second branch, among the conditions, is another figure" in done.out
    assert "Pair gain against cosine over 3 pairs" in done.out
    assert "worth of a second branch above 0, at the best K of one" in succeeds("run", study).out
    assert succeeds("geometry", study, "--json").json["branches"] == ["EXP1", "EXP2", "EXP3"]


def test_runs_that_exist_need_documents_to_be_scored_on(runs, tmp_path):
    found = tmp_path / "found.yaml"
    succeeds("scan", *sorted(path for path in runs.iterdir() if path.is_dir())[:1], "-o", found)
    assert "corpus" in refused("run", found)


@pytest.mark.parametrize("preset", list(Preset))
def test_every_preset_is_a_study_file_that_loads(preset, tmp_path):
    setup = load_study(write_preset(preset, tmp_path / "demo"))
    assert len(setup.recipes) >= 2
    assert write_preset(preset, tmp_path / "demo").is_file()  # the same again: gone on with


def test_a_folder_with_another_study_is_refused(tmp_path):
    write_preset(Preset.QUICK, tmp_path / "demo")
    assert "another study" in refused("demo", "-o", tmp_path / "demo", "--preset", "wsd")


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    assert "not empty" in refused("demo", "-o", tmp_path / "mine")


def test_the_papers_preset_has_its_five_branches_and_every_comparison():
    study = yaml.safe_load(yaml.safe_dump(preset_study(Preset.PAPER)))
    assert list(study["branches"]) == ["EXP1", "EXP2", "EXP3", "EXP4", "EXP5"]
    assert study["sweeps"] == "paper"
    assert study["seeds"] >= 3


def test_looking_whether_a_study_is_finished_makes_nothing(study, tmp_path):
    setup = load_study(study)
    assert is_finished(setup, cache=tmp_path / "cache")
    for name in ("screen", "sweeps/scaling"):
        path = study.parent / "records" / f"{name}.json"
        text = path.read_text()
        path.unlink()
        assert not is_finished(setup, cache=tmp_path / "cache")
        assert not path.exists()
        path.write_text(text)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("command", ["run", "sweep", "geometry"])
def test_whatever_writes_records_is_refused_with_who_holds_the_study(study, command):
    with holding(study.parent / ".run.lock"):
        message = refused(command, study)
    assert f"is being run by process {os.getpid()} on " in message
    assert "wait for it, or stop it first" in message


def test_a_lock_left_by_a_killed_run_is_no_obstacle(study):
    killed = dataclasses.replace(this_process(), pid=4_000_000, started="1")
    (study.parent / ".run.lock").write_text(json.dumps(dataclasses.asdict(killed)))
    assert succeeds("run", study, "--json").json["made"] == []


@pytest.mark.parametrize("seconds", [0, 2**33], ids=["1970", "2242"])
def test_files_of_machines_with_wrong_clocks_are_not_made_again(study, seconds):
    """Records name their inputs by content; half of them come from a machine with another clock."""
    for number, path in enumerate(sorted(study.parent.rglob("*"))):
        os.utime(path, (seconds if number % 2 else 10**9,) * 2)
    assert succeeds("run", study, "--json").json["made"] == []
    assert "out of date" not in succeeds("status", study).out
