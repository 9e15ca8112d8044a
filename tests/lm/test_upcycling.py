import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from tests.lm.tiny_models import llama_config
from trajsoup.errors import StudyError
from trajsoup.lm.models import new_model, open_model
from trajsoup.lm.upcycling import require_dense, stack_branches

QWEN = Qwen3Config(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, head_dim=8, max_position_embeddings=256,
)  # fmt: skip


@pytest.fixture(params=["llama", "qwen3"])
def dense(request, tmp_path):
    config = llama_config(rope_theta=5000.0, rms_norm_eps=1e-5) if request.param == "llama" else QWEN
    for seed in (0, 1, 2):
        new_model(config, seed=seed).save_pretrained(tmp_path / str(seed))
    return tmp_path


def logits(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(input_ids=torch.arange(20)[None] % 64).logits


def test_a_mixture_of_equal_experts_computes_what_the_dense_model_does(dense):
    stack_branches(dense / "0", [dense / "0"] * 3, dense / "mixture", per_token=2)
    torch.testing.assert_close(logits(dense / "mixture"), logits(dense / "0"), rtol=1e-5, atol=1e-6)


def test_feed_forward_parts_are_the_branches_own_and_everything_else_comes_from_the_average(dense):
    stack_branches(dense / "0", [dense / "1", dense / "2"], dense / "mixture", per_token=2)
    made, average = open_model(dense / "mixture").state_dict(), open_model(dense / "0").state_dict()
    for number in (1, 2):
        branch = open_model(dense / str(number)).state_dict()
        down = made["model.layers.1.mlp.experts.down_proj"][number - 1]
        assert torch.equal(down, branch["model.layers.1.mlp.down_proj.weight"])
    for name in ("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"):
        assert torch.equal(made[name], average[name])


def test_an_architecture_without_a_mixture_of_its_attention_is_refused_by_name():
    with pytest.raises(StudyError, match=r"dense models \(llama, mistral, qwen3\).*'deepseek_v3'"):
        require_dense({"model_type": "deepseek_v3"}, where="study.yaml")
    with pytest.raises(StudyError, match="attention_bias"):
        require_dense({"model_type": "llama", "attention_bias": True}, where="study.yaml")
