"""torch_dist checkpoints that megatron-core wrote merge as the same weights do elsewhere, and it loads the soup."""

import pytest
import torch

from tests.command import succeeds
from tests.peers.environments import Environment
from tests.runs import equal, load
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.runs import scan_run

MEGATRON, SCRIPT = Environment("megatron"), "megatron_checkpoints.py"
pytestmark = MEGATRON.marks()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("megatron") / "run"
    MEGATRON.run(SCRIPT, "save", folder)
    return folder


def test_the_soup_of_torch_dist_is_that_of_the_same_weights_and_megatron_loads_it(run, tmp_path):
    assert [saved.step for saved in scan_run(run).checkpoints] == [1, 2]
    found = open_checkpoint(run / "iter_0000001")
    assert any(name.startswith("optimizer") for name in found.left_out)
    inputs = [f"{run}/iter_000000{n}=0.5" for n in (1, 2)]
    succeeds("merge", *inputs, "-o", tmp_path / "plain")
    succeeds("merge", *(f"{run.parent}/{n}.pt=0.5" for n in (1, 2)), "-o", tmp_path / "expected")
    assert equal(load(tmp_path / "plain"), load(tmp_path / "expected"))
    succeeds("merge", *inputs, "--format", "same", "-o", tmp_path / "same")
    succeeds("verify", tmp_path / "same", "--full")
    MEGATRON.run(SCRIPT, "load", tmp_path / "same", tmp_path / "loaded.pt")
    assert equal(torch.load(tmp_path / "loaded.pt"), load(tmp_path / "plain"))


def test_megatron_resumes_from_the_soup_with_the_state_of_a_named_checkpoint(run, tmp_path):
    inputs = [f"{run}/iter_000000{n}=0.5" for n in (1, 2)]
    succeeds("merge", *inputs, "-o", tmp_path / "plain")
    chosen = run / "iter_0000002"
    succeeds("merge", *inputs, "--format", "same", "--state-from", chosen, "-o", tmp_path / "same")
    MEGATRON.run(SCRIPT, "resume", tmp_path / "same", tmp_path / "loaded.pt")
    found = torch.load(tmp_path / "loaded.pt")
    assert (found.pop("iteration"), found.pop("moment").tolist()) == (2, [2.0] * 6)
    assert equal(found, load(tmp_path / "plain"))
