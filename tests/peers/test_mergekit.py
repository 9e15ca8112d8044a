"""The same linear merge by mergekit, in its own environment: equal bits for a mean, the last bit at most for weights."""

import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints import bits_of
from tests.command import succeeds
from tests.models.tiny import branch_off, in_bf16, load, model, save
from tests.runs import average, equal
from tests.runs import load as tensors_of

MERGEKIT = Path(__file__).parents[2] / ".venv-mergekit" / "bin" / "mergekit-yaml"

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not MERGEKIT.exists(), reason=f"no mergekit at {MERGEKIT}: `make test-peers` installs it"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("branches")
    return [save(in_bf16(branch_off(model("llama"), seed=seed)), folder / f"EXP{seed}") for seed in (1, 2, 3, 4, 5)]


def by_mergekit(weights, out):
    """Merge with mergekit into `out`; return the tensors."""
    models = "".join(f"  - {{model: {path}, parameters: {{weight: {w!r}}}}}\n" for path, w in weights.items())
    return run_mergekit(
        f"merge_method: linear\nmodels:\n{models}parameters: {{normalize: true}}\ndtype: bfloat16\n", out
    )


def run_mergekit(text, out):
    config = out.with_suffix(".yaml")
    config.write_text(text)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [str(MERGEKIT), str(config), str(out), "--quiet", "--no-copy-tokenizer"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    return tensors_of(out)


def by_trajsoup(weights, out):
    succeeds("merge", *(f"{path}={w!r}" for path, w in weights.items()), "--normalize", "-o", out)
    return tensors_of(out)


def steps_apart(a, b):
    """How many representable numbers lie between two bf16 tensors, element by element."""

    def ordered(tensor):
        bits = bits_of(tensor).astype(np.int64)
        return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)

    return np.abs(ordered(a) - ordered(b)).reshape(-1)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_mean_is_the_same_to_the_last_bit(places, tmp_path, count):
    weights = dict.fromkeys(places[:count], 1.0)
    theirs, ours = by_mergekit(weights, tmp_path / "theirs"), by_trajsoup(weights, tmp_path / "ours")
    assert theirs.keys() == ours.keys()  # neither writes a head that is tied
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype
        assert np.array_equal(bits_of(tensor), bits_of(theirs[name])), name
    load(tmp_path / "ours")


@pytest.mark.parametrize("weights", [(0.7, 0.3), (0.1, 0.2, 0.7), (1.0, 2.0, 3.0, 4.0, 5.0), (1.5, -0.5)])
def test_weighted_sums_agree_but_for_the_last_bit_of_a_few(places, tmp_path, weights):
    row = dict(zip(places, weights, strict=False))
    theirs, ours = by_mergekit(row, tmp_path / "theirs"), by_trajsoup(row, tmp_path / "ours")
    assert theirs.keys() == ours.keys()
    apart = np.concatenate([steps_apart(ours[name], theirs[name]) for name in ours])
    assert apart.max() <= 1
    # They weigh in fp32, we in fp64. Weights such as 0.7 and 0.3 make ties common (numbers five steps apart), and which
    # way one rounds is decided by the weight's own rounding error: measured, 99.3 % to 100 % of numbers are equal.
    assert (apart == 0).mean() > 0.99
    total = math.fsum(weights)
    assert equal(ours, average({path: w / total for path, w in row.items()}))  # where they differ, ours is the nearest


def test_model_stock_is_theirs_to_rounding(places, tmp_path):
    base, *models = places
    listed = "".join(f"  - {{model: {path}}}\n" for path in models[:3])
    theirs = run_mergekit(
        f"merge_method: model_stock\nbase_model: {base}\nmodels:\n{listed}dtype: float32\n", tmp_path / "theirs"
    )
    args = ("--method", "model-stock", "--fork-point", base, "--no-screen", "--dtype", "fp32")
    for i, path in enumerate(models[:3]):  # a run folder each
        (tmp_path / f"run{i}").mkdir()
        (tmp_path / f"run{i}" / "checkpoint-1").symlink_to(path)
    succeeds("merge", *(tmp_path / f"run{i}" for i in range(3)), *args, "-o", tmp_path / "ours")
    ours = tensors_of(tmp_path / "ours")
    assert theirs.keys() == ours.keys()
    for name, tensor in ours.items():
        assert np.allclose(tensor.numpy(), theirs[name].numpy(), rtol=1e-4, atol=1e-6), name
