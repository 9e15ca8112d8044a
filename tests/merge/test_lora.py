"""LoRA adapters merged into their base and averaged there: PEFT's own merge, then a mean."""

import json
import shutil

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tests.command import refused, succeeds
from tests.runs import equal, load
from trajsoup.engine.workers import Options
from trajsoup.errors import CheckpointError
from trajsoup.lm.tokenizer import train_tokenizer
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, explicit_row, plan_row
from trajsoup.merge.verify import verify_soup
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.formats.lora import Lora

LLAMA = LlamaConfig(
    vocab_size=50,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
)
GPT2 = GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=8)
KINDS = {
    "plain": (LLAMA, {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"]}),
    "rslora": (LLAMA, {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": "all-linear"}),
    "patterns": (
        LLAMA,
        {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ["q_proj", "v_proj", "embed_tokens"],
            "rank_pattern": {"v_proj": 2},
            "alpha_pattern": {"layers.0.self_attn.v_proj": 7},
            "modules_to_save": ["lm_head", "norm"],
        },
    ),
    "conv1d": (GPT2, {"r": 2, "lora_alpha": 4, "fan_in_fan_out": True, "target_modules": ["c_attn", "c_proj"]}),
}


def model_of(config):
    torch.manual_seed(0)
    return (LlamaForCausalLM if isinstance(config, LlamaConfig) else GPT2LMHeadModel)(config)


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tmp_path_factory):
    """base, two adapters of it, and what PEFT's merge_and_unload makes of each: in fp32."""
    folder = tmp_path_factory.mktemp(request.param)
    config, options = KINDS[request.param]
    model_of(config).save_pretrained(folder / "base")
    for seed in (1, 2):
        adapted = peft.get_peft_model(model_of(config), peft.LoraConfig(**options))
        adapted.peft_config["default"].base_model_name_or_path = str(folder / "base")
        torch.manual_seed(seed)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if parameter.requires_grad or "lora_" in name:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        adapted.save_pretrained(folder / f"adapter{seed}")
        adapted.merge_and_unload().save_pretrained(folder / f"merged{seed}")
    return folder


def mean_of_merged(folder):
    one, two = load(folder / "merged1"), load(folder / "merged2")
    return {name: (one[name].double() + two[name].double()) / 2 for name in one}


def test_the_soup_is_the_mean_of_what_peft_merges(trained, tmp_path):
    inputs = [trained / "adapter1", trained / "adapter2"]
    succeeds("merge", *inputs, "--lora", "merge", "-o", tmp_path / "soup")
    found, expected = load(tmp_path / "soup"), mean_of_merged(trained)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype is torch.float32
        assert torch.allclose(tensor.double(), expected[name], rtol=1e-6, atol=2e-7), name
    assert json.loads((tmp_path / "soup" / "config.json").read_text()) == json.loads(
        (trained / "base" / "config.json").read_text()
    )
    assert json.loads((tmp_path / "soup" / "soup.json").read_text())["lora_base"] == str(trained / "base")
    succeeds("verify", tmp_path / "soup", "--full")


def test_the_bits_do_not_depend_on_blocks_and_are_those_of_the_merged_models_in_safetensors(trained, tmp_path):
    inputs = {str(trained / f"adapter{seed}"): weight for seed, weight in ((1, 0.25), (2, 0.75))}
    plan = plan_row(explicit_row(inputs), form=OutputForm(lora=True))
    for number, options in enumerate((Options(), Options(block_bytes=4096, workers=3, accelerate=False))):
        make_soup(plan, tmp_path / f"soup{number}", options=options)
    assert equal(load(tmp_path / "soup0"), load(tmp_path / "soup1"))
    for seed in (1, 2):  # each alone is the merged model: averaged again from safetensors, it is the same soup
        alone = plan_row(explicit_row({str(trained / f"adapter{seed}"): 1.0}), form=OutputForm(lora=True))
        make_soup(alone, tmp_path / f"full{seed}")
    full = plan_row(explicit_row({str(tmp_path / "full1"): 0.25, str(tmp_path / "full2"): 0.75}))
    make_soup(full, tmp_path / "again")
    assert equal(load(tmp_path / "again"), load(tmp_path / "soup0"))


def test_a_base_in_bf16_is_rounded_once_after_the_mean(trained, tmp_path):
    base = {name: t.bfloat16() for name, t in load(trained / "base").items()}
    shutil.copytree(trained / "base", tmp_path / "base")
    save_file(base, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    inputs = explicit_row({str(trained / f"adapter{seed}"): 0.5 for seed in (1, 2)})
    make_soup(plan_row(inputs, form=OutputForm(lora=True), fork_point=tmp_path / "base"), tmp_path / "soup")
    wide = plan_row(inputs, fork_point=tmp_path / "base", form=OutputForm(lora=True, dtype="fp32"))
    make_soup(wide, tmp_path / "wide")
    expected = {name: t.bfloat16() for name, t in load(tmp_path / "wide").items()}
    assert equal(load(tmp_path / "soup"), expected)


def changed_config(folder, source, **fields):
    shutil.copytree(source, folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | fields))
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """An adapter written without PEFT's help: a matrix of 6 x 4 and rank 2."""
    folder = tmp_path_factory.mktemp("plain")
    for name in ("base", "adapter"):
        (folder / name).mkdir()
    save_file({"m.weight": torch.ones(6, 4), "n.weight": torch.ones(3)}, folder / "base" / "model.safetensors")
    factors = {
        "base_model.model.m.lora_A.weight": torch.ones(2, 4),
        "base_model.model.m.lora_B.weight": torch.ones(6, 2),
    }
    save_file(factors, folder / "adapter" / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": str(folder / "base")}
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"use_dora": True}, "DoRA rescales the rows"),
        ({"peft_type": "IA3"}, "adapter of the type 'IA3'"),
        ({"init_lora_weights": "pissa_niter_4"}, "changes the base model"),
        ({"layer_replication": [[0, 1]]}, "its layers are not those of the base"),
        ({"lora_alpha": None}, "lora_alpha of 'm' is None"),
        ({"lora_alpha": "4"}, "lora_alpha of 'm' is '4'"),
    ],
)
def test_what_is_no_sum_is_refused_with_the_reason(plain, tmp_path, fields, says):
    adapter = changed_config(tmp_path / "adapter", plain / "adapter", **fields)
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(adapter, format=Lora(str(plain / "base")))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("base_model.model.m.lora_B.weight"), "module 'm' lacks A or B"),
        (lambda t: t.update({"base_model.model.m.lora_B.weight": torch.ones(5, 2)}), "do not fit 'm.weight'"),
        (lambda t: t.update({"base_model.model.m.lora_B.weight": torch.ones(6, 3)}), "do not fit 'm.weight'"),
        (lambda t: t.update({"base_model.model.m.lora_magnitude_vector": torch.ones(6)}), "is no tensor of the base"),
        (lambda t: t.update({"base_model.model.n.weight": torch.ones(4)}), "is no tensor of the base"),
        (lambda t: t.update({"base_model.model.x.lora_A.weight": torch.ones(2, 4)}), "module 'x' is not in the base"),
    ],
)
def test_factors_that_do_not_fit_the_base_are_refused(plain, tmp_path, change, says):
    shutil.copytree(plain / "adapter", tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(tmp_path / "adapter", format=Lora(str(plain / "base")))


def test_without_the_option_an_adapter_is_refused_and_the_option_is_named(plain, tmp_path):
    assert "--lora merge" in refused("merge", plain / "adapter", plain / "base", "-o", tmp_path / "soup")
    said = refused("merge", plain / "base", plain / "adapter", "--lora", "merge", "-o", tmp_path / "soup")
    assert "takes adapter" in said
    lone = explicit_row({str(plain / "adapter"): 0.5, str(plain / "base"): 0.5})
    with pytest.raises(CheckpointError, match="takes adapters only"):
        plan_row(lone, form=OutputForm(lora=True), fork_point=plain / "base")


@pytest.fixture(scope="module")
def unevaluated(tmp_path_factory):
    """Two runs of adapters without any log; their last checkpoints are noise."""
    folder = tmp_path_factory.mktemp("unevaluated")
    config = LlamaConfig(**{**LLAMA.to_diff_dict(), "vocab_size": 260})
    model_of(config).save_pretrained(folder / "base")
    train_tokenizer(["a b c"], folder / "base", vocab_size=260)
    module = "base_model.model.lm_head"
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "base_model_name_or_path": str(folder / "base")}
    for run, step, size in (("a", 10, 0.01), ("a", 20, 300.0), ("b", 10, 0.01), ("b", 20, 300.0)):
        adapter = folder / run / f"checkpoint-{step}"
        adapter.mkdir(parents=True)
        torch.manual_seed(step + ord(run))
        factors = {f"{module}.lora_A.weight": torch.randn(2, 16), f"{module}.lora_B.weight": torch.randn(260, 2) * size}
        save_file(factors, adapter / "adapter_model.safetensors")
        (adapter / "adapter_config.json").write_text(json.dumps(config))
    (folder / "held-out.txt").write_text("the cat sat on the mat and ate the hat\n" * 20)
    return folder


def test_adapters_that_nobody_evaluated_are_ranked_on_documents(unevaluated):
    args = ("merge", unevaluated / "a", unevaluated / "b", "--lora", "merge", "--no-screen", "--dry-run", "--json")
    blind = succeeds(*args, "--k", 1).json
    assert {key[-13:] for key in blind["row"]} == {"checkpoint-20"}
    assert any("--validation FILE would rank them" in note for note in blind["notes"])
    assert not any("doctor" in note for note in blind["notes"])  # which takes no adapters; these have one base
    ranked = succeeds(*args, "--k", 1, "--validation", unevaluated / "held-out.txt").json
    assert {key[-13:] for key in ranked["row"]} == {"checkpoint-10"}


def test_methods_that_ask_for_products_measure_the_models_that_adapters_make(unevaluated):
    args = ("merge", unevaluated / "a", unevaluated / "b", "--lora", "merge", "--no-screen", "--dry-run", "--json")
    found = succeeds(*args, "--method", "extra-merge", "--param", "merged=1", "--param", "steps=1").json
    assert sum(found["row"].values()) == pytest.approx(1)
    assert "no share of the fork point" in refused(
        *args, "--method", "model-stock", "--fork-point", unevaluated / "base"
    )


def test_adapters_without_a_log_are_told_what_helps(unevaluated, tmp_path):
    args = ("--lora", "merge", "--dry-run")
    said = refused("merge", unevaluated / "a", unevaluated / "b", *args)
    assert said.endswith("or pass --no-screen: then all are merged")
    for run in "ab":
        shutil.copytree(unevaluated / run / "checkpoint-10", tmp_path / "adapters" / run)
    said = refused("merge", tmp_path / "adapters", *args)
    assert said.endswith("or name each checkpoint, not the folder above, and `merge` takes their mean")
    named = [tmp_path / "adapters" / run for run in "ab"]
    assert set(succeeds("merge", *named, *args, "--json").json["row"].values()) == {0.5}


def test_an_adapter_whose_base_is_elsewhere_asks_for_the_fork_point(plain, tmp_path):
    adapter = changed_config(tmp_path / "adapter", plain / "adapter", base_model_name_or_path="meta/llama")
    row = explicit_row({str(adapter): 1.0})
    with pytest.raises(CheckpointError, match="name the base model's with --fork-point"):
        plan_row(row, form=OutputForm(lora=True))
    make_soup(plan_row(row, form=OutputForm(lora=True), fork_point=plain / "base"), tmp_path / "soup")
    found = load(tmp_path / "soup")
    assert torch.equal(found["m.weight"], torch.full((6, 4), 1 + 4 / 2 * 2.0))
    assert torch.equal(found["n.weight"], torch.ones(3))
    verify_soup(tmp_path / "soup", full=True)


def test_the_sum_over_the_rank_has_a_fixed_order(tmp_path):
    """Rows computed one by one have the bits of rows computed together."""
    chance = np.random.default_rng(0)
    save_file({"m.weight": torch.from_numpy(chance.normal(size=(33, 17)).astype("f4"))}, tmp_path / "base.safetensors")
    (tmp_path / "adapter").mkdir()
    a, b = (torch.from_numpy(chance.normal(size=s).astype("f4")) for s in ((8, 17), (33, 8)))
    factors = {"base_model.model.m.lora_A.weight": a, "base_model.model.m.lora_B.weight": b}
    save_file(factors, tmp_path / "adapter" / "adapter_model.safetensors")
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 3}))
    opened = open_checkpoint(tmp_path / "adapter", format=Lora(str(tmp_path / "base.safetensors")))
    made = opened.tensors["m.weight"].made
    assert made is not None

    def read(part, low, high):
        raw = opened.files[part.box.file].read_bytes()
        begin = part.box.offset + low * part.row_bytes
        return np.frombuffer(raw, np.uint8)[begin : begin + (high - low) * part.row_bytes]

    ready = made.prepare(read)
    whole = made.rows(0, 33, read, ready)
    assert np.array_equal(whole, np.concatenate([made.rows(i, i + 1, read, ready) for i in range(33)]))
    exact = load_file(tmp_path / "base.safetensors")["m.weight"].double() + 3 / 8 * (b.double() @ a.double())
    assert np.allclose(whole, exact.numpy(), rtol=1e-7)
