"""A soup as a GGUF file: the gguf package and transformers read from it what the soup's folder holds."""

import json
import shutil
import subprocess
import sys

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from tests.command import refused, succeeds, trajsoup
from tests.runs import load
from trajsoup.errors import CheckpointError, OutputError
from trajsoup.lm.tokenizer import train_tokenizer
from trajsoup.merge.gguf import GgufType, export_gguf
from trajsoup.merge.gguf_model import read_model
from trajsoup.merge.gguf_tokenizer import _GPT2, SPLITTINGS, _begins_with_space, _cuts, _scores
from trajsoup.store.checkpoint import open_checkpoint

VOCABULARY = 320
SIZES = {
    "vocab_size": VOCABULARY + 5, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
KINDS = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=False, rope_theta=500000.0),
    "tied": LlamaConfig(**SIZES, tie_word_embeddings=True, head_dim=32),
    "windowed": MistralConfig(**SIZES, sliding_window=64),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=128),
}
BIASED = LlamaConfig(**SIZES, attention_bias=True)  # transformers' reader of GGUF leaves these biases out
TEXT = "The soup of 12 checkpoints isn't the mean of 345 words:\n\n  déjà vu, 我想, Ünïcode — it's averaged.\n"


@pytest.fixture(scope="module")
def soups(tmp_path_factory):
    """A soup of each kind: weights, config and tokenizer."""
    folder = tmp_path_factory.mktemp("gguf")
    train_tokenizer([TEXT * 20], folder / "tokenizer", vocab_size=VOCABULARY)
    for kind, config in (*KINDS.items(), ("biased", BIASED)):
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        for parameter in model.parameters():  # norms and biases begin as ones and zeros, which hide a mistake
            parameter.data += torch.randn_like(parameter) * 0.05
        model.save_pretrained(folder / f"{kind} part")
        shutil.copytree(folder / "tokenizer", folder / f"{kind} part", dirs_exist_ok=True)
        succeeds("merge", f"{folder / f'{kind} part'}=1", "-o", folder / kind)
    return folder


@pytest.fixture(scope="module")
def files(soups):
    for kind in KINDS:
        succeeds("export", soups / kind, "--gguf", soups / f"{kind}.gguf")
    return soups


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_the_same_model_and_the_same_tokenizer(files, kind):
    plain = AutoModelForCausalLM.from_pretrained(files / kind, dtype=torch.float32)
    found = AutoModelForCausalLM.from_pretrained(files, gguf_file=f"{kind}.gguf", dtype=torch.float32)
    tokens = torch.arange(40).reshape(1, 40)
    assert found.config.max_position_embeddings == (64 if kind == "windowed" else 128)
    assert torch.equal(plain(tokens).logits, found(tokens).logits)
    fields = gguf.GGUFReader(files / f"{kind}.gguf").fields
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    assert fields["tokenizer.ggml.add_bos_token"].contents() is False
    assert fields["general.name"].contents() == kind
    tokenizer = AutoTokenizer.from_pretrained(files / kind)
    listed = fields["tokenizer.ggml.tokens"].contents()
    assert listed[:VOCABULARY] == tokenizer.convert_ids_to_tokens(range(VOCABULARY))
    assert fields["tokenizer.ggml.eos_token_id"].contents() == tokenizer.eos_token_id
    assert fields["tokenizer.chat_template"].contents() == tokenizer.chat_template
    kinds = fields["tokenizer.ggml.token_type"].contents()
    assert [kinds[0], kinds[5], kinds[VOCABULARY]] == [3, 1, 5]  # control, normal, unused
    assert len(fields["tokenizer.ggml.merges"].contents()) == VOCABULARY - 3 - 256


def test_matrices_are_as_asked_vectors_are_f32_and_eight_bits_are_near(soups, tmp_path):
    state = load(soups / "llama")
    for kind in GgufType:
        export_gguf(soups / "llama", tmp_path / f"{kind}.gguf", type=kind)
        found = {t.name: t for t in gguf.GGUFReader(tmp_path / f"{kind}.gguf").tensors}
        assert found["blk.0.ffn_up.weight"].tensor_type.name == kind.name
        assert found["output_norm.weight"].tensor_type.name == "F32"
        up = found["blk.0.ffn_up.weight"]
        values = gguf.quants.dequantize(up.data, up.tensor_type).reshape(96, 64)
        wanted = state["model.layers.0.mlp.up_proj.weight"].float().numpy()
        allowed = {GgufType.F16: 1e-3, GgufType.BF16: 0.0, GgufType.Q8_0: np.abs(wanted).max() / 127}[kind]
        assert np.abs(values - wanted).max() <= allowed
    assert (tmp_path / "q8_0.gguf").stat().st_size < (tmp_path / "bf16.gguf").stat().st_size


def test_rows_and_biases_of_rotary_heads_lie_in_pairs(soups, tmp_path):
    export_gguf(soups / "biased", tmp_path / "x.gguf")
    found = {
        t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(tmp_path / "x.gguf").tensors
    }
    state = load(soups / "biased")
    for name, other in (("q", "attn_q"), ("k", "attn_k")):
        for end in ("weight", "bias"):
            wanted = state[f"model.layers.1.self_attn.{name}_proj.{end}"].float()
            for row in range(16):  # of a head; the second head of four or two
                paired = found[f"blk.1.{other}.{end}"][16 + 2 * (row % 8) + row // 8]
                assert np.array_equal(paired, wanted[16 + row].numpy())


def test_what_a_block_is_changes_no_byte(soups, tmp_path, monkeypatch):
    export_gguf(soups / "llama", tmp_path / "whole.gguf", type=GgufType.Q8_0)
    monkeypatch.setattr("trajsoup.merge.gguf.BLOCK_BYTES", 5000)
    export_gguf(soups / "llama", tmp_path / "pieces.gguf", type=GgufType.Q8_0)
    assert (tmp_path / "whole.gguf").read_bytes() == (tmp_path / "pieces.gguf").read_bytes()


def test_rotary_frequencies_of_llama_3_are_those_of_transformers(soups, tmp_path):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    config = LlamaConfig(**SIZES, rope_parameters=scaling, head_dim=128, architectures=["LlamaForCausalLM"])
    shutil.copytree(soups / "llama", tmp_path / "x")
    config.save_pretrained(tmp_path / "x")
    model = read_model(open_checkpoint(tmp_path / "x"))
    plain = 500000.0 ** -(torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    wanted, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    np.testing.assert_allclose(plain.numpy() / model.rope_factors(), wanted.numpy(), rtol=1e-5)


def test_it_works_without_torch_and_says_what_to_install_without_gguf(soups, tmp_path):
    code = """
import sys
for name in {blocked!r}: sys.modules[name] = None
from pathlib import Path
from trajsoup.merge.gguf import export_gguf
export_gguf({soup!r}, Path({out!r}))
"""

    def run(blocked, out):
        text = code.format(blocked=blocked, soup=str(soups / "llama"), out=str(out))
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)

    done = run(["torch", "transformers", "tokenizers", "safetensors"], tmp_path / "a.gguf")
    assert done.returncode == 0, done.stderr
    assert "needs the gguf package: pip install" in run(["gguf"], tmp_path / "b.gguf").stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]


def test_a_failure_leaves_nothing_and_nothing_is_replaced(soups, tmp_path, monkeypatch):
    (tmp_path / "there.gguf").write_text("mine")
    assert "exists" in refused("export", soups / "llama", "--gguf", tmp_path / "there.gguf")
    monkeypatch.setattr("trajsoup.merge.gguf.LARGEST", dict.fromkeys([*GgufType, None], 0.01))
    with pytest.raises(CheckpointError, match=r"holds .* which bf16 cannot"):
        export_gguf(soups / "llama", tmp_path / "new.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["there.gguf"]
    done = trajsoup("export", soups / "llama", "--gguf", tmp_path / "x.gguf", "--type", "q4")
    assert (done.code, "q8_0" in done.err) == (2, True)
    with pytest.raises(OutputError, match="exists"):
        export_gguf(soups / "llama", tmp_path / "there.gguf")


def changed(soup, folder, name, **values):
    shutil.copytree(soup, folder)
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "names the architecture 'GPT2LMHeadModel', and GGUF is written for Llama",
        ),
        ({"hidden_act": "gelu"}, "has hidden_act = 'gelu', which llama.cpp would not compute"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "has rope_type = 'longrope'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2}}, "no original_max_position_embeddings"),
        ({"rms_norm_eps": None}, "lacks rms_norm_eps"),
        ({"vocab_size": 100}, r"has a token number 319, the model 100 rows"),
    ],
)
def test_what_llama_cpp_would_compute_otherwise_is_refused(soups, tmp_path, values, said):
    soup = changed(soups / "llama", tmp_path / "x", "config.json", **values)
    error = refused("export", soup, "--gguf", tmp_path / "x.gguf")
    assert said in error
    assert "\n" not in error


def test_tensors_without_a_name_there_are_listed(soups, tmp_path):
    soup = changed(
        soups / "qwen3", tmp_path / "x", "config.json", architectures=["Qwen2ForCausalLM"], num_hidden_layers=1
    )
    assert "has no name for model.layers.0.self_attn.k_norm.weight, " in refused(
        "export", soup, "--gguf", tmp_path / "x.gguf"
    )


def test_another_cutting_of_text_is_refused_with_what_is_known(soups, tmp_path):
    soup = changed(soups / "llama", tmp_path / "x", "tokenizer.json", pre_tokenizer={"type": "Whitespace"})
    assert "cuts text by Whitespace, which is none of" in refused("export", soup, "--gguf", tmp_path / "x.gguf")
    (tmp_path / "x" / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in refused("export", soup, "--gguf", tmp_path / "x.gguf")


@pytest.mark.parametrize("cut", {cut for cut, _ in SPLITTINGS if len(cut) == 1})
def test_every_cutting_is_recognised_as_the_tokenizers_library_writes_it(cut):
    split = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut if pattern != _GPT2]
    steps = [*split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    assert tuple(_cuts(json.loads(tokenizer.to_str())["pre_tokenizer"])) == cut


def test_merges_become_scores_only_where_scores_say_the_same():
    model = {"merges": [["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]]}
    tokens, kinds = ["<unk>", "a", "b", "c", "ab", "bc", "abc"], [2, 1, 1, 1, 1, 1, 1]
    assert _scores(model, tokens, kinds, "x")[4:] == [0.0, -1.0, -2.0]
    with pytest.raises(CheckpointError, match="merges in an order that scores of tokens cannot say"):
        _scores({"merges": model["merges"][:3]}, tokens, kinds, "x")  # a and bc would be joined by scores
    with pytest.raises(CheckpointError, match="merges in an order"):
        _scores({"merges": [["a", "bc"], *model["merges"][:3]]}, tokens, kinds, "x")
    assert _begins_with_space({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend"}]}})
    assert not _begins_with_space({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "never"}})
