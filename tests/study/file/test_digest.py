"""What a study is by content."""

import pytest

from tests.study.studies import write_study
from trajsoup.study.file.study import load_study

TEXT = """
    fork_point: fork
    corpus: {train: documents.txt, test: held-out}
    horizon: 2k
    checkpoint_every: 1k
    branches: {EXP1: {}, EXP2: {seed: 1}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAJSOUP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "documents.txt").write_text("some words\n")
    (tmp_path / "held-out").mkdir()
    (tmp_path / "held-out" / "a.txt").write_text("others\n")
    return tmp_path


def digest(folder, text=TEXT):
    return load_study(write_study(folder, text)).digest


@pytest.mark.parametrize("name", ["documents.txt", "held-out/a.txt"])
def test_a_corpus_file_changed_at_the_same_size_is_another_study(folder, name):
    before = digest(folder)
    text = (folder / name).read_text()
    (folder / name).write_text(text.upper())
    assert digest(folder) != before
    (folder / name).write_text(text)
    assert digest(folder) == before


def test_how_it_is_scored_does_not_make_it_another_training(folder):
    assert digest(folder) == digest(folder, TEXT + "    evaluate: {ks: [1]}\n    sweeps: paper\n")


def test_another_recipe_is_another_study(folder):
    assert digest(folder) != digest(folder, TEXT.replace("seed: 1", "seed: 2"))


@pytest.mark.parametrize(
    "line", ["seeds: 5", "retention: {top_k: 2}", "report_to: wandb", "output: elsewhere", "sft:", "kind: train",
             "publish: memory://b/x"],
)  # fmt: skip
def test_what_shapes_no_result_makes_no_other_study(folder, line):
    assert digest(folder) == digest(folder, TEXT + f"    {line}\n")


@pytest.mark.parametrize(
    "line", ["sequence_length: 64", "max_epochs: 9", "baseline: {clip: 2}", "trainer: {command: train}",
             "trainer: {builtin: {micro_batch: 1}}", "trainer: {builtin: {precision: bf16}}"],
)  # fmt: skip
def test_what_shapes_results_makes_another_study(folder, line):
    assert digest(folder) != digest(folder, TEXT + f"    {line}\n")


def test_a_field_of_the_corpus_makes_another_study(folder):
    assert digest(folder) != digest(folder, TEXT.replace("test: held-out", "test: held-out, text_field: body"))
