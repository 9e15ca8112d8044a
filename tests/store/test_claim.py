import json
import os
import subprocess
import sys

import pytest

from trajsoup.errors import OutputError
from trajsoup.store.claim import CLAIM, MANIFEST, abandoned, claim_text
from trajsoup.store.remote import place
from trajsoup.store.upload import uploading

fsspec = pytest.importorskip("fsspec", reason="needs the extra [cloud]")


@pytest.fixture
def out():
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield place("memory://out")
    store.store.clear()


def claimed(out, **changes):
    """Somebody's claim and the first of their files."""
    text = json.dumps({**json.loads(claim_text()), **changes})
    for name, data in ((CLAIM, text), ("config.json", "{}")):
        (out / name).filesystem.pipe_file((out / name).key, data.encode())


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def names(out):
    return sorted(path.name for path in out.iterdir())


def test_an_upload_holds_its_claim_and_leaves_none(out, tmp_path):
    (tmp_path / MANIFEST).write_text("{}")
    with uploading(out) as upload:
        assert names(out) == [CLAIM]
        upload.publish(tmp_path, last=(MANIFEST,))
    assert names(out) == [MANIFEST]


def test_what_a_killed_process_left_gives_way(out, tmp_path):
    claimed(out, pid=dead_pid())
    (tmp_path / MANIFEST).write_text("{}")
    with uploading(out) as upload:
        upload.publish(tmp_path, last=(MANIFEST,))
    assert names(out) == [MANIFEST]


def test_a_process_with_the_same_number_is_not_the_one_that_claimed(out):
    claimed(out, started="1")
    assert abandoned(out)


def test_a_claim_from_before_the_machine_started_anew_is_abandoned(out):
    claimed(out, boot="another")
    assert abandoned(out)


@pytest.mark.parametrize("changes", [{}, {"host": "elsewhere", "pid": 1}], ids=["this machine", "another machine"])
def test_a_claim_that_may_be_alive_is_respected_and_named(out, changes):
    claimed(out, **changes)
    with pytest.raises(OutputError, match=rf"process {changes.get('pid', os.getpid())} of"), uploading(out):
        pass
    assert names(out) == [CLAIM, "config.json"]


def test_a_whole_output_stays_even_with_a_claim_beside_it(out):
    claimed(out, pid=dead_pid())
    (out / MANIFEST).filesystem.pipe_file((out / MANIFEST).key, b"{}")
    with pytest.raises(OutputError, match="existing output is never replaced"), uploading(out):
        pass


def test_a_claim_knows_no_clock():
    assert set(json.loads(claim_text())) == {"host", "boot", "pid", "started"}
