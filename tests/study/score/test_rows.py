import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.lm.tiny_models import llama_config, make_model, save_checkpoints
from trajsoup.core.choosing import choose
from trajsoup.core.scores import TestScores, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.errors import CorpusError, OutputError, ScoreError
from trajsoup.lm.corpus import CorpusSpec, load_corpus
from trajsoup.lm.harness import HarnessSettings
from trajsoup.lm.live import load_model
from trajsoup.lm.tasks.mid_training import SUITE
from trajsoup.lm.validate import document_losses
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.study.file.evaluation import EvaluationPlan
from trajsoup.study.score import rows as score
from trajsoup.study.score.rows import ScoreSettings
from trajsoup.study.score.scorer import Scorer, dtype_of, make_scorer, window_of

SETTINGS = ScoreSettings(suite=SUITE[:2], items_each=10)
ROWS = [Row(name="first", weights={"c1": 1.0}), Row(name="mean", weights={"c1": 0.5, "c2": 0.5})]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    for i in range(60):
        (folder / f"{i:02}.txt").write_text(f"document {i} says {i * i} and {i**3}.\n" * (1 + i % 4))
    return load_corpus(CorpusSpec(train=(folder,), vocab_size=300), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def checkpoints(tmp_path):
    return save_checkpoints(tmp_path / "in", llama_config(300), count=3)


@pytest.fixture
def passes(monkeypatch):
    """Counts the models that were really run."""
    found = []
    original = score._run
    monkeypatch.setattr(score, "_run", lambda *arguments: found.append(1) or original(*arguments))
    return found


def diverged(scores):
    return {name for name, s in scores.items() if not math.isfinite(s.losses.loss())}


def test_a_row_scores_what_the_loaded_model_scores(tmp_path, corpus, checkpoints):
    scores = Scorer(checkpoints=checkpoints, corpus=corpus, folder=tmp_path / "r", settings=SETTINGS).validate(ROWS)
    expected = document_losses(load_model(checkpoints["c1"]), corpus.validation)
    assert scores["first"].losses.nll.tolist() == expected.nll.tolist()
    assert scores["mean"].losses.loss() != scores["first"].losses.loss()
    assert [task.name for task in scores["mean"].tasks] == [task.name for task in SUITE[:2]]


def test_nothing_is_scored_twice_whatever_its_name(tmp_path, corpus, checkpoints, passes):
    arguments = {"checkpoints": checkpoints, "corpus": corpus, "folder": tmp_path / "r", "settings": SETTINGS}
    first = Scorer(**arguments).validate(ROWS)
    again = Scorer(**arguments).validate([*ROWS, Row(name="the same", weights={"c2": 0.5, "c1": 0.5})])
    assert len(passes) == 2
    assert again["the same"].losses.loss() == first["mean"].losses.loss()


def test_the_loss_alone_of_a_model_that_answered_items_is_not_scored_again(tmp_path, corpus, checkpoints, passes):
    scorer = Scorer(checkpoints=checkpoints, corpus=corpus, folder=tmp_path / "r", settings=SETTINGS)
    whole = scorer.validate(ROWS[:1])
    alone = scorer.validate([Row(name="other", weights={"c1": 1.0}), ROWS[1]], tasks=False)
    assert len(passes) == 2
    assert alone["other"].losses.nll.tolist() == whole["first"].losses.nll.tolist()
    assert alone["other"].tasks == alone["mean"].tasks == ()


def test_rows_of_sweeps_answer_as_many_items_as_the_study_says(tmp_path, corpus, checkpoints):
    arguments = {"checkpoints": checkpoints, "corpus": corpus, "folder": tmp_path / "r"}
    fewer = Scorer(**arguments, settings=dataclasses.replace(SETTINGS, sweep_items=4))
    main, swept = fewer.test(ROWS)["mean"], fewer.for_sweeps.test(ROWS)["mean"]
    drawn = [(len(a.correct), len(b.correct)) for a, b in zip(main.tasks, swept.tasks, strict=True)][:2]
    assert drawn == [(10, 4), (10, 4)]
    assert [t.correct[:4].tolist() for t in main.tasks[:2]] == [t.correct.tolist() for t in swept.tasks[:2]]
    same = Scorer(**arguments, settings=SETTINGS)
    assert same.for_sweeps is same


def test_a_killed_run_goes_on_with_the_next_row(tmp_path, corpus, checkpoints, passes, monkeypatch):
    rows = [Row(name=key, weights={key: 1.0}) for key in checkpoints]
    arguments = {"checkpoints": checkpoints, "corpus": corpus, "folder": tmp_path / "r", "settings": SETTINGS}

    def killed(what, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Scorer(**arguments, progress=killed).validate(rows)
    assert len(passes) == 2
    Scorer(**arguments).validate(rows)
    assert len(passes) == 3
    undisturbed = arguments | {"folder": tmp_path / "other"}
    Scorer(**undisturbed).validate(rows)
    for path in (tmp_path / "other" / "validation").iterdir():
        assert path.read_bytes() == (tmp_path / "r" / "validation" / path.name).read_bytes()


def test_a_record_that_cannot_be_written_ends_the_scoring(tmp_path, corpus, checkpoints, passes, monkeypatch):
    def full(*given, **named):
        raise OutputError("No space left on device")

    monkeypatch.setattr("trajsoup.store.scores.write_atomic", full)
    with pytest.raises(OutputError, match="No space left"):
        Scorer(checkpoints=checkpoints, corpus=corpus, folder=tmp_path / "r", settings=SETTINGS).validate(
            [Row(name=key, weights={key: 1.0}) for key in checkpoints]
        )
    assert len(passes) <= 2


def test_changed_weights_are_scored_anew(tmp_path, corpus, checkpoints, passes):
    arguments = {"corpus": corpus, "folder": tmp_path / "r", "settings": ScoreSettings()}
    before = Scorer(checkpoints=checkpoints, **arguments).validate(ROWS[:1])
    make_model(llama_config(300), seed=5).save_pretrained(checkpoints["c1"].folder)
    changed = {"c1": open_checkpoint(checkpoints["c1"].folder)}
    after = Scorer(checkpoints=changed, **arguments).validate(ROWS[:1])
    assert len(passes) == 2
    assert before["first"].losses.loss() != after["first"].losses.loss()


def test_scoring_writes_only_records(tmp_path, corpus, checkpoints):
    Scorer(checkpoints=checkpoints, corpus=corpus, folder=tmp_path / "r", settings=SETTINGS).validate(ROWS)
    written = [p for p in tmp_path.rglob("*") if p.is_file() and (tmp_path / "in") not in p.parents]
    assert {p.suffix for p in written} == {".json"}


def test_test_scores_have_their_own_type_documents_and_items(tmp_path, corpus, checkpoints):
    arguments = {"checkpoints": checkpoints, "corpus": corpus, "folder": tmp_path / "r", "settings": SETTINGS}
    validation, test = Scorer(**arguments).validate(ROWS), Scorer(**arguments).test(ROWS)
    assert {type(s) for s in validation.values()} == {ValidationScores}
    assert {type(s) for s in test.values()} == {TestScores}
    assert len(test["mean"].losses.nll) == corpus.test.n_documents
    assert not np.array_equal(validation["mean"].losses.nll, test["mean"].losses.nll)
    with pytest.raises(ScoreError, match="validation scores only"):
        choose(test)


def test_a_diverged_checkpoint_scores_nan_and_spoils_no_other(tmp_path, corpus, checkpoints):
    model = make_model(llama_config(300))
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    model.save_pretrained(tmp_path / "in" / "bad")
    checkpoints["bad"] = open_checkpoint(tmp_path / "in" / "bad")
    rows = [Row(name="bad", weights={"bad": 1.0}), *ROWS, Row(name="spoilt", weights={"bad": 0.5, "c1": 0.5})]
    scores = Scorer(checkpoints=checkpoints, corpus=corpus, folder=tmp_path / "r", settings=SETTINGS).validate(rows)
    assert diverged(scores) == {"bad", "spoilt"}
    assert math.isnan(scores["bad"].overall_average)
    assert choose(scores).among == len(ROWS)
    assert choose(scores, rank_by=Signal.ACCURACY).name in ("first", "mean")


def with_nan(checkpoints, folder, *, names):
    for seed, name in enumerate(names):
        model = make_model(llama_config(300), seed=seed)
        with torch.no_grad():
            model.model.norm.weight[0] = float("nan")
        model.save_pretrained(folder / name)
        checkpoints[name] = open_checkpoint(folder / name)


def test_each_diverged_checkpoint_costs_one_more_read_and_not_one_for_every_row(
    tmp_path, corpus, checkpoints, monkeypatch
):
    with_nan(checkpoints, tmp_path / "in", names=("bad", "worse"))
    rows = [Row(name=f"{key}{i}", weights={key: 1 - i / 10, "c1": i / 10} if i else {key: 1.0})
            for i in range(3) for key in ("c2", "bad", "c3", "worse")]  # fmt: skip
    reads = []
    original = score.stream_rows
    monkeypatch.setattr(score, "stream_rows", lambda *given, **more: reads.append(1) or original(*given, **more))
    scores = Scorer(checkpoints=checkpoints, corpus=corpus, folder=tmp_path / "r", settings=SETTINGS).validate(rows)
    assert len(reads) == 3
    assert diverged(scores) == {row.name for row in rows if row.name.startswith(("bad", "worse"))}


def test_a_diverged_checkpoint_is_never_chosen_and_null_in_its_record(tmp_path, corpus, checkpoints):
    with_nan(checkpoints, tmp_path / "in", names=("bad",))
    rows = [Row(name=key, weights={key: 1.0}) for key in checkpoints]
    scores = Scorer(checkpoints=checkpoints, corpus=corpus, folder=tmp_path / "r", settings=SETTINGS).validate(rows)
    assert choose(scores).name != "bad"
    records = [json.loads(p.read_text()) for p in (tmp_path / "r" / "validation").glob("[0-9a-f]*.json")]
    (spoilt,) = [record for record in records if record.get("name") == "bad"]
    assert spoilt["loss_per_token"] is None
    assert spoilt["overall_average"] is None
    assert {task["accuracy"] for task in spoilt["tasks"]} == {None}
    again = Scorer(checkpoints=checkpoints, corpus=corpus, folder=tmp_path / "r", settings=SETTINGS).validate(rows)
    assert math.isnan(again["bad"].losses.loss())


def test_a_task_that_wants_the_network_is_refused_before_any_checkpoint_is_read(tmp_path, corpus):
    pytest.importorskip("lm_eval")
    task = Path(write_lm_eval_task(tmp_path))
    task.write_text(task.read_text().replace(f"{tmp_path}/sums.jsonl", "https://example.org/sums.jsonl"))
    settings = ScoreSettings(choose_with=HarnessSettings(tasks=(str(task),)))
    with pytest.raises(ScoreError, match=r"1 lm-eval tasks want the network for their data: sums \(json\)"):
        Scorer(checkpoints={}, corpus=corpus, folder=tmp_path / "r", settings=settings).validate(ROWS)
    assert not (tmp_path / "r").exists()


def test_a_model_with_another_tokenizer_is_refused(tmp_path, corpus, checkpoints):
    other = load_corpus(
        CorpusSpec(pretrain_bytes=100_000, train_bytes=100_000, task_share=0.0, vocab_size=300),
        cache=tmp_path / "cache",
    )
    (checkpoints["c1"].folder / "tokenizer.json").write_bytes((other.tokenizer / "tokenizer.json").read_bytes())
    with pytest.raises(CorpusError, match="disagree: token"):
        Scorer(checkpoints=checkpoints, corpus=corpus, folder=tmp_path / "r", settings=SETTINGS).validate(ROWS[:1])


def test_rows_must_be_told_apart_and_name_checkpoints_that_exist(tmp_path, corpus, checkpoints):
    arguments = {"checkpoints": checkpoints, "corpus": corpus, "folder": tmp_path / "r", "settings": SETTINGS}
    with pytest.raises(ScoreError, match="same name"):
        Scorer(**arguments).validate([ROWS[0], ROWS[0]])
    with pytest.raises(ScoreError, match="'c9', which is not among"):
        Scorer(**arguments).validate([Row(name="x", weights={"c9": 1.0})])


def write_lm_eval_task(folder):
    """Three questions as an lm-eval task in a YAML file."""
    (folder / "sums.jsonl").write_text("".join(json.dumps({"q": f"{i}+1=", "gold": i % 2}) + "\n" for i in range(3)))
    (folder / "sums.yaml").write_text(
        "task: sums\ndataset_path: json\noutput_type: multiple_choice\ntest_split: test\n"
        f"dataset_kwargs: {{data_files: {{test: {folder}/sums.jsonl}}}}\n"
        'doc_to_text: "{{q}}"\ndoc_to_choice: ["1", "2"]\ndoc_to_target: "{{gold}}"\ntarget_delimiter: ""\n'
        "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n"
    )
    return str(folder / "sums.yaml")


def test_lm_eval_tasks_are_scored_with_the_rows_and_never_both_choose_and_report(tmp_path, corpus, checkpoints, passes):
    pytest.importorskip("lm_eval")
    harness = HarnessSettings(tasks=(write_lm_eval_task(tmp_path),), model_arguments={"batch_size": 2})
    arguments = {"checkpoints": checkpoints, "corpus": corpus, "folder": tmp_path / "r"}
    scores = Scorer(**arguments, settings=ScoreSettings(choose_with=harness)).validate(ROWS)
    assert [len(task.correct) for task in scores["mean"].tasks] == [3]
    Scorer(**arguments, settings=ScoreSettings(choose_with=harness)).validate(ROWS)
    assert len(passes) == 2
    assert Scorer(**arguments, settings=ScoreSettings(choose_with=harness)).test(ROWS[:1])["first"].tasks == ()
    with pytest.raises(ScoreError, match=r"both for choosing and for the report"):
        Scorer(**arguments, settings=ScoreSettings(choose_with=harness, report_with=harness)).test(ROWS)


@pytest.mark.parametrize(("positions", "window"), [(128, 128), (512, 256), (2048, 2048), (131072, 8192)])
def test_the_window_is_the_models_own_context_as_far_as_a_pass_holds_it(tmp_path, positions, window):
    config = llama_config(300)
    config.max_position_embeddings = positions
    assert window_of(save_checkpoints(tmp_path, config, count=1)) == window


def test_a_bf16_model_is_scored_in_bf16_and_nearly_as_in_float32(tmp_path, corpus):
    found = save_checkpoints(tmp_path / "in", llama_config(300), count=1, dtype=torch.bfloat16)
    assert dtype_of(found) == "bfloat16"
    losses = {}
    for dtype in ("auto", "float32"):
        plan = EvaluationPlan(device="cpu", dtype=dtype, window=64)
        scorer = make_scorer(corpus, found, folder=tmp_path / dtype, evaluation=plan, base=tmp_path)
        assert (scorer.settings.device, scorer.settings.validation.window) == ("cpu", 64)
        losses[scorer.settings.dtype] = scorer.validate(ROWS[:1])["first"].losses.loss()
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.01)
    assert losses["bfloat16"] != losses["float32"]


def test_a_device_that_is_not_here_is_said_so(tmp_path, corpus, checkpoints):
    plan = EvaluationPlan(device="cuda:99")
    with pytest.raises(ScoreError, match=r"evaluate.device is 'cuda:99', which torch does not have here .*: use auto"):
        make_scorer(corpus, checkpoints, folder=tmp_path / "r", evaluation=plan, base=tmp_path).validate(ROWS[:1])
