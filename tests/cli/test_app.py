import os
import subprocess
import sys

import pytest

from tests.command import refused, succeeds, trajsoup
from trajsoup import __version__

COMMANDS = ["scan", "doctor", "merge", "verify", "demo"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    assert f"Usage: trajsoup {command}" in succeeds(command, "--help").out.replace("root", "trajsoup")
    assert command in succeeds("--help").out


def test_every_command_that_prints_a_result_has_json():
    for command in COMMANDS:
        assert "--json" in succeeds(command, "--help").out


def test_the_version():
    assert succeeds("--version").out == f"trajsoup {__version__}\n"


def test_an_unknown_command_is_wrong_usage():
    assert trajsoup("blend").code == 2


def test_the_module_runs_as_the_command_does(tmp_path):
    command = [sys.executable, "-m", "trajsoup", "scan", str(tmp_path / "gone")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"error: there is no run at {tmp_path / 'gone'}: check the path\n"
    assert done.stdout == ""


def test_the_demo_makes_runs_merges_them_and_the_soup_verifies(tmp_path):
    done = succeeds("demo", "-o", tmp_path / "demo", "--json")
    losses = done.json["losses"]
    assert losses["Trajectory Soup, K=4"] < losses["best single checkpoint"]
    assert losses["Trajectory Soup, K=4"] < losses["Single-Trajectory Merge, K=4"]
    succeeds("verify", tmp_path / "demo" / "soup", "--full")
    assert succeeds("doctor", tmp_path / "demo" / "study.yaml", "--json").json["healthy"]
    assert succeeds("merge", tmp_path / "demo" / "study.yaml", "--k", 4, "--dry-run")
    assert "exists" in refused("demo", "-o", tmp_path / "demo")
    assert sorted(os.listdir(tmp_path)) == ["demo"]


def test_the_demo_tells_people_what_they_see(tmp_path):
    done = succeeds("demo", "-o", tmp_path / "demo")
    assert "not evidence about language models" in done.out
    assert f"trajsoup verify {tmp_path / 'demo' / 'soup'}" in done.out
