"""`trajsoup watch`: what could be had now, of runs that are still going on."""

import csv
import dataclasses
import json
import os
import shutil
import threading
import time
import tracemalloc
import urllib.error
import urllib.request
from inspect import signature

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.bowls import SIZE, make_bowl, write_point, write_run
from tests.merge.test_quadratic import documents_of
from trajsoup.cli.app import app
from trajsoup.cli.watch import watch
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.watch import fingerprint, glance, look


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder, bowl = tmp_path_factory.mktemp("runs"), make_bowl()
    for seed, rate in enumerate((0.4, 0.6)):
        write_run(folder / f"EXP{seed + 1}", bowl, seed=seed, learning_rate=rate, steps=200, every=20)
    return [folder / "EXP1", folder / "EXP2"], bowl


def test_logged_losses_tell_the_best_checkpoint_what_a_merge_would_take_and_saturation(runs):
    paths, _ = runs
    study = look(paths)
    found = glance(study)
    losses = [c.val_loss for pool in study.pools() for c in pool.candidates]
    assert found.best.loss == min(losses)
    assert {line.label for line in found.lines} >= {"best checkpoint", "Trajectory Soup"}
    assert next(line for line in found.lines if line.label == "Trajectory Soup").loss is None
    assert found.saturated is True  # they hover around the minimum from early on
    assert any("has saturated" in sentence for sentence in found.words)


def test_where_merges_are_scored_the_soup_is_best_and_one_more_branch_has_a_worth(runs):
    paths, bowl = runs
    found = glance(scan_branches(paths), scoring=documents_of(bowl))
    assert found.best.label == "Trajectory Soup"
    assert found.best.loss < next(line for line in found.lines if line.label == "best checkpoint").loss
    assert found.worth_of_branch > 0


def test_a_folder_that_changes_has_another_fingerprint(tmp_path):
    before = fingerprint([tmp_path / "run"])
    (tmp_path / "run").mkdir()
    empty = fingerprint([tmp_path / "run"])
    write_point(tmp_path / "run" / "checkpoint-10", np.zeros(SIZE))
    assert len({before, empty, fingerprint([tmp_path / "run"])}) == 3


def test_a_checkpoint_whose_last_file_is_still_being_written_has_another_fingerprint_when_it_is_whole(tmp_path):
    write_point(tmp_path / "run" / "checkpoint-10", np.zeros(SIZE))
    state = tmp_path / "run" / "checkpoint-10" / "trainer_state.json"
    state.write_text('{"global_step": 10, "log_history": [')
    folder, begun = os.stat(state.parent).st_mtime_ns, fingerprint([tmp_path / "run"])
    assert look([tmp_path / "run"]) is None
    state.write_text('{"global_step": 10, "log_history": [{"step": 10, "eval_loss": 2.0}]}')
    assert os.stat(state.parent).st_mtime_ns == folder
    assert fingerprint([tmp_path / "run"]) != begun
    assert look([tmp_path / "run"]).branches[0].checkpoints[0].val_loss == 2.0


def test_a_run_without_a_checkpoint_waits_and_the_others_are_shown(runs, tmp_path):
    paths, _ = runs
    (tmp_path / "EXP3").mkdir()
    assert [branch.name for branch in look([*paths, tmp_path / "EXP3"]).branches] == ["EXP1", "EXP2"]
    assert look([tmp_path / "EXP3"]) is None


def test_the_command_ends_with_zero_when_a_growing_run_has_saturated(runs, tmp_path):
    """A run of another process: checkpoints appear one after the other, whole."""
    (source, _), _ = runs
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(source / "metrics.csv", run)

    def train():
        for step in range(20, 201, 20):
            shutil.copytree(source / f"checkpoint-{step}", tmp_path / "new")
            os.rename(tmp_path / "new", run / f"checkpoint-{step}")
            time.sleep(0.02)

    trainer = threading.Thread(target=train)
    trainer.start()
    shown = CliRunner().invoke(app, ["watch", str(run), "--every", "0.05", "--until", "saturated"])
    trainer.join()
    assert shown.exit_code == 0, shown.output
    assert "has saturated" in shown.output
    assert "if I merged now" in shown.output


def test_without_documents_it_says_that_merges_are_not_scored(runs, tmp_path):
    paths, bowl = runs
    assert any("lines are not scored" in words and "--validation FILE" in words for words in glance(look(paths)).words)
    assert not any("not scored" in words for words in glance(look(paths), scoring=documents_of(bowl)).words)
    nothing = CliRunner().invoke(app, ["watch", str(tmp_path / "later"), "--once"])
    assert nothing.stderr == "note: no checkpoint yet\n"


def test_it_looks_once_and_prints_json(runs):
    paths, _ = runs
    shown = CliRunner().invoke(app, ["watch", *map(str, paths), "--once", "--json"])
    data = json.loads(shown.stdout)
    assert [run["name"] for run in data["runs"]] == ["EXP1", "EXP2"]
    assert data["saturated"] is True


def test_the_page_shows_the_last_look_to_this_machine_alone_and_loads_itself_again_soon(runs):
    pytest.importorskip("uvicorn")
    from trajsoup.report.serve import listening, serving
    from trajsoup.report.watching import MOST_LOOKS, REFRESH_SECONDS, WatchPage

    paths, bowl = runs
    page = WatchPage()
    with listening("127.0.0.1", 0) as bound, serving(lambda: page.html, bound=bound):
        address = f"http://127.0.0.1:{bound.getsockname()[1]}/"
        assert "waiting" in fetched(address)
        found = glance(scan_branches(paths), scoring=documents_of(bowl))
        for _ in range(MOST_LOOKS + 1):
            page.show(found)
        text = fetched(address)
        with pytest.raises(urllib.error.HTTPError, match="400"):
            fetched(address, host="elsewhere.example")
    assert f"Best now: Trajectory Soup ({found.best.made_of}), {found.best.loss:.4f}." in text
    assert f'http-equiv="refresh" content="{REFRESH_SECONDS}"' in text
    assert REFRESH_SECONDS + signature(watch).parameters["every"].default < 5  # seconds from a checkpoint to the page
    assert text.count("<tr>") == 3 + len(found.lines) + len(found.runs) + MOST_LOOKS


def test_the_command_tells_the_address_of_its_page_and_refuses_a_port_that_is_taken(runs):
    pytest.importorskip("uvicorn")
    from trajsoup.report.serve import listening

    paths, _ = runs
    with listening("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        taken = CliRunner().invoke(app, ["watch", *map(str, paths), "--once", "--serve", str(port)])
    assert taken.exit_code == 1
    assert f"cannot listen on port {port}" in taken.output
    shown = CliRunner().invoke(app, ["watch", *map(str, paths), "--until", "saturated", "--serve", str(port)])
    assert shown.exit_code == 0, shown.output
    assert f"http://127.0.0.1:{port}/" in shown.output


def test_a_name_on_the_page_is_text(runs):
    paths, _ = runs
    pytest.importorskip("jinja2")
    from trajsoup.report.watching import WatchPage

    found, page = glance(look(paths)), WatchPage()
    page.show(dataclasses.replace(found, words=("<script>alert(1)</script>",)))
    assert "<script>" not in page.html


def fetched(address, *, host=None):
    request = urllib.request.Request(address, headers={} if host is None else {"Host": host})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def test_two_thousand_checkpoints_leak_nothing(tmp_path):
    """As many as a day of training leaves: looks keep neither files open nor memory."""
    bowl = make_bowl()
    first = tmp_path / "run" / "checkpoint-1"
    write_point(first, bowl.start)
    with (tmp_path / "run" / "metrics.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["step", "tokens", "val_loss"], *([i, 1000 * i, 2 + 1 / i] for i in range(1, 2001))]
        )
    for i in range(2, 2001):
        folder = tmp_path / "run" / f"checkpoint-{i}"
        folder.mkdir()
        for name in ("model.safetensors", "config.json"):
            os.link(first / name, folder / name)
        if i == 1000:
            glance(look([tmp_path / "run"]))
            tracemalloc.start()
            opened, begin = len(os.listdir("/proc/self/fd")), tracemalloc.get_traced_memory()[0]
    found = glance(look([tmp_path / "run"]))
    assert found.runs[0].checkpoints == 2000
    del found
    kept = tracemalloc.get_traced_memory()[0] - begin
    tracemalloc.stop()
    assert len(os.listdir("/proc/self/fd")) <= opened
    assert kept < 2_000_000
