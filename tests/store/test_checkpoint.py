import json
import shutil

import numpy as np
import pytest
import torch

from tests.checkpoints import bf16, write_checkpoint, write_raw
from trajsoup.errors import CheckpointError, MismatchError
from trajsoup.store.checkpoint import INDEX, is_checkpoint, missing_code, open_checkpoint, require_same

WEIGHTS = {"a": bf16([1, 2]), "b": bf16([[3, 4]]), "c": np.float32(5), "ids": np.arange(4)}


def rewrite_index(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def test_a_folder_a_sharded_folder_and_a_file_hold_the_same_tensors(tmp_path):
    single = open_checkpoint(write_checkpoint(tmp_path / "single", WEIGHTS))
    sharded = open_checkpoint(write_checkpoint(tmp_path / "sharded", WEIGHTS, shards=3))
    file = open_checkpoint(tmp_path / "single" / "model.safetensors")
    for checkpoint in (single, sharded, file):
        assert {n: (t.dtype, t.shape) for n, t in checkpoint.tensors.items()} == {
            "a": ("BF16", (2,)),
            "b": ("BF16", (1, 2)),
            "c": ("F32", ()),
            "ids": ("I64", (4,)),
        }
    assert len(sharded.files) == 3
    assert single.nbytes == (tmp_path / "single" / "model.safetensors").stat().st_size


def test_shards_without_an_index_are_taken_together(tmp_path):
    folder = write_checkpoint(tmp_path, WEIGHTS, shards=2)
    (folder / INDEX).unlink()
    assert set(open_checkpoint(folder).tensors) == set(WEIGHTS)


def test_several_files_that_are_no_shards_are_ambiguous(tmp_path):
    write_checkpoint(tmp_path, WEIGHTS)
    (tmp_path / "model.safetensors").rename(tmp_path / "x.safetensors")
    shutil.copy(tmp_path / "x.safetensors", tmp_path / "y.safetensors")
    with pytest.raises(CheckpointError, match=r"holds 2 safetensors files and no model.safetensors.index.json"):
        open_checkpoint(tmp_path)


def test_an_index_that_names_a_missing_shard_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path, WEIGHTS, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names 'model-00002-of-00002.safetensors', which is missing: copy"):
        open_checkpoint(folder)


@pytest.mark.parametrize("evil", ["../x.safetensors", "sub/x.safetensors", "ABSOLUTE"])
def test_an_index_that_leads_out_of_its_folder_is_refused_though_the_file_is_there(tmp_path, evil):
    folder = write_checkpoint(tmp_path / "ckpt", WEIGHTS, shards=2)
    (folder / "sub").mkdir()
    for place in (tmp_path / "x.safetensors", folder / "sub" / "x.safetensors"):
        shutil.move(folder / "model-00001-of-00002.safetensors", place)
        shutil.copy(place, folder / "model-00001-of-00002.safetensors")
    evil = str(tmp_path / "x.safetensors") if evil == "ABSOLUTE" else evil
    rewrite_index(folder, lambda index: index["weight_map"].update(a=evil))
    with pytest.raises(CheckpointError, match="which is outside its folder"):
        open_checkpoint(folder)


@pytest.mark.parametrize("evil", ["..", ".", "", "a\0b"])
def test_an_index_that_names_no_file_at_all_is_refused(tmp_path, evil):
    folder = write_checkpoint(tmp_path, WEIGHTS, shards=2)
    rewrite_index(folder, lambda index: index["weight_map"].update(a=evil))
    with pytest.raises(CheckpointError, match=r"which is missing|outside its folder"):
        open_checkpoint(folder)


def test_a_stale_index_names_the_tensor_and_both_places(tmp_path):
    folder = write_checkpoint(tmp_path / "wrong", WEIGHTS, shards=2)
    rewrite_index(folder, lambda index: index["weight_map"].update(a="model-00002-of-00002.safetensors"))
    with pytest.raises(CheckpointError, match=r"'a' into 'model-00002-.*but it is in 'model-00001-.*stale"):
        open_checkpoint(folder)
    folder = write_checkpoint(tmp_path / "more", WEIGHTS, shards=2)
    rewrite_index(folder, lambda index: index["weight_map"].update(ghost="model-00001-of-00002.safetensors"))
    with pytest.raises(CheckpointError, match=r"names tensor 'ghost', which no file holds"):
        open_checkpoint(folder)
    folder = write_checkpoint(tmp_path / "fewer", WEIGHTS, shards=2)
    rewrite_index(folder, lambda index: index["weight_map"].pop("a"))
    with pytest.raises(CheckpointError, match=r"puts tensor 'a' into None"):
        open_checkpoint(folder)


def test_an_index_beside_a_single_file_it_does_not_name_is_refused(tmp_path):
    """transformers would load model.safetensors; the index says otherwise; only the user can know which is stale."""
    folder = write_checkpoint(tmp_path, WEIGHTS, shards=2)
    write_checkpoint(tmp_path, WEIGHTS)
    with pytest.raises(CheckpointError, match=r"holds both model.safetensors and model.safetensors.index.json"):
        open_checkpoint(folder)
    assert set(open_checkpoint(folder / "model.safetensors").tensors) == set(WEIGHTS)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[" * 10**5]
)
def test_an_index_that_is_no_index_is_refused(tmp_path, content):
    folder = write_checkpoint(tmp_path, WEIGHTS, shards=2)
    (folder / INDEX).write_text(content)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        open_checkpoint(folder)


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path, {"a": bf16([1]), "b": bf16([2])}, shards=2)
    (folder / INDEX).unlink()
    shutil.copy(folder / "model-00001-of-00002.safetensors", folder / "model-00003-of-00002.safetensors")
    with pytest.raises(CheckpointError, match=r"'a' is in both model-00001-.* and model-00003-.*remove the stale file"):
        open_checkpoint(folder)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "complex64"])
def test_a_dtype_that_cannot_be_averaged_is_refused_with_the_way_out(tmp_path, dtype):
    folder = write_checkpoint(tmp_path, {"w": bf16([1]), "q": torch.ones(2).to(getattr(torch, dtype))})
    with pytest.raises(CheckpointError, match=r"tensor 'q' is (F8|C64).*cannot be averaged: convert .* to bf16 first"):
        open_checkpoint(folder)


def test_a_quantised_model_is_refused_with_the_way_out(tmp_path):
    config = {"quantization_config": {"quant_method": "gptq"}}
    folder = write_checkpoint(tmp_path, {"w": np.ones(2, np.int32)}, config=config)
    with pytest.raises(CheckpointError, match=r"is quantised \(gptq\).*Dequantise it to bf16 first"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    "name",
    [
        "pytorch_model.bin",
        "weights.pt",
        "model.ckpt",
        "__0_0.distcp",
        "model.gguf",
        "tf_model.h5",
        "flax_model.msgpack",
    ],
)
def test_a_folder_of_pickles_is_not_opened(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x04cposix\nsystem\n")
    with pytest.raises(
        CheckpointError, match=rf"holds no checkpoint: {name} is a part of no checkpoint that is read here"
    ):
        open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=rf"{name} is a part of no checkpoint that is read here"):
        open_checkpoint(tmp_path / name)
    assert not is_checkpoint(tmp_path)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no checkpoint at .*nowhere: check the path"):
        open_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"holds no checkpoint: check the path"):
        open_checkpoint(tmp_path)


def test_a_file_without_tensors_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="holds no tensor"):
        open_checkpoint(write_raw(tmp_path / "x.safetensors", {"__metadata__": {"format": "pt"}}))


CONFIG = {"hidden_size": 8, "rope_theta": 1e4}
BASE = {"a": bf16([1, 2]), "b": np.ones((2, 3), np.float32)}


@pytest.mark.parametrize(
    ("tensors", "config", "files", "message"),
    [
        ({"a": BASE["a"]}, CONFIG, {}, "tensor 'b' is in the first only"),
        ({**BASE, "c": bf16([1])}, CONFIG, {}, "tensor 'c' is in the second only"),
        ({**BASE, "": bf16([1])}, CONFIG, {}, "tensor '' is in the second only"),
        ({**BASE, "b": np.ones((3, 2), np.float32)}, CONFIG, {}, r"tensor 'b' has shape \[2, 3\] and \[3, 2\]"),
        ({**BASE, "a": np.ones(2, np.float16)}, CONFIG, {}, "tensor 'a' has dtype BF16 and F16"),
        (BASE, {**CONFIG, "rope_theta": 5e5}, {}, "config.json has rope_theta = 10000.0 and 500000.0"),
        (BASE, {**CONFIG, "tie": None}, {}, "config.json has tie in the second only"),
        (BASE, {"hidden_size": 8}, {}, "config.json has rope_theta in the first only"),
        (BASE, CONFIG, {"tokenizer.json": "{ }"}, "tokenizer.json differs"),
        (BASE, CONFIG, {"merges.txt": "a b"}, "merges.txt differs"),
    ],
)
def test_the_first_difference_is_named(tmp_path, tensors, config, files, message):
    tokenizer = {"tokenizer.json": "{}", "merges.txt": ""}
    first = open_checkpoint(write_checkpoint(tmp_path / "one", BASE, config=CONFIG, files=tokenizer))
    other = open_checkpoint(write_checkpoint(tmp_path / "two", tensors, config=config, files={**tokenizer, **files}))
    with pytest.raises(MismatchError, match=message) as error:
        require_same(first, other)
    assert f"{first.path} and {other.path} cannot be averaged" in str(error.value)


def test_shard_layout_and_fields_that_do_not_shape_the_model_may_differ(tmp_path):
    first = open_checkpoint(write_checkpoint(tmp_path / "one", BASE, config={**CONFIG, "transformers_version": "4.1"}))
    other = open_checkpoint(
        write_checkpoint(tmp_path / "two", BASE, shards=2, config={"use_cache": False, **CONFIG, "torch_dtype": "x"})
    )
    require_same(first, other)
    require_same(other, first)


def test_a_broken_config_is_an_error_of_its_own(tmp_path):
    folder = write_checkpoint(tmp_path, BASE, files={"config.json": "{'single': quotes}"})
    with pytest.raises(CheckpointError, match=r"config.json is damaged"):
        open_checkpoint(folder)


KEPT = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja", "modeling_mine.py", "LICENSE", "sub/template.txt",
    "additional_chat_templates/tool.jinja",
}  # fmt: skip
DROPPED = {
    "optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "pytorch_model.bin.index.json",
    "trainer_state.json", "soup.json", "README.md", "metrics.csv", "model.gguf", "global_step10/x_optim_states.json",
    "checkpoint-5/config.json", "runs/events.json", ".cache/x.json", "copy/config.json",
}  # fmt: skip


@pytest.mark.parametrize("shards", [1, 2])
def test_side_files_travel_and_training_state_stays(tmp_path, shards):
    folder = write_checkpoint(tmp_path, BASE, shards=shards, files=dict.fromkeys(KEPT | DROPPED, "{}"))
    write_checkpoint(tmp_path / "copy", BASE)  # a checkpoint inside a checkpoint is another checkpoint
    assert {path.as_posix() for path in open_checkpoint(folder).side_files()} == KEPT


CODE = {"auto_map": {"AutoModelForCausalLM": "modeling_x.X", "AutoConfig": "owner/repository--elsewhere.C"}}


def test_code_that_loads_the_model_must_agree_where_both_have_it(tmp_path):
    config = {**CONFIG, **CODE}
    one = write_checkpoint(tmp_path / "one", BASE, config=config, files={"modeling_x.py": "x = 1\n", "mine.py": ""})
    two = write_checkpoint(tmp_path / "two", BASE, config=config, files={"modeling_x.py": "x = 1\n"})
    require_same(open_checkpoint(one), open_checkpoint(two))
    (two / "modeling_x.py").write_text("x = 2\n")
    with pytest.raises(MismatchError, match=r"modeling_x.py differs. One soup runs one code"):
        require_same(open_checkpoint(one), open_checkpoint(two))


def test_code_of_a_custom_tokenizer_must_agree_too(tmp_path):
    for name in ("one", "two"):
        files = {
            "tokenization_x.py": f"name = {name!r}\n",
            "tokenizer_config.json": '{"auto_map": {"AutoTokenizer": []}}',
        }
        write_checkpoint(tmp_path / name, BASE, config=CONFIG, files=files)
    with pytest.raises(MismatchError, match=r"tokenization_x.py differs"):
        require_same(open_checkpoint(tmp_path / "one"), open_checkpoint(tmp_path / "two"))


def test_scripts_that_no_loader_runs_may_differ(tmp_path):
    for name in ("one", "two"):
        write_checkpoint(tmp_path / name, BASE, config=CONFIG, files={"train.py": f"name = {name!r}\n"})
    require_same(open_checkpoint(tmp_path / "one"), open_checkpoint(tmp_path / "two"))


def test_code_that_the_config_names_and_the_folder_lacks_is_found(tmp_path):
    folder = write_checkpoint(tmp_path / "one", BASE, config={**CONFIG, **CODE})
    assert missing_code(open_checkpoint(folder)) == ("modeling_x.py",)
    (folder / "modeling_x.py").write_text("")
    assert missing_code(open_checkpoint(folder)) == ()
