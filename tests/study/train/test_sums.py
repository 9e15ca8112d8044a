"""Sums that stand for deleted checkpoints: the soup over them has the bits of the soup over all; killed, nothing is lost."""

import numpy as np
import pytest
import torch

from tests.checkpoints import TORCH, bits_of, write_checkpoint
from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import MemorySink
from trajsoup.errors import BlendError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import plan_row
from trajsoup.merge.verify import verify_soup
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.study.train import sums
from trajsoup.study.train.sums import add_to_sum, as_present, forget_sums, open_parts, over_sums, read_sums

RUNS, SAVED = ("EXP1", "EXP2"), 6


def trained(folder, dtype, *, spread=0):
    """Checkpoints as a run saves them: every weight wanders a little. With a spread they differ by that many binades."""
    rng = np.random.default_rng(7)
    start = rng.standard_normal(5000) * 0.02
    found = {}
    for run in RUNS:
        for number in range(1, SAVED + 1):
            values = start + 0.002 * rng.standard_normal(5000)
            if spread:
                values *= 2.0 ** rng.integers(-spread, 1, 5000)
            tensors = {
                "layer": torch.from_numpy(values).to(TORCH[dtype]).view(50, 100),
                "norm": torch.from_numpy(1 + 0.1 * rng.standard_normal(64)).to(torch.float32),
                "steps": torch.arange(4),
            }
            key = f"branches/{run}/checkpoint-{number * 10}"
            write_checkpoint(folder / key, tensors, shards=2)
            found[key] = open_checkpoint(folder / key)
    return found


def summed(folder, checkpoints, *, stops=(30, 60)):
    """One after the other, as a study meets them."""
    for run in RUNS:
        last = None
        for key in sorted(k for k in checkpoints if f"/{run}/" in k):
            tokens = int(key.rpartition("-")[2])
            last = add_to_sum(
                last, {key: checkpoints[key]}, {key: f"sha of {key}"}, run=run, tokens=tokens, output=folder
            )
            forget_sums([s for s in read_sums(folder) if s.run == run], stops=stops, output=folder)
    return read_sums(folder)


def mean(keys):
    return Row(name="full", weights=dict.fromkeys(keys, 1 / len(keys)))


def tensors_of(row, checkpoints):
    layout = make_layout(next(iter(checkpoints.values())))
    blend(checkpoints, [row], [sink := MemorySink(layout)], layout=layout)
    return {name: array.copy() for name, array in sink.tensors().items()}


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
@pytest.mark.parametrize("by", [30, 60])
def test_the_soup_over_sums_has_the_bits_of_the_soup_over_all(tmp_path, dtype, by):
    checkpoints = trained(tmp_path, dtype)
    found = summed(tmp_path, checkpoints)
    row = mean([key for key in checkpoints if int(key.rpartition("-")[2]) <= by])
    instead = over_sums(row, found)
    assert instead is not None
    parts = {key: c for one in found for key, c in open_parts(one, tmp_path).items() if key in instead.weights}
    assert len(parts) == len(RUNS) * found[0].parts
    every, mine = tensors_of(row, checkpoints), tensors_of(instead, parts)
    assert all(every[name].tobytes() == mine[name].tobytes() for name in every)


@pytest.mark.parametrize(("dtype", "bits"), [("F32", 24), ("BF16", 8)])
def test_where_no_accumulator_holds_the_sum_the_two_soups_are_a_rounding_apart(tmp_path, dtype, bits):
    checkpoints = trained(tmp_path, dtype, spread=40)
    row, found = mean(checkpoints), summed(tmp_path, checkpoints)
    parts = {key: c for one in found for key, c in open_parts(one, tmp_path).items()}
    every, mine = (
        torch.from_numpy(tensors_of(*asked)["layer"].copy())
        for asked in ((row, checkpoints), (over_sums(row, found), parts))
    )
    if dtype == "BF16":
        every, mine = every.view(torch.bfloat16), mine.view(torch.bfloat16)
    size = sum(c.double() for c in _layers(checkpoints)).abs() / len(row.weights)
    lost = len(row.weights) * 2.0**-24 * sum(c.double().abs() for c in _layers(checkpoints)) / len(row.weights)
    assert bool(((every.double() - mine.double()).abs() <= size * 2.0 ** (1 - bits) + lost).all())
    assert float((every != mine).double().mean()) < 0.01


def _layers(checkpoints):
    from safetensors.torch import load_file

    for checkpoint in checkpoints.values():
        found = {name: t for file in checkpoint.files for name, t in load_file(file).items()}
        yield found["layer"]


def test_of_each_stop_and_of_the_run_the_newest_sum_stays(tmp_path):
    checkpoints = trained(tmp_path, "F32")
    found = summed(tmp_path, checkpoints, stops=(35, 60))
    assert [(s.run, s.tokens, len(s.members)) for s in found] == [
        (run, tokens, tokens // 10) for run in RUNS for tokens in (30, 60)
    ]
    assert found[0].members == {
        f"branches/EXP1/checkpoint-{n}0": f"sha of branches/EXP1/checkpoint-{n}0" for n in (1, 2, 3)
    }
    assert sorted(p.name for p in (tmp_path / "sums" / "EXP1").iterdir()) == ["30", "60"]


def test_a_sum_that_was_being_written_when_it_was_killed_is_not_there(tmp_path, monkeypatch):
    checkpoints = trained(tmp_path, "F32")
    first, second = list(checkpoints)[:2]
    last = add_to_sum(None, {first: checkpoints[first]}, {first: "1"}, run="EXP1", tokens=10, output=tmp_path)

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    asked = {"run": "EXP1", "tokens": 20, "output": tmp_path}
    with monkeypatch.context() as patch:
        patch.setattr(sums, "open_checkpoint", killed)
        with pytest.raises(KeyboardInterrupt):
            add_to_sum(last, {second: checkpoints[second]}, {second: "2"}, **asked)
    assert read_sums(tmp_path) == (last,)
    new = add_to_sum(last, {second: checkpoints[second]}, {second: "2"}, **asked)
    with monkeypatch.context() as patch:  # killed between the parts that are deleted
        patch.setattr(sums, "prune", lambda folders, below: sums.shutil.rmtree(folders[0]) or killed())
        with pytest.raises(KeyboardInterrupt):
            forget_sums([last, new], stops=[60], output=tmp_path)
    forget_sums(list(read_sums(tmp_path)), stops=[60], output=tmp_path)
    assert read_sums(tmp_path) == (new,)
    assert over_sums(mean([first, second]), read_sums(tmp_path)) is not None


def test_only_the_plain_mean_of_exactly_what_is_in_the_sums_is_taken_from_them(tmp_path):
    checkpoints = trained(tmp_path, "F32")
    found, keys = summed(tmp_path, checkpoints), list(checkpoints)
    assert over_sums(mean(keys[:-1]), found) is None
    assert over_sums(mean(keys[:5]), found) is None
    assert over_sums(Row(name="w", weights={key: 1 / (i + 2) for i, key in enumerate(keys)}), found) is None
    assert as_present(mean(keys), gone={}, sums=found) == mean(keys)
    assert as_present(mean(keys[:5]), gone=keys, sums=found) == mean(keys[:5])
    assert as_present(mean(keys), gone=keys[:1], sums=found).mean_of == len(keys)


def test_a_soup_made_of_sums_is_verified_and_says_of_how_many_checkpoints(tmp_path):
    checkpoints = trained(tmp_path, "BF16")
    found = summed(tmp_path, checkpoints)
    instead = over_sums(mean(checkpoints), found)
    weights = {str(tmp_path / key): weight for key, weight in instead.weights.items()}
    made = make_soup(plan_row(Row(name="full", weights=weights, mean_of=12)), tmp_path / "soup")
    assert made.record()["mean_of"] == 12
    assert verify_soup(tmp_path / "soup", full=True).full
    assert "`full` of 12 checkpoints" in (tmp_path / "soup" / "README.md").read_text()
    layer = torch.from_numpy(tensors_of(mean(checkpoints), checkpoints)["layer"].view(np.uint16)).numpy()
    assert np.array_equal(bits_of(next(_layers({"": open_checkpoint(tmp_path / "soup")}))), layer)


def test_sums_weigh_one_over_their_number_and_nothing_else():
    with pytest.raises(BlendError, match="mean of 4 checkpoints kept as sums"):
        Row(name="r", weights={"a": 0.5, "b": 0.25}, mean_of=4)
    with pytest.raises(BlendError, match="mean of 0 checkpoints"):
        Row(name="r", weights={"a": 0.5}, mean_of=0)
