"""Runs that somebody else's script left: found by `scan`, scored, merged, compared, without any training here."""

from dataclasses import replace

import pytest
import torch

from tests.study.studies import make_fork_point
from tests.study.tiny_study import small_documents
from trajsoup.errors import StudyError
from trajsoup.lm.corpus import TokenSet
from trajsoup.merge.branches import load_branches, save_branches, scan_branches
from trajsoup.study.file.study import load_study
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.run import run_study

SETTINGS = """
corpus: {train: documents.txt}
evaluate: {validation_tokens: 1k, test_tokens: 1k, probe_tokens: 1k, ks: [1, 2], horizons: 2, resamples: 100, tolerance: 0.5}
sweeps: [selections, scaling]
"""


def somebody_elses_script(folder, fork_point, tokens, *, seed, steps=8, every=2):
    """Plain PyTorch: AdamW, whole folders by save_pretrained, names with the step, no log."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(fork_point, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        starts = torch.randint(len(tokens) - 33, (4,))
        ids = torch.stack([tokens[int(s) : int(s) + 32] for s in starts])
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % every == 0:
            model.save_pretrained(folder / f"step_{step}")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    fork_point = make_fork_point(folder / "fork")
    corpus = small_documents(folder)
    tokens = torch.from_numpy(corpus.train.tokens.astype("int64"))
    for seed, name in enumerate(["first", "second"]):
        somebody_elses_script(folder / name, fork_point, tokens, seed=seed)
    found = scan_branches([folder / "first", folder / "second"], fork_point=fork_point, tokens_per_step=128)
    save_branches(found, folder / "found.yaml")
    (folder / "documents.txt").write_text("the corpus is handed over below\n")
    with (folder / "found.yaml").open("a") as file:
        file.write(SETTINGS)
    return run_study(load_study(folder / "found.yaml"), corpus=corpus, cache=folder / "cache")


def test_a_foreign_run_starts_after_training(foreign):
    assert {branch.status for branch in foreign.records.require(TrainRecord).branches} == {"foreign"}
    assert not (foreign.setup.output / "branches").exists()
    assert [c.tokens for c in foreign.records.require(TrainRecord).branches[0].checkpoints] == [256, 512, 768, 1024]


def test_its_models_are_chosen_on_validation_and_reported_on_test(foreign):
    rows = {row.name: row for row in foreign.records.require(RowsRecord).rows}
    assert {"single/first", "single/second", "single-merge", "trajectory-soup/limited"} <= set(rows)
    assert rows["trajectory-soup/limited"].branches == ("first", "second")
    assert {e.row for e in foreign.records.require(EvaluationsRecord).evaluations} == set(rows)


def test_the_soup_of_foreign_runs_is_a_folder_with_provenance(foreign):
    assert (foreign.soup / "soup.json").is_file()
    assert (foreign.soup / "config.json").is_file()


def test_the_sweeps_of_a_foreign_study_leave_records(foreign):
    assert set(foreign.records.every(SweepRecord)) == {"selections", "scaling"}
    assert foreign.records.require(TheoryRecord).cells


def test_the_tolerance_that_scan_wrote_is_that_of_the_screen(foreign, tmp_path):
    text = foreign.setup.path.read_text().replace(", tolerance: 0.5", "").replace("tolerance: 0.01", "tolerance: 0.02")
    again = foreign.setup.path.with_name("again.yaml")
    again.write_text(text)
    assert load_study(again).evaluation.tolerance == 0.02


LOSSES = {"first": [2.0, 1.9, 1.8, 1.7], "second": [2.1, 1.95, 1.85, 1.75]}  # as a trainer would have logged them


@pytest.fixture(scope="module")
def without_train(foreign):
    """The same runs with the losses they logged, and a corpus of documents to score on alone."""
    found = load_branches(foreign.setup.path)
    logged = replace(
        found,
        branches=tuple(
            replace(
                b,
                checkpoints=tuple(
                    replace(s, train_loss=loss) for s, loss in zip(b.checkpoints, LOSSES[b.name], strict=True)
                ),
            )
            for b in found.branches
        ),
    )
    path = foreign.setup.path.with_name("logged.yaml")
    save_branches(logged, path)
    documents = "corpus: {validation: documents.txt, test: documents.txt}"
    path.write_text(path.read_text() + SETTINGS.replace("corpus: {train: documents.txt}", documents))
    corpus = small_documents(path.parent)
    empty = TokenSet(tokens=corpus.train.tokens[:0], starts=corpus.train.starts[:1], digest="0" * 64)
    return run_study(load_study(path), corpus=replace(corpus, train=empty), cache=path.parent / "cache")


def test_without_training_documents_the_screen_compares_what_the_runs_logged(without_train):
    screen = without_train.records.require(ScreenRecord)
    assert screen.measured_on == "mean of the training losses that each run logged since its checkpoint before"
    assert {v.branch: v.loss for v in screen.verdicts} == {"first": 1.7, "second": 1.75}
    assert all(c.probe_loss is None for c in without_train.records.require(ValidationRecord).checkpoints)
    assert (without_train.soup / "soup.json").is_file()


def test_a_study_of_existing_runs_warns_of_text_that_they_have_seen(foreign, without_train):
    split_off, named = (ran.records.require(PlanRecord).notes[-1] for ran in (foreign, without_train))
    assert named.startswith("test documents that the runs were trained on would flatter them")
    assert split_off == f"{named}, and these were split off `train`"


def test_runs_that_logged_nothing_need_training_documents_for_the_screen(foreign):
    path = foreign.setup.path.with_name("nothing.yaml")
    path.write_text(foreign.setup.path.read_text().replace("{train: doc", "{validation: documents.txt, test: doc"))
    with pytest.raises(StudyError, match=r"'first' logged no training loss.*add `train` to the corpus"):
        load_study(path)
