"""What trainers leave is read as it is: every format, without torch, to the bits of the same weights in safetensors."""

import pickle
import shutil
import subprocess
import sys
from dataclasses import make_dataclass
from types import SimpleNamespace

import pytest
import torch

from tests.engine.passes import soup
from tests.runs import equal, load
from tests.training_checkpoints import write_shards
from trajsoup.core.soup import Row
from trajsoup.engine.layout import make_layout
from trajsoup.errors import CheckpointError, MismatchError
from trajsoup.store.checkpoint import open_checkpoint, require_same
from trajsoup.store.runs import scan_run

KINDS = {
    "dcp0": "torch DCP",
    "dcp1": "torch DCP",
    "one-rank": "torch DCP",
    "hf": "safetensors",
    "bin": "torch.save",
    "bin-shards": "torch.save",
    "litgpt": "torch.save",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_recognised_by_content_and_has_the_tensors_of_the_plain_one(training_checkpoints, kind):
    found = open_checkpoint(training_checkpoints / kind / "step-1")
    assert found.format.name == KINDS[kind]
    require_same(open_checkpoint(training_checkpoints / "plain" / "step-1"), found)
    assert found.side_files() == ()


@pytest.mark.parametrize("kind", KINDS)
def test_its_soup_has_the_bits_of_the_plain_soup(training_checkpoints, kind):
    rows = [
        Row(name="mean", weights=dict.fromkeys("123", 1 / 3)),
        Row(name="weighted", weights={"1": 0.7, "2": 0.5, "3": -0.2}),
    ]
    opened = {
        which: {n: open_checkpoint(training_checkpoints / which / f"step-{n}") for n in "123"}
        for which in ("plain", kind)
    }
    expected, made = (soup(opened[which], *rows) for which in ("plain", kind))
    for mine, theirs in zip(made, expected, strict=True):
        assert mine.keys() == theirs.keys()
        assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)


def test_ingredients_in_different_shardings_and_formats_merge_exactly(training_checkpoints):
    row = Row(name="mean", weights=dict.fromkeys("123", 1 / 3))
    mixed = {
        n: open_checkpoint(training_checkpoints / kind / f"step-{n}")
        for n, kind in zip("123", ("dcp0", "dcp1", "bin"), strict=True)
    }
    plain = {n: open_checkpoint(training_checkpoints / "plain" / f"step-{n}") for n in "123"}
    (made,), (expected,) = soup(mixed, row), soup(plain, row)
    assert all(made[name].tobytes() == expected[name].tobytes() for name in expected)


def test_optimizer_state_and_counters_are_recognised_and_left_out(training_checkpoints):
    found = open_checkpoint(training_checkpoints / "dcp0" / "step-1")
    assert "step" in found.left_out
    assert "optimizer.state.norm.weight.exp_avg" in found.left_out
    assert "optimizer.param_groups.0.lr" in found.left_out


def test_a_run_of_them_is_scanned_with_its_steps(training_checkpoints):
    for kind in KINDS:
        assert [saved.step for saved in scan_run(training_checkpoints / kind).checkpoints] == [1, 2, 3]


def test_the_folder_that_olmo_core_puts_around_a_checkpoint_is_the_checkpoint(training_checkpoints, tmp_path):
    (tmp_path / "step7").mkdir()
    (tmp_path / "step7" / "config.json").write_text('{"run": "of the trainer, not of a model"}')
    (tmp_path / "step7" / "model_and_optim").symlink_to(training_checkpoints / "dcp0" / "step-1")
    found = open_checkpoint(tmp_path / "step7")
    assert found.config == {}
    assert [s.step for s in scan_run(tmp_path).checkpoints] == [7]


def test_places_as_olmo_cores_own_writer_notes_them_are_understood(training_checkpoints, tmp_path, monkeypatch):
    name = "olmo_core.distributed.checkpoint.filesystem"
    info = make_dataclass("_StorageInfo", ["relative_path", "offset", "length"], namespace={"__module__": name})
    for module in (name.split(".")[0], name):
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(_StorageInfo=info))
    shutil.copytree(training_checkpoints / "dcp0" / "step-1", tmp_path / "step1")
    metadata = pickle.loads((tmp_path / "step1" / ".metadata").read_bytes())
    for index, place in metadata.storage_data.items():
        metadata.storage_data[index] = info(place.relative_path, place.offset, place.length)
    (tmp_path / "step1" / ".metadata").write_bytes(pickle.dumps(metadata))
    assert name.encode() in (tmp_path / "step1" / ".metadata").read_bytes()
    found, plain = open_checkpoint(tmp_path / "step1"), open_checkpoint(training_checkpoints / "dcp0" / "step-1")
    assert found.tensors == plain.tensors


def test_the_output_is_plain_safetensors(training_checkpoints):
    layout = make_layout(open_checkpoint(training_checkpoints / "dcp1" / "step-1"))
    assert [file.name for file in layout.files] == ["model.safetensors"]


def test_files_of_several_checkpoints_in_one_folder_are_a_run(tmp_path):
    for step in (10, 20):
        torch.save({"w": torch.ones(3) * step}, tmp_path / f"step_{step}.pth")
    assert [saved.step for saved in scan_run(tmp_path).checkpoints] == [10, 20]


@pytest.mark.parametrize("names", [["consolidated.00.pth", "consolidated.01.pth"], ["mp_rank_00_model_states.pt"]])
def test_parts_of_a_model_are_never_taken_for_checkpoints(tmp_path, names):
    for name in names:
        torch.save({"w": torch.ones(3)}, tmp_path / name)
    with pytest.raises(CheckpointError, match="is a part of no checkpoint that is read here"):
        open_checkpoint(tmp_path)


def test_axes_swapped_before_saving_are_read_in_their_order_and_shared_storages_under_both_names(tmp_path):
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    state = {"swapped": base.permute(2, 0, 1), "tail": base[1:], "whole": base, "p": torch.nn.Parameter(base * 2)}
    torch.save(state, tmp_path / "model.pt")
    (made,) = soup({"x": open_checkpoint(tmp_path / "model.pt")}, Row(name="it", weights={"x": 1.0}))
    assert all((made[name] == tensor.detach().numpy()).all() for name, tensor in state.items())
    torch.save({"w": base[:, 1]}, tmp_path / "view.pt")
    with pytest.raises(CheckpointError, match=r"shape \[2, 4\] is a view with strides \[12, 1\]"):
        open_checkpoint(tmp_path / "view.pt")


def test_two_dicts_of_weights_are_kept_under_their_whole_paths(tmp_path):
    torch.save({"model": {"w": torch.ones(2)}, "ema": {"w": torch.zeros(2)}}, tmp_path / "both.pt")
    assert set(open_checkpoint(tmp_path / "both.pt").tensors) == {"model.w", "ema.w"}


def test_a_stale_index_of_pickles_is_refused(tmp_path):
    write_shards(tmp_path, {"a": torch.ones(2), "b": torch.ones(2)})
    torch.save({"a": torch.ones(2), "c": torch.ones(1)}, tmp_path / "pytorch_model-00001-of-00002.bin")
    with pytest.raises(CheckpointError, match=r"puts tensor 'c' into None: it is stale"):
        open_checkpoint(tmp_path)


def test_different_weights_are_told_apart(training_checkpoints, tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "other.pt")
    with pytest.raises(MismatchError, match=r"'embed.weight' is in the first only"):
        require_same(open_checkpoint(training_checkpoints / "dcp0" / "step-1"), open_checkpoint(tmp_path / "other.pt"))


WITHOUT_TORCH = """
import sys
class Block:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in ("torch", "safetensors", "transformers"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
from trajsoup.cli.app import app
runs, out = sys.argv[1:]
for command in (
    ["scan", f"{runs}/dcp0", f"{runs}/litgpt"],
    ["doctor", f"{runs}/dcp0", f"{runs}/dcp1"],
    ["merge", f"{runs}/dcp0/step-1=0.5", f"{runs}/dcp1/step-2=0.25", f"{runs}/bin-shards/step-3=0.25", "-o", out],
    ["verify", out, "--full"],
):
    app(command, standalone_mode=False)
assert not {"torch", "safetensors", "pickle5"} & sys.modules.keys()
"""


def test_scan_doctor_merge_and_verify_need_no_torch(training_checkpoints, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(training_checkpoints), str(tmp_path / "soup")],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plain = [load(training_checkpoints / "plain" / f"step-{n}") for n in (1, 2, 3)]
    exact = {
        name: t
        if not t.is_floating_point()
        else sum(w * one[name].double() for w, one in zip((0.5, 0.25, 0.25), plain, strict=True)).to(t.dtype)
        for name, t in plain[0].items()
    }
    assert equal(load(tmp_path / "soup"), exact)
