"""torch_dist checkpoints that megatron-core wrote merge as the same weights do elsewhere, and it loads the soup."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from tests.command import succeeds
from tests.runs import equal, load
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.runs import scan_run

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("MEGATRON_PYTHON", ROOT / ".venv-megatron" / "bin" / "python"))
SCRIPT = Path(__file__).with_name("megatron_checkpoints.py")
pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not PYTHON.exists(), reason="megatron-core is not installed: `make test-peers`"),
]


def megatron(*args):
    done = subprocess.run([PYTHON, SCRIPT, *map(str, args)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("megatron") / "run"
    megatron("save", folder)
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
    megatron("load", tmp_path / "same", tmp_path / "loaded.pt")
    assert equal(torch.load(tmp_path / "loaded.pt"), load(tmp_path / "plain"))
