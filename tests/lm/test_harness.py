import json
import shutil

import numpy as np
import pytest

from tests.lm.tiny_models import llama_config, make_model
from trajsoup.core.splits import Split
from trajsoup.core.statistics import compare_tasks
from trajsoup.errors import ScoreError
from trajsoup.lm.tasks.items import items
from trajsoup.lm.tasks.mid_training import SUITE
from trajsoup.lm.tasks.scoring import prepare_items, score_suite
from trajsoup.lm.tokenizer import END_OF_TEXT, train_tokenizer

pytest.importorskip("lm_eval")
from trajsoup.lm.harness import Harness, HarnessSettings, chosen_tasks, find_tasks, require_local

ADDITION = next(task for task in SUITE if task.name.endswith("addition"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer((f"{i}+{i}={2 * i}\n" for i in range(100)), folder, vocab_size=300)
    return folder


def write_task(folder, *, name="sums", metric="acc", count=12):
    """Addition as an lm-eval task: the embedded items in a YAML file of its own."""
    folder.mkdir(exist_ok=True)
    found = items(ADDITION, split=Split.VALIDATION, count=count)
    lines = [
        {"q": END_OF_TEXT + i.prompt, "options": [f"{o}\n" for o in i.options], "gold": i.options.index(i.answer)}
        for i in found
    ]
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    yaml = folder / f"{name}.yaml"
    yaml.write_text(
        f"task: {name}\n"
        "dataset_path: json\n"
        f"dataset_kwargs: {{data_files: {{test: {folder / name}.jsonl}}}}\n"
        "output_type: multiple_choice\n"
        "test_split: test\n"
        'doc_to_text: "{{q}}"\n'
        'doc_to_choice: "{{options}}"\n'
        'doc_to_target: "{{gold}}"\n'
        'target_delimiter: ""\n'
        f"metric_list: [{{metric: {metric}, aggregation: mean, higher_is_better: true}}]\n"
    )
    return yaml, found


def test_lm_eval_and_the_embedded_scorer_agree_item_by_item_and_follow_swapped_weights(tmp_path, tokenizer):
    yaml, found = write_task(tmp_path / "task", count=20)
    suite = prepare_items([(ADDITION, found)], tokenizer=tokenizer, split=Split.VALIDATION)
    live = make_model(llama_config(300), seed=1)
    settings = HarnessSettings(tasks=(str(yaml),), categories={str(yaml): "mathematics"})
    harness = Harness(live, tokenizer=tokenizer, tasks=find_tasks(settings))
    seen = []
    for seed in (1, 2, 3):
        live.load_state_dict(make_model(llama_config(300), seed=seed).state_dict())
        (result,) = harness.score()
        assert result.category == "mathematics"
        assert result.correct.tolist() == score_suite(live, suite)[0].correct.tolist()
        seen.append(result.correct)
    assert not all(np.array_equal(seen[0], other) for other in seen[1:])


def test_arguments_are_passed_through(tmp_path, tokenizer):
    yaml, _ = write_task(tmp_path / "task")
    settings = HarnessSettings(tasks=(str(yaml),), arguments={"limit": 5}, model_arguments={"batch_size": 2})
    (result,) = Harness(make_model(llama_config(300)), tokenizer=tokenizer, tasks=find_tasks(settings)).score()
    assert len(result.correct) == 5


def test_tasks_that_want_the_network_are_refused_together_before_anything_runs():
    leaves = {
        "arc": {"dataset_path": "nobody/no-such-dataset"},
        "mine": {"dataset_path": "json", "dataset_kwargs": {"data_files": "https://example.org/a.json"}},
        "python": {"class": "Whatever"},
    }
    with pytest.raises(
        ScoreError, match=r"3 lm-eval tasks want the network.*arc \(nobody/.*mine .*python .*allow_network"
    ):
        require_local(leaves)


def test_data_files_that_do_not_exist_are_named():
    with pytest.raises(ScoreError, match=r"reads nowhere\.jsonl, which does not exist"):
        require_local({"mine": {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "nowhere.jsonl"}}}})


def test_an_unknown_metric_file_or_shape_is_one_message(tmp_path, tokenizer):
    model = make_model(llama_config(300))
    with pytest.raises(ScoreError, match="no lm-eval task file"):
        find_tasks(HarnessSettings(tasks=(str(tmp_path / "missing.yaml"),)))
    with pytest.raises(ScoreError, match="at least one"):
        find_tasks(HarnessSettings(tasks=()))
    yaml, _ = write_task(tmp_path / "task")
    settings = HarnessSettings(tasks=(str(yaml),), metrics={str(yaml): "bleu"})
    with pytest.raises(ScoreError, match=r"no metric 'bleu' \(it has: acc\)"):
        Harness(model, tokenizer=tokenizer, tasks=find_tasks(settings)).score()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "wrong.yaml").write_text("nothing: here\n")
    wrong = str(tmp_path / "other" / "wrong.yaml")
    with pytest.raises(ScoreError, match="not an lm-eval task"):
        find_tasks(HarnessSettings(tasks=(wrong,)))


def test_presets_expand_to_the_tasks_that_lm_eval_has():
    found = chosen_tasks(["paper-16", "my_task"])
    assert found["ifeval"] == "instruction following"
    assert found["my_task"] == "lm-eval"


def test_a_model_of_nan_has_as_many_items_as_any_other(tmp_path, tokenizer):
    yaml, _ = write_task(tmp_path / "task")
    for arguments in ({}, {"limit": 5}, {"limit": 0.3}):
        tasks = find_tasks(HarnessSettings(tasks=(str(yaml),), arguments=arguments))
        harness = Harness(make_model(llama_config(300)), tokenizer=tokenizer, tasks=tasks)
        (scored,), (nothing,) = harness.score(), harness.nothing()
        assert len(nothing.correct) == len(scored.correct)
        assert np.isnan(compare_tasks([nothing], [scored]).difference)


def test_the_digest_follows_the_content_of_task_data_and_included_files_and_not_their_place(tmp_path):
    yaml, _ = write_task(tmp_path / "task")

    def digest(folder=tmp_path / "task"):
        return find_tasks(HarnessSettings(tasks=(str(folder / "sums.yaml"),))).digest

    seen = [digest()]
    with (tmp_path / "task" / "sums.jsonl").open("a") as data:
        data.write("\n" + json.dumps({"q": "1+1=", "options": ["2", "3"], "gold": 0}))
    seen.append(digest())
    (tmp_path / "shared.yaml").write_text("num_fewshot: 0\n")
    yaml.write_text(yaml.read_text() + "include: ../shared.yaml\n")
    seen.append(digest())
    (tmp_path / "shared.yaml").write_text("num_fewshot: 1\n")
    seen.append(digest())
    assert len(set(seen)) == 4
    shutil.copytree(tmp_path / "task", tmp_path / "moved")
    assert digest(tmp_path / "moved") == seen[-1]


@pytest.mark.slow
def test_installed_tasks_are_found_by_name_and_those_without_data_refused():
    with pytest.raises(ScoreError, match=r"want the network.*arc_easy"):
        find_tasks(HarnessSettings(tasks=("arc_easy", "mmlu")))
    with pytest.raises(ScoreError, match=r"no task 'arc_eazy': did you mean 'arc_easy'"):
        find_tasks(HarnessSettings(tasks=("arc_eazy",)))


def test_git_is_not_asked(tmp_path, tokenizer, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no repository: git would say so on the terminal, once for every pass
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    yaml, _ = write_task(tmp_path / "task", count=2)
    settings = HarnessSettings(tasks=(str(yaml),))
    Harness(make_model(llama_config(300)), tokenizer=tokenizer, tasks=find_tasks(settings)).score()
    assert "not a git repository" not in capfd.readouterr().err
