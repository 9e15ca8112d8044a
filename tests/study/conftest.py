"""Runs that many tests read; they must be as they were when the last test is done."""

import os

import pytest

from tests.runs import fingerprint, three_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    folder = three_runs(tmp_path_factory.mktemp("runs"))
    before = fingerprint(folder)
    yield folder
    assert fingerprint(folder) == before, "a command wrote to its inputs"


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # some virtual machines claim more than they run
