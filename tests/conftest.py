"""Settings that all tests share, and runs that many read. What they build checkpoints with is in checkpoints.py."""

import os

import hypothesis
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # some virtual machines claim more than they run

# The same examples every time: a test that fails does so on every machine, and none is flaky for want of time.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Three runs of checkpoints; they must be as they were when the last test is done."""
    from tests.runs import fingerprint, three_runs

    folder = three_runs(tmp_path_factory.mktemp("runs"))
    before = fingerprint(folder)
    yield folder
    assert fingerprint(folder) == before, "a command wrote to its inputs"
