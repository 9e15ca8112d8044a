import pytest
import torch

from tests.lm.stand_in import END, TINY, VOCAB, make_fork_point
from trajsoup.core.flops import model_cost
from trajsoup.errors import CheckpointError
from trajsoup.lm.models import Embedded, embedded_config, new_model, open_model


def config_of(family, **changes):
    return embedded_config(family, vocab_size=1024, end_of_text=0, sequence_length=128, changes=changes)


@pytest.mark.parametrize("family", list(Embedded))
def test_the_embedded_model_is_small_and_its_cost_counts_every_parameter(family):
    config = config_of(family)
    with torch.device("meta"):
        from transformers import AutoModelForCausalLM

        total = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    assert 200_000 < total < 2_000_000
    assert model_cost(config.to_dict(), sequence_length=128).total_params == total


def test_a_dense_models_cost_counts_every_parameter_too():
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    shape = {
        "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True,
    }  # fmt: skip
    for config, model in ((LlamaConfig(**shape), LlamaForCausalLM), (Qwen3Config(**shape), Qwen3ForCausalLM)):
        total = sum(p.numel() for p in model(config).parameters())
        assert model_cost(config.to_dict(), sequence_length=8).total_params == total


def test_the_default_has_the_papers_shape_in_miniature():
    model = new_model(config_of(Embedded.DEEPSEEK_V3), seed=0)
    names = dict(model.named_parameters())
    assert "model.layers.0.mlp.gate_proj.weight" in names  # first layer dense
    assert names["model.layers.1.mlp.experts.gate_up_proj"].ndim == 3  # then routed experts
    assert "model.layers.1.mlp.shared_experts.gate_proj.weight" in names  # with a shared one
    assert "model.layers.1.self_attn.kv_b_proj.weight" in names  # and MLA


def test_fresh_weights_depend_on_the_seed_alone():
    config = embedded_config(vocab_size=VOCAB, end_of_text=END, sequence_length=32, changes=TINY)
    torch.manual_seed(7)
    a = new_model(config, seed=0).state_dict()
    torch.manual_seed(8)
    b, c = new_model(config, seed=0).state_dict(), new_model(config, seed=1).state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)


def test_a_saved_model_opens_with_the_same_weights(tmp_path):
    fork_point = make_fork_point(tmp_path / "fork")
    a, b = open_model(fork_point).state_dict(), open_model(fork_point).state_dict()
    assert a.keys() == b.keys()
    config = embedded_config(vocab_size=VOCAB, end_of_text=END, sequence_length=32, changes=TINY)
    fresh = new_model(config, seed=0).state_dict()
    assert all(torch.equal(fresh[name], a[name]) for name in fresh)


def test_a_folder_that_is_no_model_is_refused_by_its_path(tmp_path):
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        open_model(tmp_path)
