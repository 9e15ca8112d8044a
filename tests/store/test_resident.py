"""A file is read once, however often it is asked for."""

import os

from trajsoup.store.resident import ResidentFiles


class Counted(ResidentFiles):
    def __init__(self, **options):
        super().__init__(**options)
        self.loads = []

    def load(self, path):
        self.loads.append(path.name)
        return super().load(path)


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_file_is_read_once(tmp_path):
    files, path = Counted(limit_bytes=100), write(tmp_path, "a", b"weights")
    assert files.get(path) == files.get(path) == b"weights"
    assert files.loads == ["a"]


def test_a_file_that_does_not_fit_is_left_on_disk(tmp_path):
    files = Counted(limit_bytes=10)
    small, large = write(tmp_path, "small", b"12345678"), write(tmp_path, "large", b"abc")
    assert files.get(small) == b"12345678"
    assert files.get(large) is None
    assert files.held_bytes == 8


def test_a_file_that_changed_is_read_again(tmp_path):
    files, path = Counted(limit_bytes=100), write(tmp_path, "a", b"old")
    assert files.get(path) == b"old"
    path.write_bytes(b"new")
    os.utime(path, ns=(1, 1))
    assert files.get(path) == b"new"
    assert files.held_bytes == 3
