"""Checkpoints by torchtitan's own manager merge as the same weights do elsewhere, and it resumes from the soup."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.command import succeeds
from tests.peers.environments import Environment
from tests.runs import equal, load
from trajsoup.store.runs import scan_run

TITAN, SCRIPT = Environment("torchtitan"), "titan_checkpoints.py"
pytestmark = TITAN.marks()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("titan") / "run"
    TITAN.run(SCRIPT, "save", folder)
    return folder


def test_the_soup_is_that_of_the_same_weights_and_torchtitan_resumes_from_it(run, tmp_path):
    saved = run / "checkpoint"
    assert [checkpoint.step for checkpoint in scan_run(saved).checkpoints] == [1, 2]
    inputs = [f"{saved}/step-{n}=0.5" for n in (1, 2)]
    succeeds("merge", *inputs, "-o", tmp_path / "plain")
    succeeds("merge", *(f"{run}/{n}.pt=0.5" for n in (1, 2)), "-o", tmp_path / "expected")
    assert equal(load(tmp_path / "plain"), load(tmp_path / "expected"))
    again = tmp_path / "again"
    succeeds(
        "merge", *inputs, "--format", "same", "--state-from", f"{saved}/step-2", "-o", again / "checkpoint" / "step-3"
    )
    TITAN.run(SCRIPT, "resume", again, tmp_path / "resumed.pt")
    found = torch.load(tmp_path / "resumed.pt")
    assert equal(found["model"], load(tmp_path / "plain"))
    assert found["step"] == 2
    assert found["moment"] == pytest.approx(0.2, rel=1e-3)  # (1 - beta1) times a gradient of 2

    state = load(tmp_path / "plain")
    config = LlamaConfig(
        vocab_size=2048, hidden_size=256, intermediate_size=state["layers.0.feed_forward.w1.weight"].shape[0],
        num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=16, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "like")
    succeeds("merge", *inputs, "--like", tmp_path / "like", "-o", tmp_path / "hf")
    assert equal(load(tmp_path / "hf"), found["hf"])  # what its own adapter makes of the same model
