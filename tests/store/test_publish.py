import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from trajsoup.errors import OutputError
from trajsoup.store.publish import MARK, publishing, remove_stale, require_free, write_atomic


def publish(out: Path, error: BaseException | None = None, *, nbytes: int = 1) -> None:
    """Write one file into `out`, unless an error comes before the end."""
    with publishing(out) as folder:
        (folder / "x").write_bytes(bytes(nbytes))
        if error is not None:
            raise error


def test_the_output_appears_whole_when_the_block_ends(tmp_path):
    out = tmp_path / "deep" / "soup"
    with publishing(out) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "x").write_text("1")
        assert not out.exists()
        assert folder.parent == out.parent  # a neighbour: the rename stays on one file system
    assert (out / "sub" / "x").read_text() == "1"
    assert os.listdir(out.parent) == ["soup"]
    assert out.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_nothing(tmp_path, error):
    with pytest.raises(error):
        publish(tmp_path / "soup", error())
    assert os.listdir(tmp_path) == []


def test_an_error_of_the_disk_becomes_one_readable_message(tmp_path):
    with pytest.raises(OutputError, match=r"cannot write .*soup: No space left on device: nothing was left behind"):
        publish(tmp_path / "soup", OSError(28, "No space left on device"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EACCES, "a folder you may write to"),
        (errno.EROFS, "a folder you may write to"),
        (errno.EFBIG, "smaller files"),
        (errno.EIO, "check the disk"),
    ],
)
def test_each_cause_keeps_its_words_and_gets_its_own_cure(tmp_path, number, cure):
    with pytest.raises(OutputError, match=rf"cannot write .*soup: {os.strerror(number)}: .*{cure}"):
        publish(tmp_path / "soup", OSError(number, os.strerror(number)))
    with pytest.raises(OutputError, match=rf"cannot write .*soup: {os.strerror(number)}: .*{cure}"):
        publish(tmp_path / "soup", OSError(number, os.strerror(number), str(tmp_path / f".soup{MARK}1" / "x")))


def test_an_input_that_cannot_be_read_is_named_and_not_the_output(tmp_path):
    for number in (errno.EIO, errno.EACCES, errno.ENOENT):
        with pytest.raises(OutputError, match=rf"cannot read .*base/tokenizer.json: {os.strerror(number)}"):
            publish(tmp_path / "soup", OSError(number, os.strerror(number), str(tmp_path / "base/tokenizer.json")))


def test_a_copy_that_fills_the_disk_blames_the_disk_although_the_error_names_its_source(tmp_path):
    with pytest.raises(OutputError, match=r"cannot write .*soup: No space"):
        publish(tmp_path / "soup", OSError(errno.ENOSPC, "No space", "base/x", None, str(tmp_path / "soup/x")))


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_existing_output_is_refused_and_kept(tmp_path, kind):
    out = tmp_path / "soup"
    match kind:
        case "folder":
            out.mkdir()
        case "file":
            out.write_text("precious")
        case _:
            out.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match=r"soup exists, and existing output is never replaced"), publishing(out):
        pytest.fail("the block must not run")
    assert os.path.lexists(out)
    assert os.listdir(tmp_path) == ["soup"]


def test_output_that_appears_meanwhile_is_kept_and_ours_is_withdrawn(tmp_path):
    out = tmp_path / "soup"
    with pytest.raises(OutputError, match="appeared while the soup was made: it is left as it is"), publishing(out):
        (out / "theirs").mkdir(parents=True)
    assert os.listdir(tmp_path) == ["soup"]
    assert os.listdir(out) == ["theirs"]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run" / "checkpoint-1"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text("")
    return folder


@pytest.mark.parametrize("out", ["run/checkpoint-1/soup", "run/checkpoint-1/a/b", "link/soup"])
def test_output_inside_an_input_is_refused_even_through_a_link(tmp_path, run, out):
    (tmp_path / "link").symlink_to(run)
    with pytest.raises(OutputError, match=r"lies inside the input"):
        require_free(tmp_path / out, inputs=[run])


def test_output_that_contains_an_input_is_refused(tmp_path):
    with pytest.raises(OutputError, match="contains the input"):  # by name alone: neither is there yet
        require_free(tmp_path / "soup", inputs=[tmp_path / "soup" / "checkpoint-1"])


def test_output_beside_an_input_is_fine(tmp_path, run):
    require_free(run.parent / "checkpoint-2", inputs=[run])
    require_free(run.parent / "checkpoint-10", inputs=[run])  # a longer name is not a subfolder
    require_free(tmp_path / "soup", inputs=[run, run / "model.safetensors"])


def test_output_that_does_not_fit_is_refused_before_any_work(tmp_path):
    with pytest.raises(OutputError, match=r"needs 1000000.00 TB and .* free: free some space"):
        require_free(tmp_path / "new" / "soup", need_bytes=10**18)
    assert os.listdir(tmp_path) == []


def test_a_place_that_takes_no_folder_is_refused_with_a_message():
    """Permission bits do not bind root; /proc takes new folders from nobody."""
    with pytest.raises(OutputError, match=r"cannot write"), publishing(Path("/proc/soup")):
        pytest.fail("the block must not run")


def test_a_file_in_the_way_of_the_parent_is_refused_with_a_message(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError), publishing(tmp_path / "file" / "soup"):
        pytest.fail("the block must not run")


def unfinished(tmp_path: Path, name: str = "soup", tail: str = "old") -> Path:
    folder = tmp_path / f".{name}{MARK}{tail}"
    folder.mkdir()
    (folder / "half").write_text("x")
    return folder


def test_what_a_killed_merge_left_is_removed_by_the_next_one(tmp_path):
    stale, other = unfinished(tmp_path), unfinished(tmp_path, "soup2")
    with publishing(tmp_path / "soup"):
        assert not stale.exists()
    assert other.exists()  # the neighbour's business


def test_a_merge_still_at_work_is_left_alone(tmp_path):
    folder = unfinished(tmp_path)
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    remove_stale(tmp_path / "soup")
    assert (folder / "half").exists()
    os.close(lock)
    remove_stale(tmp_path / "soup")
    assert not folder.exists()


def test_of_two_merges_to_one_output_at_once_the_one_done_first_stays(tmp_path):
    with pytest.raises(OutputError, match="appeared while the soup was made"), publishing(tmp_path / "soup"):
        publish(tmp_path / "soup", nbytes=7)  # the later one finds the earlier at work, leaves it, and is done first
    assert (tmp_path / "soup" / "x").read_bytes() == bytes(7)
    assert os.listdir(tmp_path) == ["soup"]


@pytest.mark.parametrize("name", ["so*p", "soup[1]", "soup?"])
def test_a_name_that_looks_like_a_pattern_is_only_a_name(tmp_path, name):
    mine, other = unfinished(tmp_path, name), unfinished(tmp_path, "soupsp1")
    other2 = unfinished(tmp_path, "soup1")
    with publishing(tmp_path / name):
        assert not mine.exists()
    assert other.exists()
    assert other2.exists()
    assert (tmp_path / name).is_dir()


CHILD = """
    import os, sys
    from pathlib import Path
    from trajsoup.errors import OutputError
    from trajsoup.store.publish import publishing
    {before}
    try:
        with publishing(Path(sys.argv[1])) as folder:
            {block}
    except OutputError as error:
        print(error)
"""


def child(out: Path, *, block: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent(CHILD).format(block=block, before=before)
    return subprocess.run([sys.executable, "-c", code, str(out)], capture_output=True, text=True, timeout=120)


def test_a_killed_merge_leaves_no_output_and_the_rerun_succeeds(tmp_path):
    out = tmp_path / "soup"
    died = child(out, block="(folder / 'x').write_text('half'); os.kill(os.getpid(), 9)")
    assert died.returncode == -signal.SIGKILL
    assert not out.exists()
    assert len(os.listdir(tmp_path)) == 1
    again = child(out, block="(folder / 'x').write_text('whole')")
    assert again.returncode == 0, again.stderr
    assert os.listdir(tmp_path) == ["soup"]
    assert (out / "x").read_text() == "whole"


def test_a_file_larger_than_may_be_written_leaves_nothing(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    full = child(tmp_path / "soup", before=limit, block="(folder / 'x').write_bytes(bytes(10**6))")
    assert "cannot write" in full.stdout, full.stderr
    assert "File too large: nothing was left behind" in full.stdout
    assert os.listdir(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, where the tests may mount one."""
    mount = tmp_path / "disk"
    mount.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)]
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run(options, capture_output=True).returncode == 0:
            yield mount
            subprocess.run(["umount", "-l", str(mount)], check=True)
            return
    pytest.skip("mounting a small file system is not permitted here")


def test_a_disk_that_fills_up_leaves_nothing(small_disk):
    with pytest.raises(OutputError, match=r"No space left on device: nothing was left behind"):
        publish(small_disk / "soup", nbytes=10**7)
    assert os.listdir(small_disk) == []
    with pytest.raises(OutputError, match=r"needs 10.0 MB and .*disk has [\d.]+ [kM]B free"):
        require_free(small_disk / "soup", need_bytes=10**7)


def test_a_read_only_disk_is_refused_before_any_work(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OutputError, match=r"cannot write to .*disk: choose an --output in a folder you may write to"):
        require_free(small_disk / "soup")


def test_a_small_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "study.yaml"
    write_atomic(path, "one\n")
    write_atomic(path, "två\n")
    assert path.read_text(encoding="utf-8") == "två\n"
    assert os.listdir(path.parent) == ["study.yaml"]
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "två\n"
    assert os.listdir(path.parent) == ["study.yaml"]
    with pytest.raises(OutputError, match="cannot write"):
        write_atomic(Path("/proc/study.yaml"), "x")


@pytest.mark.parametrize("call", ["open", "mkdir"])
def test_an_interrupt_as_soon_as_the_hidden_folder_is_there_leaves_none(tmp_path, monkeypatch, call):
    real, came = getattr(os, call), []

    def interrupted(*args, **kwargs):
        found = real(*args, **kwargs)
        if not came and any(tmp_path.glob(f".soup{MARK}*")):
            came.append(call)
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(tmp_path / "soup")
    assert not list(tmp_path.glob(f".soup{MARK}*"))
