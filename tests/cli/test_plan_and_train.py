import json
import sys

import pytest
from typer.testing import CliRunner

from tests.study.studies import FIVE, SMALL, write_study
from tests.study.train.test_branches import own_trainer, wait_until_gone
from tests.study.train.test_plan import CONFIG
from trajsoup.cli.app import app


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAJSOUP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # no probe: nothing here loads torch
    (tmp_path / "fork").mkdir()
    (tmp_path / "fork" / "config.json").write_text(json.dumps(CONFIG))
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_plan_shows_the_papers_table_and_its_cost(run, tmp_path):
    result = run("plan", write_study(tmp_path, FIVE), "--no-corpus")
    assert result.exit_code == 0, result.output
    for text in (
        "*1001",
        "*0.00024",
        "*128",
        "*linear decay to 3.39e-05",
        "*0.9",
        "5 branches",
        "24 per run of t, 120 in all",
    ):
        assert text in result.output


def test_plan_prints_json_for_programs(run, tmp_path):
    result = run("plan", write_study(tmp_path, SMALL), "--no-corpus", "--json")
    data = json.loads(result.stdout)
    assert data["total_tokens"] == 4096
    assert data["branches"]["EXP2"]["changed"] == {"seed": ["1234", "1001"]}


def test_plan_refuses_what_does_not_fit_the_disk(run, tmp_path):
    (tmp_path / "fork" / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": 10**12}))
    result = run("plan", write_study(tmp_path, SMALL), "--no-corpus")
    assert result.exit_code == 1
    assert " free: save less often" in result.output


def test_scripts_for_a_batch_system_are_named_to_programs_too(run, tmp_path):
    result = run("run", write_study(tmp_path, SMALL), "--emit", "slurm", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["scripts"].endswith("slurm")


def test_train_runs_the_command_of_every_branch_and_says_where_it_is(run, tmp_path):
    result = run("train", write_study(tmp_path, own_trainer(tmp_path)), "--jobs", "2")
    assert result.exit_code == 0, (result.output, result.exception)
    assert result.output.count("finished") == 2


def test_train_reports_every_failed_branch_at_the_end(run, tmp_path):
    result = run("train", write_study(tmp_path, own_trainer(tmp_path, "dies")))
    assert result.exit_code == 1
    assert "2 of 2 branches did not finish" in result.output
    assert "EXP2 failed: the process ended with code 1" in result.output


def test_train_prints_json_for_programs(run, tmp_path):
    result = run("train", write_study(tmp_path, own_trainer(tmp_path)), "--json")
    branches = json.loads(result.stdout)["branches"]
    assert {name: (b["status"], b["tokens"]) for name, b in branches.items()} == {
        "EXP1": ("finished", 2048), "EXP2": ("finished", 2048),
    }  # fmt: skip


def test_a_request_to_end_stops_the_branches_and_says_how_to_go_on(run, tmp_path):
    import os
    import signal
    import subprocess
    import textwrap
    import time

    sleep = f"bash -c 'sleep 300 & echo $! > {tmp_path}/pid-{{branch}}; wait'"
    text = textwrap.dedent(SMALL.replace("    corpus: builtin\n", ""))
    study = write_study(tmp_path, f'{text}trainer: {{command: "{sleep}"}}\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "trajsoup", "train", str(study), "--jobs", "2"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    pids = [tmp_path / f"pid-{branch}" for branch in ("EXP1", "EXP2")]
    while process.poll() is None and not all(p.exists() and p.read_text().strip() for p in pids):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "run the same command again" in said
    for pid in pids:
        wait_until_gone(pid.read_text())


BAD = {
    "horizon": ("horizon: 2048", "horizon: 2049", "not a multiple of checkpoint_every"),
    "batch": ("seed: 1001", "global_batch: 7", "do not divide checkpoint_every"),
    "output": ("branches:", "output: fork/config.json\n    branches:", "cannot write to"),
    "tag": ("corpus: builtin", "corpus: !!python/name:os.system", "study.yaml is not valid"),
    "anchor": ("corpus: builtin", "corpus: &a builtin", "anchors and aliases are not allowed"),
    "key": ("horizon:", "horizn:", "did you mean 'horizon'?"),
    "equal": ("{seed: 1001}", "{}", "have the same recipe"),
    "corpus": ("corpus: builtin", "corpus: nowhere", "nowhere"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("command", ["plan", "train"])
def test_bad_input_ends_with_one_message_and_no_traceback(run, tmp_path, what, command):
    old, new, message = BAD[what]
    text = SMALL.replace(old, new)
    assert text != SMALL
    more = ["--no-corpus"] if command == "plan" and what != "corpus" else []
    result = run(command, write_study(tmp_path, text), *more)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("error:") == 1
    assert "Traceback" not in result.output


def test_neither_command_loads_torch_before_it_must(tmp_path):
    import subprocess

    code = (
        "import sys, trajsoup.cli.plan, trajsoup.cli.train, trajsoup.study.train.plan; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
