from pathlib import Path

import pytest

from tests.study.studies import SMALL, write_study
from trajsoup.errors import StudyError
from trajsoup.lm.paper_suites import MID_TRAINING
from trajsoup.store.fields import At, read
from trajsoup.study.file.evaluation import EvaluationPlan
from trajsoup.study.file.lm_eval import LmEval, harness_settings, left_out, require_tasks
from trajsoup.study.file.study import load_training_study


def parse_lm_eval(data):
    return read(LmEval, data, where=At("study.yaml: evaluate: lm_eval"))


def test_a_preset_becomes_the_tasks_that_lm_eval_has_with_the_papers_categories():
    named = parse_lm_eval({"report": ["paper-41"]})
    choose, report = harness_settings(named, base=Path("study"))
    assert choose is None
    assert set(report.tasks) == {c.task for c in MID_TRAINING if c.task is not None}
    assert report.categories["gsm8k"] == "mathematics"


def write_group(folder):
    (folder / "sums.jsonl").write_text('{"q": "1+1=", "gold": 0}\n')
    (folder / "sums.yaml").write_text(
        "task: sums\ndataset_path: json\noutput_type: multiple_choice\ntest_split: test\n"
        f"dataset_kwargs: {{data_files: {{test: {folder}/sums.jsonl}}}}\n"
        'doc_to_text: "{{q}}"\ndoc_to_choice: ["2", "3"]\ndoc_to_target: "{{gold}}"\n'
    )
    (folder / "arithmetic.yaml").write_text("group: own_arithmetic\ntask: [sums]\n")


def test_a_task_must_not_both_choose_and_report_even_inside_a_group(tmp_path):
    pytest.importorskip("lm_eval")
    write_group(tmp_path)
    require_tasks(parse_lm_eval({"choose": ["sums.yaml"]}), base=tmp_path)
    named = parse_lm_eval({"choose": ["sums.yaml"], "report": ["arithmetic.yaml"]})
    with pytest.raises(StudyError, match=r"lm-eval task sums is below both"):
        require_tasks(named, base=tmp_path)


def test_what_lm_eval_does_not_have_of_a_preset_is_left_out_with_a_word():
    (note,) = left_out(parse_lm_eval({"report": ["paper-16", "arc_easy"]}))
    assert "of paper-16, left out:" in note
    assert "BFCL v4" in note
    assert left_out(None) == ()


def test_task_files_are_relative_to_the_study_and_arguments_pass_through():
    data = {"choose": "tasks/sums.yaml", "metrics": {"tasks/sums.yaml": "acc_norm"}, "arguments": {"limit": 5}}
    choose, report = harness_settings(parse_lm_eval(data), base=Path("/study"))
    assert report is None
    assert choose.tasks == ("/study/tasks/sums.yaml",)
    assert choose.metrics == {"/study/tasks/sums.yaml": "acc_norm"}
    assert choose.arguments == {"limit": 5}
    assert choose.allow_network is False


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "names no task"),
        ({"report": [1]}, "report is 1: write it as text"),
        ({"report": ["a"], "arguments": 3}, "arguments is 3"),
        ({"report": ["a"], "allow_network": "yes"}, "use true or false"),
        ({"tasks": ["a"]}, "tasks"),
    ],
)
def test_a_wrong_section_is_one_message(data, message):
    with pytest.raises(StudyError, match=message):
        parse_lm_eval(data)


def parse_evaluation(data):
    return read(EvaluationPlan, data, where=At("study.yaml: evaluate"))


def test_forced_branches_and_the_baseline_must_exist(tmp_path):
    found = parse_evaluation({"force": "EXP3", "baseline": "EXP2"})
    assert (found.force, found.baseline) == (("EXP3",), "EXP2")
    for line in ("force: [EXP9]", "baseline: EXP9"):
        with pytest.raises(StudyError, match=r"evaluate: there is no branch 'EXP9': the branches are EXP1, EXP2"):
            load_training_study(write_study(tmp_path, f"{SMALL}    evaluate: {{{line}}}\n"))


def test_tasks_that_may_choose_can_rank_by_accuracy_without_the_embedded_suite():
    data = {"rank_by": "accuracy", "lm_eval": {"choose": ["arc_easy"]}}
    assert parse_evaluation(data).rank_by == "accuracy"
    with pytest.raises(StudyError, match="needs `items`"):
        parse_evaluation({**data, "lm_eval": {"report": ["arc_easy"]}})
