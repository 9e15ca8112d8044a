import shutil

import pytest

from tests.command import refused, succeeds, trajsoup


@pytest.fixture
def soup(runs, tmp_path):
    succeeds("merge", runs / "EXP1", runs / "EXP2", "--k", 2, "-o", tmp_path / "soup")
    return tmp_path / "soup"


def test_a_good_soup_is_as_recorded(soup):
    done = succeeds("verify", soup)
    assert f"{soup} is as recorded: 1 weight files and 9 side files hashed" in done.out
    assert "a random slice of every tensor" in done.out
    assert "every value" in succeeds("verify", soup, "--full").out


def test_the_result_as_json(soup):
    told = succeeds("verify", soup, "--json").json
    assert told["ok"] is True
    assert told["tensors"] == 5
    assert told["full"] is False
    assert succeeds("verify", soup, "--full", "--json").json["full"] is True


def test_a_changed_file_ends_with_1_and_its_name(soup):
    (soup / "tokenizer.json").write_text("changed")
    assert "tokenizer.json has changed since the merge" in refused("verify", soup)
    assert "tokenizer.json has changed since the merge" in refused("verify", soup, "--json")


def test_a_folder_that_is_no_soup_ends_with_1(runs, tmp_path):
    assert "it was not made by `trajsoup merge`" in refused("verify", runs / "base")
    assert refused("verify", tmp_path / "nowhere") == f"there is no folder {tmp_path / 'nowhere'}: check the path"


def test_ingredients_that_moved(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "runs")
    succeeds("merge", tmp_path / "runs" / "EXP1", "--k", 2, "-o", tmp_path / "soup")
    (tmp_path / "runs").rename(tmp_path / "archive")
    assert "there is no checkpoint at" in refused("verify", tmp_path / "soup")
    succeeds("verify", tmp_path / "soup", "--full", "--relocate", f"{tmp_path / 'runs'}={tmp_path / 'archive'}")
    done = trajsoup("verify", tmp_path / "soup", "--relocate", "nonsense")
    assert done.code == 2
    assert "write OLD=NEW" in done.err
