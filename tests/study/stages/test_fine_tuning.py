"""Every model of the main table goes through the same fine-tuning; the test models are made by hand, not trained."""

import dataclasses
import json
import re

import pytest
import torch

from tests.lm.tiny_models import llama_config, make_model
from tests.study.studies import byte_corpus, write_study
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.lm import live
from trajsoup.lm.tasks.post_training import SCORED
from trajsoup.lm.tasks.training import task_documents
from trajsoup.lm.tokenizer import train_tokenizer
from trajsoup.report.sections.results import fine_tuning_tables
from trajsoup.store.scores import validation_store
from trajsoup.study.file.study import load_study
from trajsoup.study.records.files import Records
from trajsoup.study.records.fine_tuning import FineTuningRecord
from trajsoup.study.records.rows import ChosenOn, RowRecord, RowsRecord
from trajsoup.study.records.train import TrainedBranch, TrainedCheckpoint, TrainRecord
from trajsoup.study.stages.fine_tuning import fine_tuning_stage
from trajsoup.study.workbench import Workbench

VOCAB = 400
TEXT = """
    fork_point: fork
    horizon: 2k
    checkpoint_every: 1k
    branches: {EXP1: {}, EXP2: {seed: 1}}
    evaluate: {resamples: 100}
    sft: {items: 36, test_items: 16, batch: 12, epochs: 3, peak_lr: 1e-2, seeds: 2}
"""
A, B = "branches/EXP1/checkpoint-1", "branches/EXP2/checkpoint-1"
ROWS = {
    "raw-final": {A: 1.0},
    "single/EXP1": {A: 1.0},
    "single/EXP2": {B: 1.0},
    "single-merge": {A: 1.0},
    "trajectory-soup/limited": {A: 0.5, B: 0.5},
}


def row(name, weights):
    chosen_on = ChosenOn(split=Split.VALIDATION, signal=Signal.LOSS, free=(), among=1, score=None)
    return RowRecord(
        name=name, label=name, strategy="", setting=None, select="top-k", coefficients="equal", k=1, horizon=1,
        budget_tokens=1, branches=("EXP1",), weights=weights, chosen_on=chosen_on, alone=name.startswith("single/"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sft")
    setup = load_study(write_study(folder, TEXT))
    tokenizer = folder / "bpe"
    train_tokenizer((d.text for d in task_documents(Split.TRAIN, characters=30_000)), tokenizer, vocab_size=VOCAB)
    model = make_model(llama_config(VOCAB, hidden_size=32, intermediate_size=64))
    generator = torch.Generator().manual_seed(1)
    for key in (A, B):
        model.save_pretrained(folder / key)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.01 * torch.randn(parameter.shape, generator=generator)
    corpus = dataclasses.replace(byte_corpus(folder), tokenizer=tokenizer, vocab_size=VOCAB)
    held = Records(setup.output, held=True)
    bench = Workbench(
        setup, cache=folder / "cache", progress=lambda what, done, total: None, corpus=corpus, records=held
    )
    trained = [
        TrainedBranch(
            branch=key.split("/")[1], status="finished", tokens=1, message=None, metrics=None,
            checkpoints=(TrainedCheckpoint(key=key, tokens=1, sha256=key),),
        )
        for key in (A, B)
    ]  # fmt: skip
    bench.records.write(TrainRecord(inputs={}, fork_point=None, branches=tuple(trained)))
    rows = tuple(row(name, weights) for name, weights in ROWS.items())
    bench.records.write(RowsRecord(inputs={}, rows=rows))
    assert fine_tuning_stage(bench)
    return bench


def test_every_merged_model_is_tuned_with_every_seed_and_scored_on_every_scenario_that_tells_something(bench):
    found = {tuned.row: tuned for tuned in bench.records.require(FineTuningRecord).rows}
    assert set(found) == set(ROWS) - {"raw-final"}
    for tuned in found.values():
        assert tuned.split is Split.TEST
        assert set(tuned.categories) == {task.category for task in SCORED}
        assert set(tuned.by_seed) == {"0", "1"}
        assert tuned.overall_average.value == pytest.approx(sum(tuned.by_seed.values()) / 2)
        assert tuned.deviation is not None


def test_fine_tuning_lowers_the_loss_of_answers_it_has_not_seen(bench):
    for tuned in bench.records.require(FineTuningRecord).rows:
        assert tuned.loss.value < tuned.loss_before - 0.5
        assert tuned.loss.low <= tuned.loss.value <= tuned.loss.high


def test_the_same_model_under_two_names_ends_the_same(bench):
    found = {tuned.row: tuned for tuned in bench.records.require(FineTuningRecord).rows}
    assert dataclasses.replace(found["single/EXP1"], row="") == dataclasses.replace(found["single-merge"], row="")
    assert found["single-merge"].loss.value != found["trajectory-soup/limited"].loss.value


def test_soup_and_single_merge_are_compared_in_loss_and_tasks(bench):
    compared = bench.records.require(FineTuningRecord).comparisons
    names = ("soup-limited", "soup-limited-rechosen")
    souped = [f"souped/{name}" for name in ROWS if name != "raw-final"]
    assert {(c.name, c.signal) for c in compared} == {(name, s) for name in (*names, *souped) for s in Signal}


def test_the_soup_of_fine_tunings_is_the_mean_of_their_weights(bench):
    from trajsoup.lm.sft import FineTuning, answer_losses, fine_tune, prepare_pairs
    from trajsoup.lm.tasks.post_training import SUITE
    from trajsoup.lm.tasks.training import fine_tuning_items

    tokenizer, ends = bench.corpus.tokenizer, []
    pairs = prepare_pairs(fine_tuning_items(count=36), tokenizer=tokenizer)
    for seed in (0, 1):
        model = live.load_model(bench.checkpoints[B])
        fine_tune(model, pairs, settings=FineTuning(epochs=3, batch=12, peak_lr=1e-2, seed=seed))
        ends.append({name: t.double() for name, t in model.state_dict().items()})
    model.load_state_dict({name: ((t + ends[1][name]) / 2).float() for name, t in ends[0].items()})
    asked = fine_tuning_items(count=16 * len(SUITE), split=Split.TEST)
    by_hand = answer_losses(model, prepare_pairs(asked, tokenizer=tokenizer)).loss()
    tuned = next(t for t in bench.records.require(FineTuningRecord).rows if t.row == "single/EXP2")
    assert tuned.souped_loss.value == pytest.approx(by_hand, rel=1e-4)
    assert tuned.souped_loss.value != pytest.approx(tuned.loss.value, rel=1e-4)


def test_the_strongest_single_is_chosen_anew_after_fine_tuning_and_not_by_what_is_reported(bench):
    record = bench.records.require(FineTuningRecord)
    stored = validation_store(bench.setup.output / "scores" / "sft")
    losses = {}
    for path in stored.folder.rglob("*.json"):
        found = json.loads(path.read_text())
        if found.get("split") == "validation":
            losses.setdefault(found["name"], []).append(found)
    assert set(losses) == {"single/EXP1", "single/EXP2"}  # no other row has anything to choose
    assert all(len(runs) == 2 for runs in losses.values())  # a run with each seed, none before fine-tuning
    assert record.strongest_single in losses
    assert {c.reference for c in record.comparisons if c.name == "soup-limited-rechosen"} == {record.strongest_single}


def test_the_record_says_which_data_the_fine_tuning_saw(bench):
    data = bench.records.require(FineTuningRecord).settings["data"]
    assert len(re.findall(r"[0-9a-f]{64}", data)) == 3


def test_what_is_scored_is_never_tuned_again(bench, monkeypatch):
    path = bench.records.path(FineTuningRecord)
    before = path.read_bytes()
    assert not fine_tuning_stage(bench)
    path.unlink()
    monkeypatch.setattr(live, "load_model", lambda *args, **kwargs: pytest.fail("the model was loaded again"))
    assert fine_tuning_stage(bench)
    assert path.read_bytes() == before


def test_the_table_shows_scenarios_seeds_and_the_answer_loss(bench):
    table, compared = fine_tuning_tables(bench.records)
    assert table.columns[-6:] == (
        "deviation over seeds", "before SFT", "answer loss", "answer loss before", "seeds souped", "answer loss souped",
    )  # fmt: skip
    for row in bench.records.require(FineTuningRecord).rows:
        (line,) = [line for line in table.rows if line.soup == row.row]
        assert [cell.value for cell in line.cells[-4:-2]] == [row.loss.value, row.loss_before]
        assert [cell.value for cell in line.cells[-2:]] == [row.souped.value, row.souped_loss.value]
    assert all(row.cells[6].text for row in compared.rows)
    assert any("prompts have no loss" in note for note in table.notes)
