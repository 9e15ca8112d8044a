import importlib
import inspect
import math
import pkgutil
import typing

import numpy as np
import pytest

import trajsoup.core
from trajsoup.core import statistics
from trajsoup.core.choosing import choose
from trajsoup.core.pool import Candidate, Pool, ranked
from trajsoup.core.scores import DocumentLosses, TaskResult, TestScores, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.core.soup import soup_row
from trajsoup.errors import ScoreError

CHOOSING = ("pool", "selection", "coefficients", "soup", "screening", "choosing")


def scores_of(kind, loss, *accuracies):
    tasks = tuple(TaskResult(name=f"t{i}", category="c", correct=np.array([a])) for i, a in enumerate(accuracies))
    return kind(losses=DocumentLosses(nll=np.array([loss]), targets=np.array([1])), tasks=tasks)


def pool_of(**losses):
    found = enumerate(losses.items(), start=1)
    candidates = tuple(Candidate(key=key, branch="EXP1", tokens=i, val_loss=loss) for i, (key, loss) in found)
    return Pool(branch="EXP1", candidates=candidates)


def mentions(hint, wanted):
    return hint is wanted or any(mentions(argument, wanted) for argument in typing.get_args(hint))


def functions(module):
    return [f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]


def test_no_function_that_chooses_can_receive_test_scores():
    for name in CHOOSING:
        module = importlib.import_module(f"trajsoup.core.{name}")
        assert TestScores not in vars(module).values(), name
        for function in functions(module):
            for parameter, hint in typing.get_type_hints(function).items():
                assert not mentions(hint, TestScores), f"{name}.{function.__name__}({parameter})"
                assert not issubclass(TestScores, hint if isinstance(hint, type) else ())


def test_the_check_above_would_notice():
    found = [f for f in functions(statistics) for h in typing.get_type_hints(f).values() if mentions(h, TestScores)]
    assert statistics.optimism in found
    known = {module.name for module in pkgutil.iter_modules(trajsoup.core.__path__)}
    assert set(CHOOSING) <= known


def test_validation_scores_are_not_test_scores_nor_the_other_way_round():
    assert not issubclass(TestScores, ValidationScores)
    assert not issubclass(ValidationScores, TestScores)


def test_test_scores_are_refused_at_run_time_too():
    with pytest.raises(ScoreError, match=r"a comes with TestScores.*validation scores only"):
        choose({"a": scores_of(TestScores, 1.0, 0.5)})


def test_the_best_is_chosen_by_loss_or_by_accuracy():
    scores = {"a": scores_of(ValidationScores, 1.0, 0.2), "b": scores_of(ValidationScores, 2.0, 0.9)}
    assert choose(scores).name == "a"
    assert choose(scores, rank_by=Signal.ACCURACY).name == "b"
    assert choose(scores).score == 1.0


def test_ties_go_to_the_first():
    scores = {"k2": scores_of(ValidationScores, 1.0), "k4": scores_of(ValidationScores, 1.0)}
    assert choose(scores).name == "k2"


def test_a_nan_is_never_chosen_by_either_signal():
    scores = {
        "nan": scores_of(ValidationScores, math.nan, math.nan),
        "inf": scores_of(ValidationScores, math.inf, 0.1),
        "fine": scores_of(ValidationScores, 9.0, 0.0),
    }
    assert (choose(scores).name, choose(scores).among) == ("fine", 1)
    assert (choose(scores, rank_by=Signal.ACCURACY).name, choose(scores, rank_by=Signal.ACCURACY).among) == ("inf", 2)
    with pytest.raises(ScoreError, match="none can be chosen"):
        choose({"nan": scores["nan"]})


def test_a_nan_checkpoint_is_left_out_of_the_ranking_and_of_every_soup():
    pool = pool_of(a=2.0, b=math.nan, c=1.0)
    assert [c.key for c in ranked(pool.candidates, rank_by=Signal.LOSS)] == ["c", "a"]
    assert set(soup_row([pool], k=2).weights) == {"a", "c"}


def test_a_missing_signal_and_an_empty_choice_are_refused():
    with pytest.raises(ScoreError, match="a has no validation accuracy"):
        choose({"a": scores_of(ValidationScores, 1.0)}, rank_by=Signal.ACCURACY)
    with pytest.raises(ScoreError, match="no model"):
        choose({})


def test_the_overall_average_is_over_configurations_and_categories_have_their_own_means():
    def task(name, category, accuracy):
        return TaskResult(name=name, category=category, correct=np.array([accuracy]))

    scores = ValidationScores(tasks=(task("a", "math", 1.0), task("b", "math", 0.5), task("c", "code", 0.0)))
    assert scores.overall_average == pytest.approx(0.5)
    assert scores.category_means == pytest.approx({"math": 0.75, "code": 0.0})
    assert ValidationScores().overall_average is None
