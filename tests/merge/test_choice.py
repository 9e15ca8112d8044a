from dataclasses import replace

import numpy as np
import pytest

from trajsoup.core.methods.asking import best_of
from trajsoup.core.methods.table import METHODS, Scope, method
from trajsoup.core.scores import DocumentLosses, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.errors import ScreenError, SelectionError, UnansweredError
from trajsoup.merge.branches import Branch, Branches
from trajsoup.merge.choice import Choice, decide, row_of
from trajsoup.store.runs import Saved


def branch(name, val_losses, *, train_loss=2.0, accuracies=None, path="/runs"):
    saved = tuple(
        Saved(
            path=f"{path}/{name}/{i}",  # type: ignore[arg-type]
            step=i,
            tokens=100 * i,
            train_loss=train_loss,
            val_loss=loss,
            accuracy=accuracies[i - 1] if accuracies else None,
        )
        for i, loss in enumerate(val_losses, start=1)
    )
    return Branch(name=name, path=path, checkpoints=saved)  # type: ignore[arg-type]


def study(*branches, **settings):
    return Branches(branches=branches, baseline=branches[0].name, **settings)


def choose(*given, **answering):
    decision, verdicts, notes = decide(*given, **answering)
    return row_of(decision, given[1]), verdicts, notes


def names(row):
    return {key.removeprefix("/runs/") for key in row.weights}


A = branch("A", [2.2, 2.0, 2.4])
B = branch("B", [2.3, 2.1, 1.9], train_loss=2.01)
WORSE = branch("C", [1.0, 1.0, 1.0], train_loss=2.5)


def test_a_rejected_branch_gives_no_ingredient_however_well_it_validates():
    row, verdicts, _ = choose(study(A, B, WORSE), Choice(k=1))
    assert names(row) == {"A/2", "B/3"}
    assert [(v.branch, v.admitted) for v in verdicts] == [("A", True), ("B", True), ("C", False)]


def test_the_tolerance_of_the_choice_wins_over_the_studys():
    assert names(choose(study(A, WORSE, tolerance=0.3), Choice(k=1))[0]) == {"A/2", "C/1"}
    assert names(choose(study(A, WORSE, tolerance=0.3), Choice(k=1, tolerance=0.2))[0]) == {"A/2"}
    assert names(choose(study(A, B), Choice(k=1, tolerance=0.0))[0]) == {"A/2"}  # zero is a tolerance, not "unset"


def test_the_screen_compares_at_the_horizon():
    late = branch("L", [2.0, 2.0, 2.0], train_loss=9.0).checkpoints[1:]
    first = branch("L", [2.0]).checkpoints
    diverged = Branch(name="L", path=A.path, checkpoints=(*first, *late))
    assert names(choose(study(A, diverged), Choice(k=1))[0]) == {"A/2"}
    assert names(choose(study(A, diverged), Choice(k=1, horizon=100))[0]) == {"A/1", "L/1"}


def test_one_branch_alone_is_not_screened():
    unscored = branch("A", [2.0, 2.1], train_loss=None)
    row, verdicts, _ = choose(study(unscored), Choice(k=1))
    assert verdicts == ()
    assert names(row) == {"A/1"}


def test_a_single_merge_takes_the_branch_whose_k_best_validate_best_and_says_so():
    row, _, notes = choose(study(A, B), Choice(strategy="single-merge", k=2))
    assert names(row) == {"B/3", "B/2"}  # (1.9 + 2.1) / 2 against (2.0 + 2.2) / 2
    assert notes[-1:] == ("single-merge takes branch 'B', whose K best checkpoints validate best on average",)


def test_a_single_merge_by_accuracy_takes_the_highest():
    low, high = branch("A", [1, 1], accuracies=[0.1, 0.2]), branch("B", [9, 9], accuracies=[0.3, 0.2])
    row, _, _ = choose(study(low, high), Choice(strategy="single-merge", k=1, rank_by=Signal.ACCURACY))
    assert names(row) == {"B/1"}


def test_a_single_merge_of_a_named_branch():
    row, _, notes = choose(study(A, B), Choice(strategy="single-merge", k=1, branch="A"))
    assert names(row) == {"A/2"}
    assert notes == ()
    with pytest.raises(SelectionError, match=r"no admitted branch 'C': choose from A, B"):
        choose(study(A, B, WORSE), Choice(strategy="single-merge", k=1, branch="C"))


def test_a_branch_without_a_single_merge_is_refused():
    with pytest.raises(
        SelectionError,
        match=r"--branch names the one branch of a method that merges one, and trajectory-soup merges all",
    ):
        choose(study(A, B), Choice(k=1, branch="A"))


def test_a_k_that_does_nothing_is_noted():
    _, _, notes = choose(study(A), Choice(strategy="full-soup", k=2))
    assert notes == ("--k 2 has no effect on selection 'all'",)


def test_nothing_admitted_is_an_error_with_the_remedies():
    with pytest.raises(ScreenError, match=r"no branch passed the screen: raise --tolerance"):
        choose(study(A, B), Choice(k=1, tolerance=-0.1))


@pytest.mark.parametrize(
    ("strategy", "select"), [("model-soup", "top-k"), ("full-soup", "tail-k"), ("trajectory-soup", "final")]
)
def test_a_method_and_a_selection_that_would_make_it_another_are_refused(strategy, select):
    with pytest.raises(SelectionError, match=rf"{strategy} is defined by .*leave out one of --method and --select"):
        Choice(strategy=strategy, select=select, k=2)


@pytest.mark.parametrize(
    ("select", "method"), [("final", "model-soup"), ("all", "full-soup"), ("tail-k", "trajectory-soup")]
)
def test_a_selection_alone_is_the_method_that_it_defines(select, method):
    choice = Choice(select=select, k=2)
    row, _, _ = choose(study(A, B), choice)
    assert (choice.method.name, choice.rule, row.name) == (method, select, method)


def test_weights_that_mean_nothing_to_a_method_are_refused():
    with pytest.raises(
        SelectionError, match=r"coefficients 'rank' weigh ranks inside a branch, which model-soup does not"
    ):
        Choice(strategy="model-soup", coefficients="rank")


def test_raw_checkpoints_are_methods_too():
    assert names(choose(study(A, B), Choice(strategy="raw-best"))[0]) == {"B/3"}
    assert names(choose(study(A, B), Choice(strategy="raw-best", horizon=200))[0]) == {"A/2"}
    assert names(choose(study(A, B), Choice(strategy="raw-final"))[0]) == {"A/3"}


def asks_for_the_mean(freedom):
    """All of it, if that scores better than the best checkpoint."""
    (stop,) = freedom.stops
    every = [c.key for pool in freedom.at(stop) for c in pool.candidates]
    rows = [freedom.option({key: 1 / len(keys) for key in keys}, stop=stop) for keys in (every[:1], every)]
    return best_of(rows, rank_by=freedom.rank_by, free=("checkpoints",))


def test_a_method_that_asks_for_scores_of_merges_needs_somebody_who_scores(request):
    method(name="asks", label="Asks", reference="a test", scope=Scope.SEVERAL)(asks_for_the_mean)
    request.addfinalizer(lambda: METHODS.remove("asks"))
    with pytest.raises(UnansweredError, match=r"asks asks how 1 merged models score, .*--validation FILE"):
        choose(study(A, B), Choice(strategy="asks"))

    def scoring(rows):
        return {
            r.name: ValidationScores(losses=DocumentLosses(nll=np.array([-len(r.weights)]), targets=np.array([1])))
            for r in rows
        }

    row, _, _ = choose(study(A, B), Choice(strategy="asks"), scoring=scoring)
    assert len(row.weights) == 6


def test_steps_stand_in_for_tokens_where_these_are_unknown():
    stepped = Branch(
        name="A",
        path=A.path,
        checkpoints=tuple(Saved(path=s.path, step=s.step, val_loss=s.val_loss) for s in A.checkpoints),
    )
    row, _, _ = choose(study(stepped), Choice(k=1, horizon=1))
    assert names(row) == {"A/1"}


def test_a_rejected_branch_can_be_forced_in_by_the_study_or_the_command_and_is_said_to_be():
    for row, verdicts, notes in (
        choose(study(A, WORSE), Choice(k=1, force=("C",))),
        choose(study(A, WORSE, force=("C",)), Choice(k=1)),
    ):
        assert names(row) == {"A/2", "C/1"}
        assert [v.forced for v in verdicts] == [False, True]
        assert any("C is forced in although" in note for note in notes)
    with pytest.raises(ScreenError, match=r"cannot force in X: the branches are A, C"):
        choose(study(A, WORSE), Choice(k=1, force=("X",)))


def test_the_window_of_smoothing_is_the_distance_to_the_checkpoint_before():
    logged = Branch(name="L", path=A.path, checkpoints=tuple(replace(s, losses_logged=7) for s in A.checkpoints))
    _, verdicts, _ = choose(study(logged, B), Choice(k=1))
    assert [v.window_tokens for v in verdicts] == [100, None]


def test_a_method_that_orders_checkpoints_by_score_says_who_could_score_them():
    silent = study(branch("A", [None, None, 2.0]), branch("B", [2.3, 2.1, 1.9], train_loss=2.01))
    with pytest.raises(UnansweredError, match=r"greedy-soup .* no validation loss of 2 of 6: .*--validation FILE"):
        choose(silent, Choice(strategy="greedy-soup"))
