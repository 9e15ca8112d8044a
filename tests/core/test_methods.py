"""Methods are generators: what they ask, and how many are asked together."""

import numpy as np
import pytest

from tests.core.test_selection import pool_of
from trajsoup.core.methods.asking import Decision, Score, best_of, settle, with_scores_of_the_chosen
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import METHODS, Scope, method
from trajsoup.core.pool import ranked
from trajsoup.core.scores import DocumentLosses, TestScores, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.errors import ScoreError, SelectionError, UnansweredError

LOSSES = {"EXP1": (2.31, 2.27, 2.29, 2.25), "EXP2": (2.28, 2.33, 2.26, 2.30)}
POOLS = tuple(pool_of(*losses, branch=branch) for branch, losses in LOSSES.items())
BOTH = Stop(branches=("EXP1", "EXP2"))


def freedom(**changes):
    return Freedom(**{"pools": POOLS, "stops": (BOTH,), "ks": (2,), **changes})


class Bowl:
    """Scores rows by their mean distance from a target, and counts how often it is asked."""

    def __init__(self):
        self.calls = []

    def __call__(self, rows):
        self.calls.append([row.name for row in rows])
        return {row.name: scored(sum(w * float(key[-1]) for key, w in row.weights.items())) for row in rows}


def scored(loss):
    return ValidationScores(losses=DocumentLosses(nll=np.array([float(loss)]), targets=np.array([1])))


def greedy(allowed):
    """Take checkpoints from best to worst while the mean of those taken gets strictly better."""
    (stop,) = allowed.stops
    order = ranked(tuple(c for pool in allowed.at(stop) for c in pool.candidates), rank_by=allowed.rank_by)
    chosen, best, asked = [], None, 0
    for candidate in order:
        option = allowed.option({c.key: 1 / (len(chosen) + 1) for c in [*chosen, candidate]}, stop=stop)
        found = (yield Score(options=(option,)))[option.name].losses.loss()
        asked += 1
        if best is None or found < best[0]:
            chosen, best = [*chosen, candidate], (found, option)
    return Decision(option=best[1], free=("checkpoints",), among=asked, score=best[0])


def test_a_method_that_is_prescribed_asks_nothing():
    bowl = Bowl()
    for name in ("model-soup", "full-soup", "trajectory-soup"):
        (found,) = settle([METHODS[name].ask(freedom())], bowl)
        assert (found.free, found.among, found.score) == ((), 1, None)
    assert bowl.calls == []


def test_one_that_is_free_asks_for_all_its_rows_at_once_and_takes_the_best():
    bowl = Bowl()
    (found,) = settle([METHODS["trajectory-soup"].ask(freedom(ks=(1, 2, 4), free=("k",)))], bowl)
    assert len(bowl.calls) == 1
    assert len(bowl.calls[0]) == 3
    assert (found.option.k, found.free, found.among) == (2, ("k",), 3)  # K=4 scores the same: ties go to the first
    assert found.score == pytest.approx(2.5)


def test_many_methods_are_answered_in_one_call_each_round():
    bowl = Bowl()
    askings = [greedy(freedom()), greedy(freedom(stops=(Stop(branches=("EXP1",)),)))]
    askings += [METHODS["trajectory-soup"].ask(freedom(ks=(1, 2))), METHODS["model-soup"].ask(freedom())]
    found = settle([with_scores_of_the_chosen(asking) for asking in askings], bowl)
    assert len(bowl.calls) == 8  # the longest of them has eight rounds
    assert len(bowl.calls[0]) == 1 + 1 + 2 + 1
    assert all(len(set(call)) == len(call) for call in bowl.calls)
    assert all(decision.validation is not None for decision in found)
    every = [name for call in bowl.calls for name in call]
    assert len(set(every)) == len(every)  # no row is asked for twice


def test_the_paper_s_main_table_is_chosen_in_one_round():
    bowl = Bowl()
    allowed = freedom(stops=(Stop(branches=("EXP1",)), Stop(branches=("EXP2",))), ks=(1, 2))
    several = freedom(ks=(1, 2))
    askings = [METHODS[n].ask(allowed) for n in ("raw-best", "single-merge")]
    askings += [METHODS[n].ask(several) for n in ("model-soup", "full-soup", "trajectory-soup")]
    settle([with_scores_of_the_chosen(asking) for asking in askings], bowl)
    assert len(bowl.calls) == 1


def test_only_validation_scores_are_sent():
    def scoring(rows):
        return {row.name: TestScores() for row in rows}

    with pytest.raises(ScoreError, match="choosing takes validation scores only"):
        settle([METHODS["raw-best"].ask(freedom())], scoring)


def test_who_cannot_answer_is_heard_by_the_method():
    def scoring(rows):
        raise UnansweredError("nobody scores here")

    alone = tuple(Stop(branches=(pool.branch,)) for pool in POOLS)
    (found,) = settle([METHODS["single-merge"].ask(freedom(stops=alone))], scoring)
    assert found.option.branches == ("EXP1",)  # (2.25 + 2.27) / 2 against (2.26 + 2.28) / 2
    with pytest.raises(UnansweredError, match="nobody scores here"):
        settle([METHODS["trajectory-soup"].ask(freedom(ks=(1, 2)))], scoring)


def test_a_function_registers_from_anywhere_and_one_that_asks_nothing_may_just_return(request):
    @method(name="newest", label="Newest", reference="a test", scope=Scope.SEVERAL)
    def newest(allowed):
        """The newest checkpoint of the first branch."""
        (stop,) = allowed.stops
        return Decision(option=allowed.option({allowed.at(stop)[0].candidates[-1].key: 1.0}, stop=stop))

    request.addfinalizer(lambda: METHODS.remove("newest"))
    assert list(METHODS)[-1] == "newest"
    assert METHODS["newest"].says == "The newest checkpoint of the first branch."
    (found,) = settle([METHODS["newest"].ask(freedom())], Bowl())
    assert found.option.weights == {"EXP1/4": 1.0}


def test_the_budget_is_what_the_branches_trained_up_to_their_stop():
    tokens = POOLS[0].candidates[1].tokens
    options = {
        h: freedom(stops=(Stop(branches=("EXP1", "EXP2"), horizon=h),)).options("final")[0] for h in (tokens, None)
    }
    last = max(c.tokens for c in POOLS[0].candidates)
    with pytest.raises(SelectionError, match="there is no row to choose from"):
        next(best_of((), rank_by=Signal.LOSS))
    assert (options[tokens].budget_tokens, options[None].budget_tokens) == (2 * tokens, 2 * last)
