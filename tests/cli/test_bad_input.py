"""Every bad input: one clear message, exit code 1, no output, nothing left beside it, inputs as they were."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.checkpoints import write_checkpoint, write_raw
from tests.command import refused, succeeds, trajsoup
from tests.runs import CONFIG, equal, fingerprint, load, mean, weights, write_run
from trajsoup.store.publish import MARK

INDEX = "model.safetensors.index.json"


@pytest.fixture
def pair(tmp_path):
    """Two good checkpoints of two shards each."""
    for seed, name in ((1, "a"), (2, "b")):
        files = {"tokenizer.json": "{}"}
        write_checkpoint(tmp_path / "in" / name, weights(seed), shards=2, config=CONFIG, files=files)
    return tmp_path / "in"


def refuses(inputs: Path, *args) -> str:
    """Merge into a folder of its own; check that the refusal left nothing and touched nothing."""
    before = fingerprint(inputs)
    place = inputs.parent / "place"
    place.mkdir()
    message = refused("merge", *args, "-o", place / "soup")
    assert os.listdir(place) == []
    assert fingerprint(inputs) == before
    return message


def halves(inputs: Path) -> tuple[str, str]:
    return f"{inputs / 'a'}=0.5", f"{inputs / 'b'}=0.5"


def shard(folder: Path, number: int = 1) -> Path:
    return folder / f"model-{number:05d}-of-00002.safetensors"


def truncate(b):
    os.truncate(shard(b), shard(b).stat().st_size - 1)


def empty(b):
    shard(b).write_bytes(b"")


def scramble(b):
    data = bytearray(shard(b).read_bytes())
    data[8:20] = b"not a header"
    shard(b).write_bytes(data)


def header_bomb(b):
    write_raw(shard(b), {}, length=2**62)


def overlap(b):
    entry = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    write_raw(shard(b), {"x": entry, "y": {**entry, "data_offsets": [2, 6]}}, b"123456")


def out_of_range(b):
    write_raw(shard(b), {"x": {"dtype": "U8", "shape": [99], "data_offsets": [0, 99]}}, b"1234")


def duplicate_key(b):
    entry = '{"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}'
    write_raw(shard(b), f'{{"x": {entry}, "x": {entry}}}'.encode(), b"1")


def missing_shard(b):
    shard(b, 2).unlink()


def shard_outside(b):
    index = json.loads((b / INDEX).read_text())
    index["weight_map"] = {name: f"../a/{file}" for name, file in index["weight_map"].items()}
    (b / INDEX).write_text(json.dumps(index))


def stale_index(b):
    index = json.loads((b / INDEX).read_text())
    index["weight_map"]["gone.weight"] = shard(b).name
    (b / INDEX).write_text(json.dumps(index))


def rewritten(**changes):
    def damage(b):
        tensors = {**weights(2), **changes}
        shutil.rmtree(b)
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        write_checkpoint(b, kept, shards=2, config=CONFIG, files={"tokenizer.json": "{}"})

    return damage


def other_config(b):
    (b / "config.json").write_text(json.dumps({**CONFIG, "rope_theta": 5e5}))


def quantised(b):
    (b / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": {"quant_method": "gptq"}}))


def broken_config(b):
    (b / "config.json").write_text("{")


def other_tokenizer(b):
    (b / "tokenizer.json").write_text('{"vocab": 1}')


def not_finite(value):
    def damage(b):
        tensor = weights(2)["layers.0.weight"]
        tensor[17, 3] = value
        rewritten(**{"layers.0.weight": tensor})(b)

    return damage


def pickled(b):
    shutil.rmtree(b)
    b.mkdir()
    (b / "pytorch_model.bin").write_bytes(b"\x80\x04.")


FP8 = weights(2)["norm.weight"].to(torch.float8_e4m3fn)

DAMAGE = {
    "truncated": (truncate, r"model-00001-of-00002.safetensors is damaged: its tensors end at byte"),
    "empty": (empty, r"is damaged: it has 0 bytes, too few for a safetensors file"),
    "corrupt": (scramble, r"is damaged: its header is not valid JSON"),
    "header bomb": (header_bomb, r"is damaged: its header claims 4,611,686,018,427,387,904 bytes"),
    "overlap": (overlap, r"is damaged: tensor 'y' starts at byte"),
    "out of range": (out_of_range, r"is damaged: its tensors end at byte"),
    "duplicate key": (duplicate_key, r"is damaged: .*duplicate key 'x'"),
    "missing shard": (missing_shard, r"index.json names 'model-00002-of-00002.safetensors', which is missing"),
    "shard outside": (shard_outside, r"which is outside its folder: it must not be trusted"),
    "stale index": (stale_index, r"names tensor 'gone.weight', which no file holds: it is stale"),
    "missing tensor": (rewritten(**{"norm.weight": None}), r"tensor 'norm.weight' is in the first only"),
    "extra tensor": (rewritten(extra=torch.ones(2)), r"tensor 'extra' is in the second only"),
    "shape": (rewritten(**{"norm.weight": torch.ones(9)}), r"tensor 'norm.weight' has shape \[8\] and \[9\]"),
    "dtype": (rewritten(**{"norm.weight": torch.ones(8)}), r"tensor 'norm.weight' has dtype BF16 and F32"),
    "config": (other_config, r"config.json has rope_theta in the second only"),
    "config json": (broken_config, r"config.json is damaged"),
    "tokenizer": (other_tokenizer, r"tokenizer.json differs"),
    "nan": (not_finite(float("nan")), r"/b/model-\d+-of-00002.safetensors: tensor 'layers.0.weight' holds NaN or Inf"),
    "inf": (not_finite(float("-inf")), r"/b/model-\d+-of-00002.safetensors: tensor 'layers.0.weight' holds NaN or Inf"),
    "integers": (
        rewritten(**{"layers.0.position_ids": torch.arange(5) + 1}),
        r"the I64 tensor 'layers.0.position_ids' differs between .* pass --exact-from",
    ),
    "fp8": (rewritten(**{"norm.weight": FP8}), r"tensor 'norm.weight' is F8_E4M3, which cannot be averaged: convert"),
    "quantised": (quantised, r"is quantised \(gptq\): .*Dequantise it to bf16 first"),
    "lora": (
        rewritten(**{"layers.0.q.lora_A.weight": torch.ones(2)}),
        r"is a LoRA adapter \(layers.0.q.lora_A.weight\).*merge --lora merge --fork-point BASE",
    ),
    "pickle": (pickled, r"pytorch_model.bin is a part of no checkpoint that is read here .*save them as safetensors"),
    "missing": (shutil.rmtree, r"there is no checkpoint at .*/b: check the path"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_or_different_ingredient_is_named(pair, damage, message):
    damage(pair / "b")
    assert re.search(message, refuses(pair, *halves(pair)))


@pytest.mark.parametrize("name", ["truncated", "missing shard", "dtype", "nan"])
def test_the_same_holds_for_runs(tmp_path, name):
    for seed, run in ((1, "EXP1"), (2, "EXP2")):
        write_run(tmp_path / "in" / run, val_losses=[2.2, 2.1], seed=seed, shards=2)
    damage, _ = DAMAGE[name]
    damage(tmp_path / "in" / "EXP2" / "checkpoint-20")
    message = refuses(tmp_path / "in", tmp_path / "in" / "EXP1", tmp_path / "in" / "EXP2", "--k", 1)
    assert "checkpoint-20" in message


def test_one_checkpoint_twice_is_refused_under_any_name(pair):
    (pair / "alias").symlink_to(pair / "a")
    again = pair / "b" / ".." / "a"
    for other in (pair / "a", pair / "alias", again):
        message = refused("merge", f"{pair / 'a'}=0.5", f"{other}=0.5", "-o", pair.parent / "soup")
        assert "is given twice: name each ingredient once" in message
    shutil.copytree(pair / "a", pair / "copy")
    message = refuses(pair, f"{pair / 'a'}=0.5", f"{pair / 'copy'}=0.5")
    assert f"{pair / 'a'} and {pair / 'copy'} are the same checkpoint: leave one of them out" in message
    assert not (pair.parent / "soup").exists()


def test_a_copy_is_found_among_checkpoints_that_agree_in_every_sample(tmp_path):
    for name, value in (("a", 1.0), ("b", 2.0), ("c", 2.0)):
        frozen = torch.zeros(60_000, dtype=torch.float32)
        frozen[30_000] = value  # between two samples
        write_checkpoint(tmp_path / "in" / name, {"w": frozen})
    inputs = [f"{tmp_path / 'in' / name}=0.25" for name in "abc"]
    message = refuses(tmp_path / "in", *inputs, "--normalize")
    assert f"{tmp_path / 'in' / 'b'} and {tmp_path / 'in' / 'c'} are the same checkpoint" in message


def test_a_checkpoint_saved_twice_under_neighbouring_steps_is_refused(tmp_path):
    run = write_run(tmp_path / "in" / "EXP1", val_losses=[2.2, 2.1])
    shutil.copytree(run / "checkpoint-20", run / "checkpoint-21")
    assert "are the same checkpoint" in refuses(tmp_path / "in", run, "--select", "all")


def test_a_k_larger_than_a_pool_names_the_branch_and_the_remedy(runs, tmp_path):
    message = refused("merge", runs / "EXP1", runs / "EXP2", "--k", 5, "-o", tmp_path / "soup")
    assert "branch 'EXP1' has 4 usable checkpoints, but 5 are wanted: lower K" in message
    message = refused("merge", runs / "EXP1", "--k", 2, "--horizon", "10k", "-o", tmp_path / "soup")
    assert "branch 'EXP1' has 1 usable checkpoints" in message
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("k", ["0", "-1", "two", "1.5"])
def test_a_k_that_is_no_number_of_checkpoints_is_wrong_usage(k, runs, tmp_path):
    done = trajsoup("merge", runs / "EXP1", "--k", k, "-o", tmp_path / "soup")
    assert done.code == 2
    assert f"'{k}' is not a whole number of 1 or more, nor auto" in done.err


def test_no_ingredient_left_after_the_screen_says_so(runs, tmp_path):
    args = (runs / "EXP1", runs / "EXP3", "--baseline", "EXP1", "--tolerance", -0.5, "--k", 1)
    message = refused("merge", *args, "-o", tmp_path / "soup")
    assert (
        message
        == "no branch passed the screen: raise --tolerance, choose another --baseline, --force a branch, or --no-screen"
    )
    assert os.listdir(tmp_path) == []


def test_an_unknown_baseline_or_branch_is_answered_with_the_known_ones(runs, tmp_path):
    pair = (runs / "EXP1", runs / "EXP2")
    out = ("-o", tmp_path / "soup")
    assert "'EXP9' is none of the branches EXP1, EXP2" in refused("merge", *pair, "--k", 1, "--baseline", "EXP9", *out)
    single = ("--method", "single-merge", "--k", 1, "--branch", "EXP9")
    assert "no admitted branch 'EXP9': choose from EXP1, EXP2" in refused("merge", *pair, *single, *out)
    assert "--branch names the one branch of a method that merges one" in refused(
        "merge", *pair, "--k", 1, "--branch", "EXP1", *out
    )


def test_missing_scores_are_answered_with_the_remedy(tmp_path):
    runs = [write_run(tmp_path / name, val_losses=[2.2, 2.1], seed=seed) for seed, name in ((1, "a"), (2, "b"))]
    for run in runs:
        (run / "metrics.csv").write_text("step,train_loss\n10,2.5\n20,2.4\n")
    message = refused("merge", *runs, "--k", 1, "--select", "top-k", "-o", tmp_path / "soup")
    assert "4 of 4 checkpoints have no validation loss (a@10, a@20, b@10, ...): supply it in a metrics.csv" in message
    assert "--validation FILE" in message
    assert "have no accuracy" in refused("merge", *runs, "--k", 1, "--rank-by", "accuracy", "-o", tmp_path / "soup")
    (runs[0] / "metrics.csv").write_text("step,train_loss,val_loss\n10,2.5,2.6\n20,2.4,2.5\n")
    message = refused("merge", *runs, "--k", 1, "-o", tmp_path / "soup")
    assert "2 of 4 checkpoints have no validation loss (b@10, b@20)" in message  # those that have one are not ignored
    (runs[0] / "metrics.csv").write_text("step,val_loss\n10,2.5\n20,2.4\n")
    message = refused("merge", *runs, "--k", 1, "-o", tmp_path / "soup")
    assert "branch 'a' has no training loss" in message
    assert "pass --no-screen" in message


def test_pooled_selections_take_no_coefficients(runs, tmp_path):
    args = ("merge", runs / "EXP1", "--select", "all", "--weights", "rank", "-o", tmp_path / "soup")
    assert "coefficients 'rank' weigh ranks inside a branch" in refused(*args)


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_existing_output_is_never_touched(pair, tmp_path, kind):
    out = tmp_path / "soup"
    match kind:
        case "folder":
            out.mkdir()
            (out / "precious").write_text("1")
        case "file":
            out.write_text("precious")
        case _:
            out.symlink_to(tmp_path / "nowhere")
    before = fingerprint(tmp_path)
    message = refused("merge", *halves(pair), "-o", out)
    assert "soup exists, and existing output is never replaced" in message
    assert fingerprint(tmp_path) == before
    assert out.is_symlink() == (kind == "link")


def test_an_output_inside_or_around_an_input_is_refused(pair):
    before = fingerprint(pair)
    (pair.parent / "link").symlink_to(pair / "a")
    for out in (pair / "a" / "soup", pair / "a" / "deep" / "soup", pair.parent / "link" / "soup"):
        assert "lies inside the input" in refused("merge", *halves(pair), "-o", out)
    fork = write_checkpoint(pair.parent / "base", weights(0), config=CONFIG)
    message = refused("merge", *halves(pair), "-o", fork / "soup", "--fork-point", fork)
    assert "lies inside the input" in message
    assert "exists" in refused("merge", *halves(pair), "-o", pair)  # it contains the inputs, and is there
    assert fingerprint(pair) == before


def test_an_output_in_a_folder_that_cannot_be_written_is_refused(pair, tmp_path):
    if os.geteuid() == 0:  # nothing is read-only to root but what the kernel itself keeps
        place = Path("/proc/self")
    else:
        place = tmp_path / "locked"
        place.mkdir(mode=0o555)
    assert "cannot write" in refused("merge", *halves(pair), "-o", place / "soup")


def test_a_full_disk_gives_one_message_and_leaves_nothing(pair, tmp_path):
    out = tmp_path / "place" / "soup"
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"  # as a disk that has room for one page
        "from trajsoup.cli import main\n"
        "main()\n"
    )
    before = fingerprint(pair)
    command = [sys.executable, "-c", code, "merge", *halves(pair), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"error: cannot write {out}: File too large: nothing was left behind" in done.stderr
    assert len([line for line in done.stderr.splitlines() if not line.startswith("note: ")]) == 1
    assert os.listdir(out.parent) == []
    assert fingerprint(pair) == before


def test_an_output_larger_than_the_disk_is_refused_before_any_work(pair, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    message = refused("merge", *halves(pair), "-o", tmp_path / "soup")
    assert re.search(r"the output needs [\d.]+ kB and .* has 1.0 kB free", message)  # not "0.00 GB"
    assert os.listdir(tmp_path) == ["in"]


def test_leftovers_of_a_killed_merge_are_removed_by_the_next(pair, tmp_path):
    left = tmp_path / f".soup{MARK}abc"
    left.mkdir()
    (left / "model.safetensors").write_bytes(bytes(100))
    other = tmp_path / f".other{MARK}abc"
    other.mkdir()
    succeeds("merge", *halves(pair), "-o", tmp_path / "soup")
    assert not left.exists()
    assert other.exists()  # of another output: not ours to remove
    assert equal(load(tmp_path / "soup"), mean(pair / "a", pair / "b"))


def test_a_run_that_is_not_there_or_holds_nothing_is_named(tmp_path):
    out = tmp_path / "soup"
    assert "there is no run at" in refused("merge", tmp_path / "nowhere", "--k", 1, "-o", out)
    assert "write hf://user/model if it is on the hub" in refused("merge", "user/model", "--k", 1, "-o", out)
    (tmp_path / "hollow").mkdir()
    assert "hollow holds no checkpoint" in refused("merge", tmp_path / "hollow", "--k", 1, "-o", out)
    assert "cannot read" in refused("merge", tmp_path / "nowhere.yaml", "-o", out)
    assert "there is no checkpoint at" in refused("merge", f"{tmp_path / 'nowhere'}=1", "-o", out)


def test_a_soup_file_that_is_wrong_is_named(tmp_path):
    (tmp_path / "soup.yaml").write_text("ingredients: [a]\nnormalise: true\n")
    message = refused("merge", tmp_path / "soup.yaml", "-o", tmp_path / "soup")
    assert "unknown key 'normalise': did you mean 'normalize'?" in message
