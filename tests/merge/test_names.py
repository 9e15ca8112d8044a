"""Checkpoints under the names of other frameworks become Hugging Face folders that compute the same."""

import json
from dataclasses import replace

import pytest
import torch
import torch.distributed.checkpoint as dcp
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from tests.command import refused, succeeds
from tests.runs import equal, load
from trajsoup.errors import CheckpointError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, explicit_row, plan_row
from trajsoup.merge.verify import verify_soup
from trajsoup.store.checkpoint import open_checkpoint, renamed
from trajsoup.store.names import MAPS, NameMap, name_map

HEADS, GROUPS, SIZE = 4, 2, 8
SIZES = {
    "vocab_size": 32, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two Llama models as Hugging Face folders."""
    folder = tmp_path_factory.mktemp("models")
    for seed in (1, 2):
        torch.manual_seed(seed)
        LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder / str(seed))
    return folder


def torchtitan(state):
    """The same weights as torchtitan has them: rows of rotary heads in pairs (its adapter's _reverse_permute)."""
    inner = {"q_proj": "qkv_linear.wq", "k_proj": "qkv_linear.wk", "v_proj": "qkv_linear.wv", "o_proj": "wo"}
    outer = {"gate_proj": "feed_forward.w1", "up_proj": "feed_forward.w3", "down_proj": "feed_forward.w2"}
    norms = {"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
    ends = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "lm_head"}
    found = {}
    for name, tensor in state.items():
        module = name.removesuffix(".weight")
        if module in ends:
            found[f"{ends[module]}.weight"] = tensor
            continue
        layer, part = module.split(".")[2], module.split(".")[-1]
        if part in ("q_proj", "k_proj"):
            tensor = tensor.view(-1, 2, SIZE // 2, 32).transpose(1, 2).reshape(tensor.shape)
        place = f"attention.{inner[part]}" if part in inner else outer.get(part) or norms[part]
        found[f"layers.{layer}.{place}.weight"] = tensor
    return found


def megatron(state):
    """The same weights as Megatron's GPT has them: layers stacked, queries, keys and values by groups, gates fused."""

    def stacked(part):
        return torch.stack([part(f"model.layers.{i}.") for i in range(2)])

    def qkv(at):
        parts = [state[f"{at}self_attn.{x}_proj.weight"].view(GROUPS, -1, SIZE, 32) for x in "qkv"]
        return torch.cat(parts, dim=1).reshape(-1, 32)

    layers = {
        "self_attention.linear_qkv.weight": qkv,
        "self_attention.linear_proj.weight": lambda at: state[at + "self_attn.o_proj.weight"],
        "self_attention.linear_qkv.layer_norm_weight": lambda at: state[at + "input_layernorm.weight"],
        "mlp.linear_fc1.layer_norm_weight": lambda at: state[at + "post_attention_layernorm.weight"],
        "mlp.linear_fc1.weight": lambda at: torch.cat([state[f"{at}mlp.{x}_proj.weight"] for x in ("gate", "up")]),
        "mlp.linear_fc2.weight": lambda at: state[at + "mlp.down_proj.weight"],
    }
    return {
        "embedding.word_embeddings.weight": state["model.embed_tokens.weight"],
        **{f"decoder.layers.{name}": stacked(part) for name, part in layers.items()},
        "decoder.final_layernorm.weight": state["model.norm.weight"],
        "output_layer.weight": state["lm_head.weight"],
    }


def olmo_core(state):
    parts = {
        "self_attn.q_proj": "attention.w_q", "self_attn.k_proj": "attention.w_k", "self_attn.v_proj": "attention.w_v",
        "self_attn.o_proj": "attention.w_out", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
        "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
        "post_attention_layernorm": "feed_forward_norm",
    }  # fmt: skip
    ends = {"model.embed_tokens": "embeddings", "model.norm": "lm_head.norm", "lm_head": "lm_head.w_out"}
    found = {}
    for name, tensor in state.items():
        module = name.removesuffix(".weight")
        layer, part = (*module.split(".", 3)[2:], "")[:2] if module not in ends else ("", "")
        found[f"{ends[module]}.weight" if module in ends else f"blocks.{layer}.{parts[part]}.weight"] = tensor
    return {"model": found}


FRAMEWORKS = {"torchtitan Llama": torchtitan, "Megatron GPT": megatron, "OLMo-core, norms before": olmo_core}


@pytest.fixture(scope="module")
def soups(models):
    """The mean of both models: of the Hugging Face folders, and of each framework's checkpoints made like them."""
    for kind, told in {"plain": None, **FRAMEWORKS}.items():
        row = explicit_row([(str(place(models, kind, told, seed)), 0.5) for seed in (1, 2)])
        make_soup(plan_row(row, form=OutputForm(like=models / "1")), models / f"{kind} soup")
    return models


def place(models, kind, told, seed):
    if told is None:
        return models / str(seed)
    folder = models / kind / f"step-{seed}"
    dcp.save(told(load(models / str(seed))), checkpoint_id=folder, no_dist=True)
    return folder


@pytest.mark.parametrize("kind", FRAMEWORKS)
def test_a_soup_of_another_framework_is_the_soup_of_the_same_model(soups, kind):
    assert equal(load(soups / f"{kind} soup"), load(soups / "plain soup"))
    record = json.loads((soups / f"{kind} soup" / "soup.json").read_text())
    assert record["names"]["name"] == kind
    assert verify_soup(soups / f"{kind} soup", full=True).tensors == len(load(soups / "plain soup"))
    assert (soups / f"{kind} soup" / "config.json").read_text() == (soups / "1" / "config.json").read_text()


def test_the_soup_loads_in_transformers_and_computes_what_the_plain_one_does(soups):
    tokens = torch.arange(10).reshape(1, 10)
    first, second = (
        LlamaForCausalLM.from_pretrained(soups / f"{kind} soup")(tokens).logits
        for kind in ("plain", "torchtitan Llama")
    )
    assert torch.equal(first, second)


def test_rows_put_in_order_are_those_of_torchtitans_own_adapter(soups):
    state = torchtitan(load(soups / "1"))["layers.1.attention.qkv_linear.wk.weight"]
    told = state.view(GROUPS, SIZE // 2, 2, 32).transpose(1, 2).reshape(-1, 32)  # _permute of its adapter
    assert torch.equal(told, load(soups / "1")["model.layers.1.self_attn.k_proj.weight"])


def test_what_no_map_names_is_an_error_that_lists_it(soups, tmp_path):
    state = torchtitan(load(soups / "1")) | {"layers.0.gate.strange": torch.ones(2), "odd": torch.ones(1)}
    torch.save(state, tmp_path / "odd.pt")
    error = refused("merge", f"{tmp_path / 'odd.pt'}=1", "--like", soups / "1", "-o", tmp_path / "x")
    assert "no map names 'layers.0.gate.strange', 'odd' (torchtitan Llama is nearest)" in error
    assert "--names" in error


def test_a_users_own_rules_rename_split_and_leave_out(soups, tmp_path):
    state = load(soups / "1")
    mine = {f"net.{name}": tensor for name, tensor in state.items() if "mlp.gate" not in name and "mlp.up" not in name}
    for i in range(2):
        at = f"model.layers.{i}.mlp."
        mine[f"fused.{i}.w"] = torch.cat([state[at + "gate_proj.weight"], state[at + "up_proj.weight"]])
    torch.save(mine | {"rope.freqs": torch.ones(3)}, tmp_path / "mine.pt")
    rules = [f"- {{from: net.{name}, to: {name}}}" for name in state if "mlp.gate" not in name and "mlp.up" not in name]
    at = "model.layers.{n}.mlp."
    rules += [f'- {{from: "fused.{{n}}.w", to: ["{at}gate_proj.weight", "{at}up_proj.weight"], split: halves}}']
    rules += ["- {from: rope.freqs}"]
    (tmp_path / "names.yaml").write_text("names:\n" + "\n".join(rules))
    succeeds(
        "merge", f"{tmp_path / 'mine.pt'}=1", "--like", soups / "1", "--names", tmp_path / "names.yaml",
        "-o", tmp_path / "out",
    )  # fmt: skip
    assert equal(load(tmp_path / "out"), state)
    (tmp_path / "names.yaml").write_text("names: [{frm: a}]")
    assert "frm" in refused("merge", f"{tmp_path / 'mine.pt'}=1", "--names", tmp_path / "names.yaml", "--dry-run")


def test_a_folder_of_another_shape_is_not_taken_for_a_pattern(soups, tmp_path):
    torch.save(megatron(load(soups / "1")), tmp_path / "m.pt")
    found, like = open_checkpoint(tmp_path / "m.pt"), open_checkpoint(soups / "1")
    fewer = replace(like, tensors={name: t for name, t in like.tensors.items() if "layers.1." not in name})
    with pytest.raises(CheckpointError, match=r"is not like the folder of --like: .*layers.1.* not in it"):
        name_map(found, fewer, like.config, rules=None, where="m.pt")
    other = NameMap(name="x", rules=MAPS["Megatron GPT"], heads=3, groups=3, head_rows=SIZE)
    with pytest.raises(CheckpointError, match=r"is not made of 3 groups of 1 queries"):
        renamed(found, other)


def test_tied_embeddings_need_no_head_in_the_soup(soups, tmp_path):
    state = load(soups / "1")
    torch.save(torchtitan(state), tmp_path / "tied.pt")
    found, like = open_checkpoint(tmp_path / "tied.pt"), open_checkpoint(soups / "1")
    without = replace(like, tensors={n: t for n, t in like.tensors.items() if n != "lm_head.weight"})
    tied = name_map(found, without, {**like.config, "tie_word_embeddings": True}, rules=None, where="x")
    assert renamed(found, tied).tensors.keys() == without.tensors.keys()


def test_torchtitans_qwen3_has_norms_of_heads_and_no_pairs(tmp_path):
    Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=SIZE)).save_pretrained(tmp_path / "like")
    state = load(tmp_path / "like")
    norms = {name: t for name, t in state.items() if name.endswith(("q_norm.weight", "k_norm.weight"))}
    halves = torchtitan({name: t for name, t in state.items() if name not in norms})
    for name in state:
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            layer, kind = name.split(".")[2], name.split(".")[-2][0]
            halves[f"layers.{layer}.attention.qkv_linear.w{kind}.weight"] = state[name]
    for name, tensor in norms.items():
        halves[f"layers.{name.split('.')[2]}.attention.{name.split('.')[-2]}.weight"] = tensor
    torch.save(halves, tmp_path / "titan.pt")
    succeeds("merge", f"{tmp_path / 'titan.pt'}=1", "--like", tmp_path / "like", "-o", tmp_path / "out")
    assert equal(load(tmp_path / "out"), state)
    assert json.loads((tmp_path / "out" / "soup.json").read_text())["names"]["name"] == "torchtitan Qwen3"
