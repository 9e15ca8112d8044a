import subprocess
import sys

import pytest
from typer.main import get_command

from tests.command import succeeds, trajsoup
from trajsoup import __version__
from trajsoup.cli.app import app

COMMANDS = [command.callback.__name__ for command in app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    assert f"Usage: trajsoup {command}" in succeeds(command, "--help").out.replace("root", "trajsoup")
    assert command in succeeds("--help").out


def test_every_command_that_prints_a_result_has_json():
    for command in COMMANDS:
        assert "--json" in succeeds(command, "--help").out


@pytest.mark.parametrize("command", ["run", "demo", "train", "sweep", "geometry", "merge", "doctor"])
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


def test_help_loads_neither_yaml_nor_msgspec_nor_the_study_file():
    import subprocess
    import sys

    code = "import sys, trajsoup.cli.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"yaml", "msgspec", "trajsoup.study.file.study", "trajsoup.store.fields"}
