"""Soups on the Hub, over HTTP: a loopback server that huggingface_hub takes for the real one."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from tests.command import refused, succeeds
from tests.hub_server import hub_server


@pytest.fixture(scope="module")
def hub():
    with hub_server() as hub:
        yield hub


@pytest.fixture(scope="module")
def soup(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("push") / "soup"
    succeeds("merge", runs / "EXP1", runs / "EXP2", "--k", 2, "-o", out)
    return out


def trajsoup(hub, *words, **environment):
    """The command in a process of its own: huggingface_hub reads its settings when it is imported. What the tests need and
    the extra `cloud` does not bring is hidden from it."""
    code = "import sys; sys.modules['httpx'] = None; from trajsoup.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **hub.environment, **environment},
        capture_output=True,
        text=True,
        timeout=250,
    )


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_soup_is_pushed_whole_in_one_commit_and_never_over_another(hub, soup):
    done = trajsoup(hub, "push", soup, "me/soup", "--private")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"{hub.url}/me/soup"
    there, here = dict(hub.repositories["me/soup"]), content(soup)
    assert there.pop(".gitattributes") == b"*.safetensors filter=lfs\n"
    assert there.pop("soup.json") != here.pop("soup.json")
    assert there == here
    assert hub.private["me/soup"]
    assert hub.commits == ["me/soup"]
    assert any(line.startswith("PUT /lfs/") for line in hub.asked)  # the weights did not travel inside the commit

    again = trajsoup(hub, "push", soup, "me/soup")
    assert again.returncode == 1
    assert "existing output is never replaced" in again.stderr
    assert "--update" in again.stderr
    assert hub.commits == ["me/soup"]


def test_what_is_published_names_no_folder_of_this_machine_and_can_still_be_verified(hub, runs, soup, tmp_path):
    done = trajsoup(hub, "push", soup, "me/told")
    assert done.returncode == 0, done.stderr
    told = json.loads(hub.repositories["me/told"]["soup.json"])
    paths = [i["path"] for i in json.loads((soup / "soup.json").read_text())["ingredients"]]
    assert [i["path"] for i in told["ingredients"]] == [path.replace(str(runs), ".") for path in paths]
    assert not any(str(runs).encode() in data for data in hub.repositories["me/told"].values())
    assert done.stdout.splitlines()[-1].strip() == f"trajsoup verify hf://me/told --relocate .={runs}"
    for place in ("hf://me/told", download(hub, "me/told", tmp_path / "told")):
        checked = trajsoup(hub, "verify", place, "--full", "--relocate", f".={runs}")
        assert checked.returncode == 0, checked.stderr
    lost = trajsoup(hub, "verify", tmp_path / "told")
    assert "there is no checkpoint at" in lost.stderr
    assert "--relocate .=NEW" in lost.stderr


def download(hub, name, folder):
    for file, data in hub.repositories[name].items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)
    return folder


def test_a_push_that_fails_shows_nothing(hub, soup):
    hub.refuses_commits = True
    try:
        done = trajsoup(hub, "push", soup, "me/failed")
    finally:
        hub.refuses_commits = False
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "507" in done.stderr
    assert set(hub.repositories["me/failed"]) == {".gitattributes"}


def test_who_is_not_logged_in_is_told_how_before_anything_is_sent(hub, soup, tmp_path):
    before = len(hub.commits)
    done = trajsoup(hub, "push", soup, "me/other", HF_TOKEN="hf_wrong", HF_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "hf auth login" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert len(hub.commits) == before


def test_runs_on_the_hub_are_merged_onto_the_hub_with_the_same_bytes(hub, runs, soup):
    for run in ("EXP1", "EXP2"):
        hub.repositories[f"lab/{run}"] = content(runs / run)
    before = {name: dict(files) for name, files in hub.repositories.items()}
    done = trajsoup(hub, "merge", "hf://lab/EXP1", "hf://lab/EXP2", "--k", 2, "-o", "hf://me/merged")
    assert done.returncode == 0, done.stderr
    made = hub.repositories["me/merged"]
    assert made["model.safetensors"] == (soup / "model.safetensors").read_bytes()
    head = yaml.safe_load(made["README.md"].decode().split("---")[1])
    assert head == {
        "library_name": "transformers", "base_model": "lab/EXP1", "tags": ["trajectory-soup", "merge"],
    }  # fmt: skip
    assert all(hub.repositories[name] == files for name, files in before.items())  # inputs are only read


def test_what_is_no_soup_or_no_repository_is_refused(soup, tmp_path):
    assert "soup.json" in refused("push", tmp_path, "me/soup")
    assert "write it as user/name" in refused("push", soup, "s3://bucket/soup")
