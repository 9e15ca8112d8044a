"""Settings that all tests share, and runs that many read. What they build checkpoints with is in checkpoints.py."""

import os

import hypothesis
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # some virtual machines claim more than they run
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin while they wait make a busy machine crawl
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers fill the cores

# The same examples every time: a test that fails does so on every machine, and none is flaky for want of time.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_modifyitems(items):
    """The longest files first: whichever worker has one at the end would be waited for by all (`make test`)."""
    from tests.longest_first import LONGEST_FIRST

    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Three runs of checkpoints; they must be as they were when the last test is done."""
    from tests.runs import fingerprint, three_runs

    folder = three_runs(tmp_path_factory.mktemp("runs"))
    before = fingerprint(folder)
    yield folder
    assert fingerprint(folder) == before, "a command wrote to its inputs"


@pytest.fixture(scope="session")
def training_checkpoints(tmp_path_factory):
    """Three checkpoints in every format that trainers leave, and as `plain` safetensors: KIND/step-1, -2 and -3."""
    from tests.checkpoints import write_checkpoint
    from tests.runs import weights
    from tests.training_checkpoints import write_training_checkpoints

    folder, drawn = tmp_path_factory.mktemp("formats"), {seed: weights(seed) for seed in (1, 2, 3)}
    for seed, tensors in drawn.items():
        write_checkpoint(folder / "plain" / f"step-{seed}", tensors)
    return write_training_checkpoints(folder, drawn)


@pytest.fixture(scope="session")
def fork_point(tmp_path_factory):
    """A freshly initialised tiny model. Nothing writes into it: every study starts from a link to it."""
    from tests.lm.stand_in import make_fork_point

    return make_fork_point(tmp_path_factory.mktemp("fork") / "fork")


@pytest.fixture(scope="module", params=["local", "ray"])
def executor(request):
    """Two workers of each kind."""
    from tests.ray_cluster import ray_for_tests
    from trajsoup.engine.executor import LocalExecutor

    with LocalExecutor(2) if request.param == "local" else ray_for_tests(workers=2) as executor:
        yield executor


@pytest.fixture
def toy_format():
    """The format of tests/toy_format.py is known while the test runs."""
    from tests.toy_format import Toy
    from trajsoup.store.formats import FORMATS, register

    register(Toy())
    yield
    del FORMATS[Toy.name]


def pytest_terminal_summary(terminalreporter):
    """Say in the last lines when the pages were not looked at, and how to get a browser."""
    from tests.report.browsing import NO_BROWSER

    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    left_out = [reason for reason in reasons if NO_BROWSER in reason]
    if left_out:
        terminalreporter.section("browser tests did not run")
        terminalreporter.line(f"{len(left_out)} tests were left out, {NO_BROWSER}")
