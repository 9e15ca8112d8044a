import pytest

from trajsoup.core.flops import model_cost
from trajsoup.errors import StudyError

PAPER = {  # tab:model-config
    "model_type": "bailing_hybrid", "num_hidden_layers": 24, "hidden_size": 1536, "first_k_dense_replace": 1,
    "num_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 512,
    "q_lora_rank": 256, "kv_lora_rank": 512, "vocab_size": 157_184,
}  # fmt: skip
NOT_PRINTED = {  # what the paper leaves open, see core/flops.py
    "num_attention_heads": 16, "linear_head_dim": 128, "layer_group_size": 4, "intermediate_size": 4608,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_nextn_predict_layers": 1,
}  # fmt: skip
LENGTH = 262_144
DENSE = {
    "model_type": "llama", "hidden_size": 8, "vocab_size": 100, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "tie_word_embeddings": False,
}  # fmt: skip


def test_the_papers_cost_per_token_is_reproduced_with_the_values_it_does_not_print():
    cost = model_cost({**PAPER, **NOT_PRINTED}, sequence_length=LENGTH, with_mtp=True)
    assert cost.flops_per_token == pytest.approx(36.74e9, rel=0.005)


def test_the_papers_parameter_counts_follow_from_the_same_values():
    cost = model_cost({**PAPER, **NOT_PRINTED}, sequence_length=LENGTH)
    assert cost.total_params == pytest.approx(7.9e9, rel=0.01)
    assert cost.active_params == pytest.approx(1.3e9, rel=0.07)


def test_without_the_prediction_module_the_papers_figure_is_out_of_reach():
    cost = model_cost({**PAPER, **NOT_PRINTED}, sequence_length=LENGTH)
    assert cost.flops_per_token == pytest.approx(31.1e9, rel=0.005)


def test_a_short_dense_model_costs_six_flops_per_multiplied_weight():
    cost = model_cost(DENSE, sequence_length=0)
    layer = 4 * 8 * 8 + 3 * 8 * 16
    assert cost.flops_per_token == 6 * (2 * layer + 100 * 8)
    assert cost.total_params == 2 * (layer + 2 * 8) + 2 * 100 * 8 + 8


def test_softmax_attention_grows_with_the_sequence_and_linear_attention_does_not():
    growth = [model_cost(DENSE, sequence_length=n).flops_per_token for n in (100, 200, 300)]
    assert growth[1] - growth[0] == growth[2] - growth[1] == 3 * 2 * (2 * 2 * (4 + 4) * 50)
    linear = {**PAPER, **NOT_PRINTED, "layer_types": ["linear_attention"] * 24}
    assert len({model_cost(linear, sequence_length=n).flops_per_token for n in (1, 10**6)}) == 1


def test_only_chosen_experts_are_active():
    few, many = ({**PAPER, **NOT_PRINTED, "num_experts": n} for n in (64, 128))
    one = 3 * 1536 * 512 + 1536  # an expert and its row of the router
    a, b = (model_cost(c, sequence_length=1) for c in (few, many))
    assert b.total_params - a.total_params == 23 * 64 * one
    assert b.active_params - a.active_params == 23 * 64 * 1536


def test_a_config_without_a_size_is_refused_by_its_name():
    with pytest.raises(StudyError, match="hidden_size = None"):
        model_cost({"vocab_size": 5, "num_hidden_layers": 1}, sequence_length=1)
