"""nanotron, DeepSpeed and Orbax: the soup has the bits of the same weights in safetensors; what is damaged is refused."""

import json
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoints import write_checkpoint
from tests.foreign_checkpoints import weights, write_nanotron, write_orbax, write_zero
from tests.runs import equal, load
from trajsoup.errors import CheckpointError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import mean_row, plan_row
from trajsoup.merge.verify import verify_soup
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.formats.zero import flat_boxes
from trajsoup.store.runs import is_one_checkpoint, scan_run

TIED = {"head.weight": "embed.weight"}  # of DeepSpeed: both names
WRITERS = {
    "nanotron": lambda folder, t: write_nanotron(folder, t),
    "nanotron-one-rank": lambda folder, t: write_nanotron(folder, t, ranks=1),
    "zero1": lambda folder, t: write_zero(folder, t, stage=1),
    "zero2-three-ranks": lambda folder, t: write_zero(folder, t, stage=2, ranks=3),
    "zero3": lambda folder, t: write_zero(folder, t, stage=3),
    "zero3-seven-ranks": lambda folder, t: write_zero(folder, t, stage=3, ranks=7),
    "orbax": lambda folder, t: write_orbax(folder, t),
    "orbax-manager": lambda folder, t: write_orbax(folder / "default", t, prefix=("params", "params")).parent,
    "orbax-zarr3": lambda folder, t: write_orbax(folder, t, zarr3=True),
    "orbax-plain": lambda folder, t: write_orbax(folder, t, ocdbt=False, prefix=()),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_the_soup_has_the_bits_of_the_same_weights_in_safetensors(tmp_path, kind):
    dtype = torch.float32 if "zero" in kind else torch.bfloat16
    name = "global_step{}" if "zero" in kind else "{}"
    for seed in (1, 2):
        tensors = weights(seed, dtype=dtype)
        tied = {new: tensors[old].clone() for new, old in TIED.items()} if "zero" in kind else {}
        write_checkpoint(tmp_path / "plain" / str(seed), tensors | tied)
        WRITERS[kind](tmp_path / "run" / name.format(10 * seed), tensors)
    run = scan_run(tmp_path / "run")
    assert [saved.step for saved in run.checkpoints] == [10, 20]
    assert all(is_one_checkpoint(saved.path) for saved in run.checkpoints)
    made = plan_row(mean_row([saved.path for saved in run.checkpoints]))
    make_soup(made, tmp_path / "soup")
    make_soup(plan_row(mean_row([tmp_path / "plain" / "1", tmp_path / "plain" / "2"])), tmp_path / "expected")
    assert equal(load(tmp_path / "soup"), load(tmp_path / "expected"))
    assert verify_soup(tmp_path / "soup", full=True).tensors == len(load(tmp_path / "soup"))
    record = json.loads((tmp_path / "soup" / "soup.json").read_text())
    assert record["left_out"]
    assert not (tmp_path / "soup" / "optimizer").exists()
    assert not (tmp_path / "soup" / "_METADATA").exists()


def test_ranges_of_numbers_become_boxes_that_hold_each_number_once():
    for shape in ((7,), (4, 5), (3, 2, 5), (2, 3, 1, 4)):
        whole = torch.arange(torch.Size(shape).numel()).reshape(shape)
        for low in range(whole.numel()):
            for high in range(low + 1, whole.numel() + 1):
                found = [
                    (first, whole[tuple(slice(i, i + n) for i, n in zip(start, size, strict=True))].flatten().tolist())
                    for start, size, first in flat_boxes(shape, low, high)
                ]
                assert [n for _, numbers in found for n in numbers] == list(range(low, high))
                assert all(numbers[0] == first for first, numbers in found)
                assert len(found) <= 2 * len(shape) - 1


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_buffers_and_frozen_parameters_of_deepspeed_are_in_the_model(tmp_path, stage):
    frozen = {"frozen.weight": torch.randn(3, 5).bfloat16()}
    buffers = {"scale": torch.arange(4.0), "ids": torch.arange(5)}
    write_zero(tmp_path / "global_step1", weights(1), stage=stage, frozen=frozen, buffers=buffers)
    make_soup(plan_row(mean_row([tmp_path / "global_step1"])), tmp_path / "soup")
    found = load(tmp_path / "soup")
    assert equal(found, weights(1) | {"head.weight": weights(1)["embed.weight"]} | frozen | buffers)


def test_a_trainers_folder_around_zero_states_gives_its_config(tmp_path):
    write_zero(tmp_path / "checkpoint-10" / "global_step10", weights(1), stage=3)
    (tmp_path / "checkpoint-10" / "latest").write_text("global_step10")
    (tmp_path / "checkpoint-10" / "config.json").write_text('{"model_type": "toy"}')
    assert [saved.path.name for saved in scan_run(tmp_path).checkpoints] == ["checkpoint-10"]
    assert open_checkpoint(tmp_path / "checkpoint-10").config == {"model_type": "toy"}
    write_checkpoint(tmp_path / "checkpoint-10", weights(2))  # gathered when it was saved: that is the model
    assert open_checkpoint(tmp_path / "checkpoint-10").format.name == "safetensors"
    assert is_one_checkpoint(tmp_path / "checkpoint-10")


# What is damaged, and what it says.


class Gadget:
    def __reduce__(self):
        return (eval, ("print('run')",))  # print itself may be another: Ray replaces it where it has run


def change_state(pattern, change):
    def act(folder):
        for file in folder.glob(pattern):
            state = torch.load(file, weights_only=False)
            change(state)
            torch.save(state, file)

    return act


def optimizer(change):
    return change_state("*_optim_states.pt", lambda state: change(state["optimizer_state_dict"]))


def model(change):
    return change_state("*_model_states.pt", change)


KEY = "single_partition_of_fp32_groups"
ZERO = {
    "gadget": (
        optimizer(lambda s: s.update(extra=Gadget())),
        r"'(__builtin__|builtins)\.eval', which is not on the list",
    ),
    "lost rank": (lambda f: next(f.glob("*rank_1_*optim*")).unlink(), "saved by 2 ranks and holds files of 1"),
    "no shapes": (model(lambda s: s.pop("param_shapes")), "does not record how its parts make tensors"),
    "long shape": (
        model(lambda s: s["param_shapes"][0].update({"embed.weight": torch.Size([15, 5])})),
        "does not record how its parts make tensors",
    ),
    "negative shape": (
        model(lambda s: s["param_shapes"][0].update({"embed.weight": (-14, 5)})),
        "does not record how its parts make tensors",
    ),
    "a shape less": (model(lambda s: s["param_shapes"][0].pop("embed.weight")), r"use \d+ of \d+ numbers"),
    "short part": (optimizer(lambda s: s[KEY].__setitem__(0, s[KEY][0][:-8].clone())), "does not record"),
    "no tensor": (optimizer(lambda s: s[KEY].__setitem__(0, "x")), "something else where a tensor should be"),
    "half precision": (optimizer(lambda s: s[KEY].__setitem__(0, s[KEY][0].half())), "a flat group is F16"),
    "other stage": (optimizer(lambda s: s.update(zero_stage=7)), "ZeRO stage 7"),
    "experts": (model(lambda s: s.update(ds_autoep_layers=[])), "AutoEP"),
    "tensor parallel": (
        lambda f: shutil.copy(f / "mp_rank_00_model_states.pt", f / "mp_rank_01_model_states.pt"),
        "a part of a model split by tensors",
    ),
    "cut off": (
        lambda f: [p.write_bytes(p.read_bytes()[:-100]) for p in f.glob("*optim*")],
        "is damaged",
    ),
}


@pytest.mark.parametrize("what", ZERO)
def test_damaged_zero_states_are_refused_in_one_line(tmp_path, what, capsys):
    change, says = ZERO[what]
    folder = write_zero(tmp_path / "global_step1", weights(1), stage=2)
    change(folder)
    capsys.readouterr()
    with pytest.raises(CheckpointError, match=says) as refusal:
        open_checkpoint(folder)
    assert "\n" not in str(refusal.value)
    assert capsys.readouterr().out == ""


def shard(change, *, rank=0, name="embed"):
    def act(folder):
        (file,) = (folder / "model" / name).glob(f"*tp-rank-{rank}-*")
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            metadata = json.loads(opened.read(length))["__metadata__"]
        tensors = load_file(file)
        change(metadata, tensors)
        save_file(tensors, file, metadata=metadata)

    return act


def pairs(text):
    return shard(lambda metadata, tensors: metadata.update(local_global_slices_pairs=text))


NANOTRON = {
    "lost shard": (lambda f: next((f / "model" / "embed").glob("*tp-rank-1*")).unlink(), "has boxes for 35 of its 70"),
    "overlap": (pairs("None,None,None|None,None,None#3,10,None|None,None,None"), "has boxes that overlap"),
    "outside": (pairs("None,None,None|None,None,None#8,15,None|None,None,None"), "is no slice of 14"),
    "other sizes": (pairs("None,None,None|None,None,None#0,6,None|None,None,None"), "pairs slices of different sizes"),
    "a step": (pairs("0,7,2|None,None,None#0,7,2|None,None,None"), "is no slice of 7"),
    "axes": (pairs("None,None,None#0,7,None"), "has 1 axes, not 2"),
    "words": (pairs("x"), "slices cannot be read"),
    "other shape": (shard(lambda m, t: m.update(unsharded_shape="(14, 6)")), "slices cannot be read"),
    "huge shape": (shard(lambda m, t: m.update(unsharded_shape=f"({2**70}, 5)")), "slices cannot be read"),
    "two shapes": (shard(lambda m, t: m.update(unsharded_shape="(15, 5)")), "other shards of 'embed.weight'"),
    "in pieces": (
        pairs("None,None,None|0,2,None#0,7,None|0,2,None;None,None,None|2,5,None#0,7,None|2,5,None"),
        "does not lie together",
    ),
    "other key": (shard(lambda m, t: t.update(x=t.pop("data"))), "holds no tensor 'data'"),
    "old version": (shard(lambda m, t: m.pop("local_global_slices_pairs")), "before its version 1.2"),
    "another file": (
        lambda f: save_file({"data": torch.ones(2)}, f / "model" / "weights.safetensors"),
        "not named as nanotron names a parameter",
    ),
}


@pytest.mark.parametrize("what", NANOTRON)
def test_damaged_shards_of_nanotron_are_refused_in_one_line(tmp_path, what):
    change, says = NANOTRON[what]
    folder = write_nanotron(tmp_path / "10", weights(1))
    change(folder)
    with pytest.raises(CheckpointError, match=says) as refusal:
        open_checkpoint(folder)
    assert "\n" not in str(refusal.value)


def tree(change):
    def act(folder):
        metadata = json.loads((folder / "_METADATA").read_text())
        change(metadata)
        (folder / "_METADATA").write_text(json.dumps(metadata))

    return act


def without_chunk(folder):
    import tensorstore as ts

    store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{folder}/"}).result()
    store.delete_range(ts.KvStore.KeyRange("params.embed.weight/1.0", "params.embed.weight/1.1")).result()


def first(metadata):
    return next(iter(metadata["tree_metadata"].values()))


ORBAX = {
    "lost chunk": (without_chunk, "lacks the chunk 'params.embed.weight/1.0'"),
    "no tree": (tree(lambda m: m.update(tree_metadata=[1])), "lists no tree"),
    "no such array": (tree(lambda m: first(m)["key_metadata"][0].update(key="other")), "cannot be opened"),
    "outside": (tree(lambda m: first(m)["key_metadata"][0].update(key="../x")), "outside its folder"),
    "twice": (tree(lambda m: m["tree_metadata"].update(again=first(m))), "names an array twice"),
    "no database": (lambda f: (f / "manifest.ocdbt").write_bytes(b"x"), "is damaged"),
}


@pytest.mark.parametrize("what", ORBAX)
def test_damaged_checkpoints_of_orbax_are_refused_in_one_line(tmp_path, what):
    change, says = ORBAX[what]
    folder = write_orbax(tmp_path / "10", weights(1))
    change(folder)
    with pytest.raises(CheckpointError, match=says) as refusal:
        open_checkpoint(folder)
    assert "\n" not in str(refusal.value)


def test_damaged_chunks_of_orbax_are_refused_when_they_are_read(tmp_path):
    folder = write_orbax(tmp_path / "10", weights(1), ocdbt=False)
    (folder / "params.embed.weight" / "0.0").write_bytes(b"no zstd at all")
    with pytest.raises(CheckpointError, match="cannot be decoded"):
        make_soup(plan_row(mean_row([folder])), tmp_path / "soup")
    assert not (tmp_path / "soup").exists()


def test_an_unfinished_checkpoint_of_orbax_is_none(tmp_path):
    write_orbax(tmp_path / "run" / "10", weights(1))
    write_orbax(tmp_path / "run" / "20.orbax-checkpoint-tmp-123", weights(2))
    assert [saved.step for saved in scan_run(tmp_path / "run").checkpoints] == [10]


def test_orbax_without_tensorstore_says_what_to_install(tmp_path, monkeypatch):
    from trajsoup.store.formats import orbax

    folder = write_orbax(tmp_path / "10", weights(1))
    monkeypatch.setitem(__import__("sys").modules, "tensorstore", None)
    orbax._array.cache_clear()
    with pytest.raises(CheckpointError, match=r"needs tensorstore: pip install .*\[orbax\]"):
        open_checkpoint(folder)


def test_formats_of_trainers_travel_to_other_machines(tmp_path):
    for format in (write_nanotron(tmp_path / "n", weights(1)), write_orbax(tmp_path / "o", weights(1))):
        opened = open_checkpoint(format)
        assert pickle.loads(pickle.dumps(opened)).tensors == opened.tensors
