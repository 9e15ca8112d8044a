"""Runs without validation losses: the end of each branch, or documents that rank it."""

import numpy as np
import pytest

from tests.runs import write_run
from trajsoup.core.scores import DocumentLosses, ValidationScores
from trajsoup.errors import SelectionError
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.choice import Choice
from trajsoup.merge.plan import plan_soup


@pytest.fixture
def study(tmp_path):
    runs = [write_run(tmp_path / name, val_losses=[2.0] * 6, seed=seed) for seed, name in ((1, "a"), (2, "b"))]
    for run in runs:
        rows = "".join(f"{step},{100 * step},2.5\n" for step in range(10, 70, 10))
        (run / "metrics.csv").write_text(f"step,tokens,train_loss\n{rows}")
    return scan_branches(runs)


def chosen(plan):
    return sorted((c.branch, c.tokens) for key, c in plan.candidates.items() if key in plan.row.weights)


def test_the_usual_soup_takes_the_end_of_each_branch_and_says_so(study):
    plan = plan_soup(study, Choice())
    assert chosen(plan) == [(name, 100 * step) for name in "ab" for step in (30, 40, 50, 60)]
    assert plan.choice.rule == "tail-k"
    said = "\n".join(plan.notes)
    assert "12 of 12 checkpoints have no validation loss in their logs, so the last of each branch are taken" in said
    assert "--validation FILE would rank them" in said
    assert "K = 4: as in the paper" in said


@pytest.mark.parametrize("asked", [{"select": "top-k"}, {"strategy": "trajectory-soup"}])
def test_a_ranking_that_was_asked_for_is_not_replaced(study, asked):
    with pytest.raises(SelectionError, match="12 of 12 checkpoints have no validation loss"):
        plan_soup(study, Choice(k=2, **asked))


def test_of_several_validation_losses_one_must_be_named(tmp_path):
    run = write_run(tmp_path / "a", val_losses=[2.0, 2.1])
    (run / "metrics.csv").write_text("step,train_loss,eval_wiki_loss,eval_code_loss\n10,2.5,2.1,3.2\n20,2.4,2.2,3.1\n")
    with pytest.raises(
        SelectionError, match=r"2 validation losses, eval_code_loss, eval_wiki_loss: name one with --metric"
    ):
        plan_soup(scan_branches([run]), Choice(k=1))
    plan = plan_soup(scan_branches([run], metric="eval_wiki_loss"), Choice(k=1))
    assert [key.rsplit("-", 1)[1] for key in plan.row.weights] == ["10"]


def test_documents_at_hand_rank_checkpoints_that_nobody_evaluated(study):
    asked = []

    def scoring(rows):
        """The second checkpoint of each branch is the best; nothing is better than its members."""
        asked.extend(row for row in rows if len(row.weights) == 1)
        costs = {row.name: max("checkpoint-20" not in key for key in row.weights) for row in rows}
        return {
            name: ValidationScores(losses=DocumentLosses(nll=np.array([2.0 + cost]), targets=np.array([1])))
            for name, cost in costs.items()
        }

    plan = plan_soup(study, Choice(k=1), scoring=scoring)
    assert len({next(iter(row.weights)) for row in asked}) == 12
    assert chosen(plan) == [("a", 2000), ("b", 2000)]
    assert {c.val_loss for key, c in plan.candidates.items() if key in plan.row.weights} == {2.0}  # for soup.json
    assert "all are scored on the documents of --validation" in "\n".join(plan.notes)
