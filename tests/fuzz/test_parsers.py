"""Every parser of foreign files, on thousands of damaged ones: it reads them or refuses them in one line, and does no more.

`TRAJSOUP_FUZZ=10000` tries that many of each; a few hundred are tried by default. The same seeds give the same files.
"""

import os
import random
import shutil

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests import fp8
from tests.checkpoints import write_checkpoint
from tests.foreign_checkpoints import weights, write_nanotron, write_orbax, write_zero
from tests.wandb_log import write_wandb
from trajsoup.errors import TrajsoupError
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.event_files import read_event_files
from trajsoup.store.formats.dcp import KNOWN
from trajsoup.store.formats.lora import Lora
from trajsoup.store.pickles import unpickle
from trajsoup.store.wandb_files import read_wandb_files

TRIES = int(os.environ.get("TRAJSOUP_FUZZ", "300"))
STATE = {
    "model": {"a.weight": torch.arange(12.0).reshape(3, 4), "b": torch.ones(5).bfloat16()},
    "step": torch.tensor(1),
}


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled or put elsewhere."""
    data = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        at, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + 64)
        match chance.randrange(5):
            case 0:
                data[at:end] = bytes(chance.randrange(256) for _ in range(end - at))
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end]
            case 3 if at < len(data):
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ (1 << chance.randrange(8))))
            case _:
                del data[at + len(data) // 2 :]
        if not data:
            return b""
    return bytes(data)


def survives(read, *args) -> bool:
    """Whether it was read. A refusal has one line; anything else that is raised fails the test."""
    try:
        read(*args)
    except TrajsoupError as error:
        refusal = str(error)
    else:
        return True
    assert "\n" not in refusal
    return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    dcp.save(STATE, checkpoint_id=folder / "dcp", no_dist=True)
    torch.save(STATE, folder / "state.pt")
    writer = EventFileWriter(str(folder / "events"))
    for step in range(5):
        writer.add_event(
            Event(step=step, summary=Summary(value=[Summary.Value(tag="loss", simple_value=np.float32(step))]))
        )
    writer.close()
    return folder


def test_damaged_metadata_is_read_or_refused(whole, tmp_path):
    shutil.copytree(whole / "dcp", tmp_path / "dcp")
    raw, chance = (whole / "dcp" / ".metadata").read_bytes(), random.Random(1)
    read = 0
    for _ in range(TRIES):
        (tmp_path / "dcp" / ".metadata").write_bytes(b"\x80" + damaged(raw[1:], chance))
        read += survives(open_checkpoint, tmp_path / "dcp")
    assert read < TRIES


def test_damaged_chunks_are_read_or_refused(whole, tmp_path):
    shutil.copytree(whole / "dcp", tmp_path / "dcp")
    (chunk,) = (tmp_path / "dcp").glob("*.distcp")
    raw, chance = chunk.read_bytes(), random.Random(2)
    for _ in range(TRIES):
        chunk.write_bytes(damaged(raw, chance))
        survives(open_checkpoint, tmp_path / "dcp")


def test_damaged_files_of_torch_are_read_or_refused(whole, tmp_path):
    raw, chance = (whole / "state.pt").read_bytes(), random.Random(3)
    for _ in range(TRIES):
        (tmp_path / "x.pt").write_bytes(damaged(raw, chance))
        survives(open_checkpoint, tmp_path / "x.pt")


def test_damaged_pickles_are_read_or_refused(whole):
    raw, chance = (whole / "dcp" / ".metadata").read_bytes(), random.Random(4)
    for _ in range(TRIES):
        survives(lambda data: unpickle(data, known=KNOWN, where="x"), damaged(raw, chance))


def test_damaged_event_files_are_read_or_refused(whole, tmp_path):
    (path,) = (whole / "events").iterdir()
    raw, chance = path.read_bytes(), random.Random(5)
    for _ in range(TRIES):
        (tmp_path / "events.out.tfevents.1").write_bytes(damaged(raw, chance))
        survives(read_event_files, [tmp_path / "events.out.tfevents.1"])


def try_all(file, read, *args, seed, tries=TRIES):
    """Damage one file of a checkpoint again and again."""
    raw, chance = file.read_bytes(), random.Random(seed)
    for _ in range(tries):
        file.write_bytes(damaged(raw, chance))
        survives(read, *args)
    file.write_bytes(raw)


@pytest.mark.parametrize("stage", [2, 3])
def test_damaged_zero_states_are_read_or_refused(tmp_path, stage):
    folder = write_zero(tmp_path / "global_step1", weights(1), stage=stage)
    for number, file in enumerate(sorted(folder.glob("*rank_0*"))):
        try_all(file, open_checkpoint, folder, seed=10 * stage + number, tries=TRIES // 2)


def test_damaged_shards_of_nanotron_are_read_or_refused(tmp_path):
    folder = write_nanotron(tmp_path / "10", weights(1))
    (file,) = (folder / "model" / "embed").glob("*tp-rank-1-*")
    try_all(file, open_checkpoint, folder, seed=6)
    try_all(folder / "checkpoint_metadata.json", open_checkpoint, folder, seed=7)


def test_damaged_trees_of_orbax_are_read_or_refused(tmp_path):
    folder = write_orbax(tmp_path / "10", weights(1))
    try_all(folder / "_METADATA", open_checkpoint, folder, seed=8)
    try_all(folder / "manifest.ocdbt", open_checkpoint, folder, seed=9, tries=TRIES // 10)
    plain = write_orbax(tmp_path / "20", weights(1), ocdbt=False)
    try_all(plain / "params.embed.weight" / ".zarray", open_checkpoint, plain, seed=12, tries=TRIES // 3)


def test_damaged_block_scales_are_read_or_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "m", fp8.weights(1), config=fp8.CONFIG)
    try_all(folder / "config.json", open_checkpoint, folder, seed=13)
    file = folder / "model.safetensors"
    raw, chance = file.read_bytes(), random.Random(14)
    header = 8 + int.from_bytes(raw[:8], "little")
    for _ in range(TRIES // 3):
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
