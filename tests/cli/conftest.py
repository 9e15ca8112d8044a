"""Runs that many tests read; they must be as they were when the last test is done."""

import pytest

from tests.runs import fingerprint, three_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    folder = three_runs(tmp_path_factory.mktemp("runs"))
    before = fingerprint(folder)
    yield folder
    assert fingerprint(folder) == before, "a command wrote to its inputs"
