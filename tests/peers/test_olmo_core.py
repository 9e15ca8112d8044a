"""Checkpoints by OLMo-core's own checkpointer merge as the same weights do elsewhere, and it loads the soup."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.command import succeeds
from tests.peers.environments import Environment
from tests.runs import equal, load
from trajsoup.store.runs import scan_run

OLMO, SCRIPT = Environment("olmo"), "olmo_checkpoints.py"
pytestmark = OLMO.marks()
LIKE = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    rms_norm_eps=1e-5, tie_word_embeddings=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("olmo") / "run"
    OLMO.run(SCRIPT, "save", folder)
    return folder


def test_the_soup_is_that_of_the_same_weights_and_olmo_core_resumes_from_it(run, tmp_path):
    assert [saved.step for saved in scan_run(run).checkpoints] == [1, 2]
    inputs = [f"{run}/step{n}=0.5" for n in (1, 2)]
    succeeds("merge", *inputs, "-o", tmp_path / "plain")
    succeeds("merge", *(f"{run.parent}/{n}.pt=0.5" for n in (1, 2)), "-o", tmp_path / "expected")
    assert equal(load(tmp_path / "plain"), load(tmp_path / "expected"))
    succeeds("merge", *inputs, "--format", "same", "--state-from", f"{run}/step2", "-o", tmp_path / "same")
    OLMO.run(SCRIPT, "load", tmp_path / "same", tmp_path / "resumed.pt")
    found = torch.load(tmp_path / "resumed.pt")
    assert equal(found["model"], load(tmp_path / "plain"))
    assert found["moments"] > 0

    state = load(tmp_path / "plain")
    rows = state["blocks.0.feed_forward.w1.weight"].shape[0]
    config = LlamaConfig(**{**LIKE.to_dict(), "intermediate_size": rows})
    LlamaForCausalLM(config).save_pretrained(tmp_path / "like")
    succeeds("merge", *inputs, "--like", tmp_path / "like", "-o", tmp_path / "hf")
    with torch.no_grad():
        logits = LlamaForCausalLM.from_pretrained(tmp_path / "hf")(torch.arange(32).reshape(1, 32)).logits
    torch.testing.assert_close(logits, found["logits"], rtol=1e-4, atol=1e-4)
