"""Parsers of foreign files on thousands of damaged ones (damage.py): read, or refused in one line, and no more is done."""

import json
import shutil

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests import fp8
from tests.checkpoints import write_checkpoint
from tests.foreign_checkpoints import weights, write_nanotron, write_orbax, write_zero
from tests.fuzz.damage import cases, damaged, lying, survives
from tests.training_checkpoints import write_shards, write_training_checkpoints
from tests.wandb_log import write_wandb
from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import MemorySink
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.event_files import read_event_files
from trajsoup.store.formats.dcp import KNOWN
from trajsoup.store.formats.lora import Lora
from trajsoup.store.pickles import Record, pickled, unpickle
from trajsoup.store.wandb_files import read_wandb_files

STATE = {
    "model": {"a.weight": torch.arange(12.0).reshape(3, 4), "b": torch.ones(5).bfloat16()},
    "step": torch.tensor(1),
}


def write_plain_shards(folder, tensors):
    names = [f"model-0000{i + 1}-of-00002.safetensors" for i in range(2)]
    for i, (name, tensor) in enumerate(tensors.items()):
        save_file({name: tensor}, folder / names[i])
    weight_map = dict(zip(tensors, names, strict=True))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    dcp.save(STATE, checkpoint_id=folder / "dcp", no_dist=True)
    torch.save(STATE, folder / "state.pt")
    save_file(STATE["model"], folder / "plain.safetensors")
    for name, write in (
        ("model.safetensors.index.json", write_plain_shards),
        ("pytorch_model.bin.index.json", write_shards),
    ):
        (folder / name).mkdir()
        write(folder / name, STATE["model"])
    write_training_checkpoints(folder / "kinds", {1: {"a": torch.arange(12.0).reshape(4, 3), "b": torch.ones(6)}})
    writer = EventFileWriter(str(folder / "events"))
    for step in range(5):
        writer.add_event(
            Event(step=step, summary=Summary(value=[Summary.Value(tag="loss", simple_value=np.float32(step))]))
        )
    writer.close()
    return folder


def read_all(path):
    """Open a checkpoint and read every number of it, as a merge does."""
    checkpoint = open_checkpoint(path)
    layout = make_layout(checkpoint)
    sink = MemorySink(layout)
    blend({"a": checkpoint}, [Row(name="x", weights={"a": 1.0})], [sink], layout=layout, digest=None)


def leaves(value):
    """The parts of a nest of dicts, sequences and records, and how it is made of others."""
    if isinstance(value, dict):
        keys = list(value)
        return [*keys, *value.values()], lambda parts: dict(zip(parts[: len(keys)], parts[len(keys) :], strict=True))
    if isinstance(value, list | tuple):
        return list(value), type(value)
    if isinstance(value, Record):
        return [value.args, value.state], lambda parts: Record(value.kind, *parts)
    return None


def test_damaged_metadata_is_read_or_refused(whole, tmp_path):
    shutil.copytree(whole / "dcp", tmp_path / "dcp")
    raw = (whole / "dcp" / ".metadata").read_bytes()
    read = []
    for chance in cases(1):
        (tmp_path / "dcp" / ".metadata").write_bytes(b"\x80" + damaged(raw[1:], chance))
        read.append(survives(open_checkpoint, tmp_path / "dcp"))
    assert not all(read)


def test_metadata_that_lies_is_read_or_refused(whole, tmp_path):
    shutil.copytree(whole / "dcp", tmp_path / "dcp")
    tree = unpickle((whole / "dcp" / ".metadata").read_bytes(), known=KNOWN, where="x")
    read = []
    for chance in cases(31):
        (tmp_path / "dcp" / ".metadata").write_bytes(pickled(lying(tree, chance, leaves=leaves)))
        read.append(survives(read_all, tmp_path / "dcp"))
    assert any(read)
    assert not all(read)


def test_damaged_chunks_are_read_or_refused(whole, tmp_path):
    shutil.copytree(whole / "dcp", tmp_path / "dcp")
    (chunk,) = (tmp_path / "dcp").glob("*.distcp")
    raw = chunk.read_bytes()
    for chance in cases(2):
        chunk.write_bytes(damaged(raw, chance))
        survives(open_checkpoint, tmp_path / "dcp")


def test_damaged_files_of_torch_are_read_or_refused(whole, tmp_path):
    raw = (whole / "state.pt").read_bytes()
    for chance in cases(3):
        (tmp_path / "x.pt").write_bytes(damaged(raw, chance))
        survives(open_checkpoint, tmp_path / "x.pt")


def test_damaged_pickles_are_read_or_refused(whole):
    raw = (whole / "dcp" / ".metadata").read_bytes()
    for chance in cases(4):
        survives(lambda data: unpickle(data, known=KNOWN, where="x"), damaged(raw, chance))


def test_damaged_event_files_are_read_or_refused(whole, tmp_path):
    (path,) = (whole / "events").iterdir()
    raw = path.read_bytes()
    for chance in cases(5):
        (tmp_path / "events.out.tfevents.1").write_bytes(damaged(raw, chance))
        survives(read_event_files, [tmp_path / "events.out.tfevents.1"])


def try_all(file, read, *args, seed, share=1.0):
    """Damage one file of a checkpoint again and again."""
    raw = file.read_bytes()
    for chance in cases(seed, share=share):
        file.write_bytes(damaged(raw, chance))
        survives(read, *args)
    file.write_bytes(raw)


@pytest.mark.parametrize("stage", [2, 3])
def test_damaged_zero_states_are_read_or_refused(tmp_path, stage):
    folder = write_zero(tmp_path / "global_step1", weights(1), stage=stage)
    for number, file in enumerate(sorted(folder.glob("*rank_0*"))):
        try_all(file, open_checkpoint, folder, seed=10 * stage + number, share=1 / 2)


def test_damaged_shards_of_nanotron_are_read_or_refused(tmp_path):
    folder = write_nanotron(tmp_path / "10", weights(1))
    (file,) = (folder / "model" / "embed").glob("*tp-rank-1-*")
    try_all(file, open_checkpoint, folder, seed=6)
    try_all(folder / "checkpoint_metadata.json", open_checkpoint, folder, seed=7)


def test_damaged_trees_of_orbax_are_read_or_refused(tmp_path):
    folder = write_orbax(tmp_path / "10", weights(1))
    try_all(folder / "_METADATA", open_checkpoint, folder, seed=8)
    try_all(folder / "manifest.ocdbt", open_checkpoint, folder, seed=9, share=1 / 10)
    plain = write_orbax(tmp_path / "20", weights(1), ocdbt=False)
    try_all(plain / "params.embed.weight" / ".zarray", open_checkpoint, plain, seed=12, share=1 / 3)


def test_damaged_block_scales_are_read_or_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "m", fp8.weights(1), config=fp8.CONFIG)
    try_all(folder / "config.json", open_checkpoint, folder, seed=13)
    file = folder / "model.safetensors"
    raw = file.read_bytes()
    header = 8 + int.from_bytes(raw[:8], "little")
    for chance in cases(14, share=1 / 3):
        file.write_bytes(damaged(raw[:header], chance) + raw[header:])
        survives(open_checkpoint, folder)


def test_damaged_adapters_are_read_or_refused(tmp_path):
    (tmp_path / "adapter").mkdir()
    base = write_checkpoint(tmp_path / "base", {"m.weight": torch.ones(6, 4)})
    factors = {
        "base_model.model.m.lora_A.weight": torch.ones(2, 4),
        "base_model.model.m.lora_B.weight": torch.ones(6, 2),
    }
    file = write_checkpoint(tmp_path / "x", factors) / "model.safetensors"
    file.rename(tmp_path / "adapter" / "adapter_model.safetensors")
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "alpha_pattern": {"m": 3}, "use_rslora": false}')

    def read():
        open_checkpoint(tmp_path / "adapter", format=Lora(str(base)))

    try_all(config, read, seed=15)
    try_all(tmp_path / "adapter" / "adapter_model.safetensors", read, seed=16)


def test_damaged_logs_of_wandb_are_read_or_refused(tmp_path):
    path = write_wandb(tmp_path / "run-1.wandb", [(1, {"loss": 1.0}), (2, {"loss": 0.5, "text": "x" * 70_000})])
    try_all(path, read_wandb_files, [path], seed=17)


@pytest.mark.parametrize("kind", ["plain", "hf"])
def test_headers_of_safetensors_that_are_damaged_or_lie_are_read_or_refused(whole, tmp_path, kind):
    """`hf` is a shard of DCP's, whose header says where in the tensors its pieces lie."""
    source = (
        whole / "plain.safetensors" if kind == "plain" else next((whole / "kinds" / "hf" / "step-1").glob("shard*"))
    )
    shutil.copytree(source.parent, tmp_path / "x") if kind == "hf" else (tmp_path / "x").mkdir()
    raw, path = source.read_bytes(), tmp_path / "x" / ("model.safetensors" if kind == "plain" else source.name)
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    read = []
    for chance in cases(32 if kind == "plain" else 33):
        if chance.random() < 0.5:
            path.write_bytes(damaged(raw[: 8 + size], chance) + raw[8 + size :])
        else:
            text = json.dumps(lying(header, chance, leaves=leaves)).encode()
            path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])
        read.append(survives(read_all, tmp_path / "x"))
    assert not all(read)


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_damaged_indexes_are_read_or_refused(whole, tmp_path, name):
    shutil.copytree(whole / name, tmp_path / "x")
    raw = (tmp_path / "x" / name).read_bytes()
    for chance in cases(34):
        (tmp_path / "x" / name).write_bytes(damaged(raw, chance))
        survives(open_checkpoint, tmp_path / "x")
