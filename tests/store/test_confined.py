import os
from pathlib import Path

import pytest

from trajsoup.errors import OutputError
from trajsoup.store.confined import append_own, inside, open_own
from trajsoup.store.lock import holding


@pytest.mark.parametrize("name", ["../out.csv", "x/../../out.csv", "/etc/out.csv", ".", "a\0b"])
def test_a_name_that_leads_out_is_refused(tmp_path, name):
    with pytest.raises(OutputError, match="leads out"):
        inside(tmp_path / "tables", name)


def test_a_folder_that_is_a_link_to_elsewhere_leads_out(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="leads out"):
        inside(tmp_path / "tables", "linked/x.csv")
    assert inside(tmp_path / "tables", "plain/x.csv") == tmp_path / "tables" / "plain" / "x.csv"


def test_a_folder_may_be_named_in_any_way(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    for folder in (Path("."), Path("a/../b"), Path("../") / tmp_path.name):
        assert inside(folder, "x/y.csv") == folder / "x" / "y.csv"


def test_a_link_is_not_written_through(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "log").symlink_to(precious)
    with pytest.raises(OutputError, match="is a link"):
        append_own(tmp_path / "log")
    with pytest.raises(OutputError, match="is a link"), holding(tmp_path / "log"):
        pass
    assert precious.read_text() == "kept"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(OutputError, match="no regular file"):
        open_own(tmp_path / "lock", os.O_RDWR)
    with pytest.raises(OutputError, match="a pipe"):
        append_own(tmp_path / "lock")


def test_a_file_of_ours_is_added_to(tmp_path):
    for line in (b"one\n", b"two\n"):
        with append_own(tmp_path / "log") as file:
            file.write(line)
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
