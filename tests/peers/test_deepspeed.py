"""Checkpoints that DeepSpeed itself wrote on two ranks are read as its own zero_to_fp32 puts them together."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from tests.command import succeeds
from tests.runs import equal, load
from trajsoup.store.runs import scan_run

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("DEEPSPEED_PYTHON", ROOT / ".venv-deepspeed" / "bin" / "python"))
SCRIPT = Path(__file__).with_name("deepspeed_checkpoints.py")
pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not PYTHON.exists(), reason="DeepSpeed is not installed: `make test-peers`"),
]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_soup_of_zero_states_is_that_of_the_weights_zero_to_fp32_finds(tmp_path, stage):
    run = tmp_path / "run"
    done = subprocess.run([PYTHON, SCRIPT, "save", run, str(stage)], capture_output=True, text=True, timeout=1400)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [saved.step for saved in scan_run(run).checkpoints] == [1, 2]
    succeeds("merge", f"{run}/global_step1=0.5", f"{run}/global_step2=0.5", "--dtype", "fp32", "-o", tmp_path / "soup")
    whole = [f"{tmp_path}/run-step{step}.pt=0.5" for step in (1, 2)]
    succeeds("merge", *whole, "--dtype", "fp32", "-o", tmp_path / "expected")
    found, expected = load(tmp_path / "soup"), load(tmp_path / "expected")
    if stage == 1:  # where zero_to_fp32 loses frozen parameters
        assert found.pop("frozen.weight").shape == (3, 5)
    assert equal(found, expected), found.keys() ^ expected.keys()
    assert {name for name, t in found.items() if t.dtype is not torch.float32} == {"ids"}
    succeeds("verify", tmp_path / "soup", "--full")
