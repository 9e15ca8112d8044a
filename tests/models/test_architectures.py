"""Soups of real architectures load with transformers and hold the mean of their ingredients, bit for bit."""

import json

import pytest
import torch

from tests.command import succeeds, trajsoup
from tests.models.tiny import ARCHITECTURES, branch_off, in_bf16, load, model, save
from tests.runs import equal, mean
from tests.runs import load as tensors_of

SIDE_FILES = {
    "tokenizer.json": '{"version": "1.0", "model": {}}',
    "chat_template.jinja": "{% for m in messages %}{{ m }}{% endfor %}\n",
    "modeling_custom.py": "class Custom: ...\n",
    "LICENSE": "Apache-2.0\n",
}


def branches(kind, folder, *, shard_size="5GB"):
    """A checkpoint of each of three branches, in bf16, with what lies beside them."""
    found = []
    for seed in (1, 2, 3):
        place = folder / kind / f"EXP{seed}" / "checkpoint-10"
        save(in_bf16(branch_off(model(kind), seed=seed)), place, shard_size=shard_size)
        for name, text in SIDE_FILES.items():
            (place / name).write_text(text)
        found.append(place)
    return found


@pytest.mark.parametrize("shard_size", ["5GB", "8KB"])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_the_soup_loads_and_is_the_mean(kind, shard_size, tmp_path):
    places = branches(kind, tmp_path, shard_size=shard_size)
    succeeds("merge", *(place.parent for place in places), "--select", "final", "--no-screen", "-o", tmp_path / "soup")
    expected = mean(*places)
    assert equal(tensors_of(tmp_path / "soup"), expected)
    assert len(list((tmp_path / "soup").glob("*.safetensors"))) == len(list(places[0].glob("*.safetensors")))
    soup, ingredients = load(tmp_path / "soup"), [load(place) for place in places]
    for name, tensor in soup.state_dict().items():
        if not tensor.is_floating_point():
            continue
        wide = torch.float64 if tensor.dtype is torch.float32 else torch.float32
        total = torch.stack([one.state_dict()[name].to(wide) for one in ingredients]).sum(dim=0)
        assert torch.equal(tensor, (total / 3).to(tensor.dtype)), name
    for name, text in SIDE_FILES.items():
        assert (tmp_path / "soup" / name).read_text() == text
    for name in ("config.json", "generation_config.json"):
        assert (tmp_path / "soup" / name).read_bytes() == (places[0] / name).read_bytes()
    succeeds("verify", tmp_path / "soup", "--full")


def test_tied_embeddings_stay_tied_and_no_lm_head_is_written(tmp_path):
    places = branches("llama", tmp_path)
    succeeds("merge", *(f"{place}=1" for place in places), "--normalize", "-o", tmp_path / "soup")
    assert "lm_head.weight" not in tensors_of(tmp_path / "soup")
    soup = load(tmp_path / "soup")
    assert soup.lm_head.weight.data_ptr() == soup.model.embed_tokens.weight.data_ptr()


def test_a_router_bias_in_fp32_stays_in_fp32_among_bf16_weights(tmp_path):
    places = branches("deepseek_v3", tmp_path)
    succeeds("merge", *(f"{place}=1" for place in places), "--normalize", "-o", tmp_path / "soup")
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    biases = [tensors_of(place)[name] for place in places]
    assert {bias.dtype for bias in biases} == {torch.float32}
    assert len({tuple(bias.tolist()) for bias in biases}) == 3  # each branch has its own
    soup = tensors_of(tmp_path / "soup")
    assert torch.equal(soup[name], torch.stack(biases).double().mean(dim=0).float())
    assert soup["model.embed_tokens.weight"].dtype is torch.bfloat16
    assert load(tmp_path / "soup").model.layers[1].mlp.gate.e_score_correction_bias.dtype is torch.float32


def test_experts_are_in_the_soup_each_or_fused_as_the_ingredients_have_them(tmp_path):
    for kind, name, shape in (
        ("qwen3_moe", "model.layers.1.mlp.experts.3.down_proj.weight", (16, 8)),
        ("gpt_oss", "model.layers.1.mlp.experts.gate_up_proj", (4, 16, 64)),
    ):
        places = branches(kind, tmp_path)
        succeeds("merge", *(f"{place}=1" for place in places), "--normalize", "-o", tmp_path / f"{kind}-soup")
        assert tuple(tensors_of(tmp_path / f"{kind}-soup")[name].shape) == shape


@pytest.mark.parametrize(("dtype", "kind"), [("fp32", torch.float32), ("fp16", torch.float16)])
def test_transformers_loads_a_converted_soup_in_its_new_dtype(tmp_path, dtype, kind):
    places = branches("llama", tmp_path)
    succeeds("merge", *(f"{place}=1" for place in places), "--normalize", "--dtype", dtype, "-o", tmp_path / "soup")
    assert json.loads((tmp_path / "soup" / "config.json").read_text())["dtype"] == str(kind).removeprefix("torch.")
    soup = load(tmp_path / "soup")
    assert soup.dtype is kind
    if kind is torch.float32:
        with torch.no_grad():
            assert torch.isfinite(soup(torch.tensor([[1, 2, 3]])).logits).all()


def test_shards_that_we_cut_are_found_by_transformers(tmp_path):
    places = branches("qwen3_moe", tmp_path)
    options = ("--normalize", "--shard-size", "6kB", "-o", tmp_path / "soup")
    succeeds("merge", *(f"{place}=1" for place in places), *options)
    assert len(list((tmp_path / "soup").glob("model-*-of-*.safetensors"))) > 2
    load(tmp_path / "soup")
    assert equal(tensors_of(tmp_path / "soup"), mean(*places))


def test_architectures_are_not_mixed(tmp_path):
    a, b = branches("llama", tmp_path)[0], branches("qwen3_moe", tmp_path)[0]
    done = trajsoup("merge", f"{a}=0.5", f"{b}=0.5", "-o", tmp_path / "soup")
    assert done.code == 1
    assert "cannot be averaged" in done.err


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """Two models that began from different random weights, a branch of each, and the start of the first."""
    folder = tmp_path_factory.mktemp("strangers")
    for seed, name in ((10, "first"), (20, "second")):
        save(model("llama", seed=seed), folder / f"{name}-start")
        for number in (1, 2):
            save(branch_off(model("llama", seed=seed), seed=number), folder / f"{name}-{number}" / "checkpoint-5")
    return folder


@pytest.mark.parametrize("fork", [True, False])
def test_the_doctor_knows_branches_from_strangers(strangers, fork):
    extra = ("--fork-point", strangers / "first-start") if fork else ()
    alike = succeeds("doctor", strangers / "first-1", strangers / "first-2", *extra, "--json").json
    assert alike["branches"][-1]["outlook"] == "averages well"
    done = trajsoup("doctor", strangers / "first-1", strangers / "second-1", *extra, "--json")
    assert done.code == 1
    assert [b["outlook"] for b in done.json["branches"]] == [
        "averages well" if fork else "reference",  # without a fork point the first run is what others are compared with
        "leave it out",
    ]
    assert "shares no fork point" in done.json["branches"][1]["reasons"][0]
    assert abs(done.json["branches"][1]["closeness"]["cosine"]) < 0.1
