import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from tests.command import refused, succeeds, trajsoup
from trajsoup import __version__
from trajsoup.cli.app import app
from trajsoup.cli.commands import COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    assert f"Usage: trajsoup {command}" in succeeds(command, "--help").out.replace("root", "trajsoup")
    assert command in succeeds("--help").out


def test_every_command_that_prints_a_result_has_json():
    for command in COMMANDS:
        assert "--json" in succeeds(command, "--help").out


@pytest.mark.parametrize("command", ["run", "demo", "train", "sweep", "geometry", "merge", "doctor", "verify"])
def test_every_command_with_a_heavy_pass_runs_on_a_cluster_too(command):
    help_text = succeeds(command, "--help").out
    assert "--engine" in help_text
    assert "--address" in help_text


def test_an_option_of_one_name_has_one_help_everywhere():
    """The same flag has the same name, form and meaning in every command; --output is what each command makes."""
    own = {"--output", "--seeds", "--branch", "--seed", "--help"}
    found = {}
    for command in get_command(app).commands.values():
        for option in (p for p in command.params if p.opts[0].startswith("--") and p.opts[0] not in own):
            assert found.setdefault(option.opts[0], option.help) == option.help, option.opts[0]


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


def test_the_list_of_commands_is_one_text_and_imports_neither_them_nor_a_library():
    code = "import sys; sys.argv[1:] = ['--help']; from trajsoup.cli import main; main(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    text, _, modules = done.stdout.rstrip().rpartition("\n")
    assert succeeds("--help").out.rstrip() == text.rstrip()
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert {m for m in modules.split() if "trajsoup" in m} == {"trajsoup", "trajsoup.cli", "trajsoup.cli.commands"}
    assert not set(modules.split()) & {"typer", "numpy", "yaml", "msgspec", "rich", "ssl"}


@pytest.mark.parametrize(
    ("words", "step", "said"),
    [
        (("scan", "{runs}/EXP1", "-o", "{tmp}/s.yaml"), "trajsoup.merge.branches.scan_run", "nothing was written"),
        (("doctor", "{runs}/EXP1", "{runs}/EXP2"), "trajsoup.merge.doctor.gram", "nothing was written"),
        (("merge", "{runs}/EXP1", "--k", "1", "-o", "{tmp}/soup"), "trajsoup.merge.make.blend", "nothing was written"),
        (("verify", "{tmp}/made"), "trajsoup.merge.recompute.blend", "nothing was written"),
        (("plan", "{study}", "--no-probe"), "trajsoup.study.file.study.load_study", "what was finished is kept"),
        (("run", "{study}"), "trajsoup.study.file.study.load_study", "what was finished is kept"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_ctrl_c_says_whether_work_is_kept(words, step, said, runs, tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    if words[0] == "verify":
        succeeds("merge", runs / "EXP1", "--k", 1, "-o", tmp_path / "made")
    example = Path(__file__).parents[1] / "data" / "example-study" / "study.yaml"
    monkeypatch.setattr(step, interrupted)
    done = trajsoup(*(word.format(runs=runs, tmp=tmp_path, study=example) for word in words))
    assert done.code == 130
    lines = [line for line in done.err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1
    assert lines[0].startswith(f"interrupted: {said}")
    assert {path.name for path in tmp_path.iterdir()} <= {"made"}


def test_a_demo_without_torch_says_what_to_install_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    message = refused("demo", "-o", tmp_path / "demo")
    assert "[train]'" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("typo", "meant"), [("traj-soup", "trajectory-soup"), ("emma", "ema")])
def test_a_method_that_is_misspelt_is_answered_with_the_nearest(runs, typo, meant):
    done = trajsoup("merge", runs / "EXP1", "--method", typo, "--dry-run")
    assert done.code == 2
    assert f"did you mean {meant}?" in done.err
