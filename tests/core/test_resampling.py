"""Bootstrap over documents and jackknife over branches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from trajsoup.core.estimators import SoupLosses, fit_branches
from trajsoup.core.resampling import LossTable, branch_jackknife, document_bootstrap, draw_documents
from trajsoup.errors import TheoryError


def table(rng, documents: int = 60) -> LossTable:
    """Two models whose losses share their documents' difficulty and differ by 0.1 on average."""
    hard = 2 + rng.standard_normal(documents)
    return LossTable(
        names=("a", "b"),
        losses=np.array([hard, hard - 0.1 + 0.2 * rng.standard_normal(documents)]),
        tokens=np.ones(documents),
    )


def gap(means) -> float:
    return means["a"] - means["b"]


def test_means_weigh_documents_by_their_tokens():
    losses = LossTable(names=("a",), losses=np.array([[1.0, 4.0]]), tokens=np.array([3.0, 1.0]))
    assert losses.mean() == {"a": 1.75}
    assert losses.mean(counts=np.array([0.0, 2.0])) == {"a": 4.0}


def test_the_bootstrap_is_paired_and_its_error_is_that_of_the_differences():
    rng = np.random.default_rng(0)
    losses = table(rng, 400)
    found = document_bootstrap(losses, gap)
    differences = losses.losses[0] - losses.losses[1]
    assert found.estimate == pytest.approx(differences.mean())
    assert found.standard_error == pytest.approx(differences.std() / 20, rel=0.1)
    assert found.low < found.estimate < found.high


def test_the_bootstrap_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(1)
    inside = 0
    for trial in range(300):
        losses = table(rng)
        found = document_bootstrap(losses, gap, draws=draw_documents(losses, resamples=200, seed=trial))
        inside += found.low <= 0.1 <= found.high
    assert 0.89 < inside / 300 < 0.98


def test_the_same_seed_gives_the_same_interval():
    losses = table(np.random.default_rng(2))
    assert document_bootstrap(losses, gap) == document_bootstrap(losses, gap)
    assert document_bootstrap(losses, gap) != document_bootstrap(losses, gap, draws=draw_documents(losses, seed=1))


def test_a_statistic_that_is_mostly_undefined_gives_no_interval():
    def undefined(means) -> float:
        raise TheoryError("no")

    losses = table(np.random.default_rng(3))
    with pytest.raises(TheoryError, match="defined on 0 of 1000"):
        document_bootstrap(losses, undefined)
    one = LossTable(names=("a",), losses=np.ones((1, 1)), tokens=np.ones(1))
    with pytest.raises(TheoryError, match="1 document: a bootstrap"):
        document_bootstrap(one, lambda means: means["a"])


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = dict(zip("ABCDE", [1.0, 3.0, 2.0, 5.0, 4.0], strict=True))
    found = branch_jackknife("ABCDE", lambda left: float(np.mean([values[b] for b in left])))
    assert found.estimate == 3
    assert found.standard_error == pytest.approx(np.std(list(values.values()), ddof=1) / np.sqrt(5))
    assert found.high - found.estimate == pytest.approx(2.7764451 * found.standard_error)
    with pytest.raises(TheoryError, match="2 branches"):
        branch_jackknife("AB", lambda left: 0.0)


def test_variances_of_a_study_get_both_intervals():
    """Losses of soups by document, as a study has them: each document has its own curvature and optimum."""
    rng = np.random.default_rng(4)
    branches, documents = ("EXP1", "EXP2", "EXP3", "EXP4"), 80
    anchors = dict(zip(branches, rng.standard_normal((4, 3)), strict=True))
    curvature, optima = rng.uniform(0.5, 1.5, documents), 0.1 * rng.standard_normal((documents, 3))
    soups = [frozenset(s) for n in range(1, 5) for s in itertools.combinations(branches, n)]
    points = [np.mean([anchors[b] for b in soup], axis=0) for soup in soups]
    losses = LossTable(
        names=tuple(" ".join(sorted(soup)) for soup in soups),
        losses=np.array([0.5 * curvature * np.sum((x - optima) ** 2, axis=1) for x in points]),
        tokens=rng.integers(50, 500, documents).astype(float),
    )

    def study(means) -> SoupLosses:
        return SoupLosses(soups={(frozenset(name.split()), 1): loss for name, loss in means.items()})

    draws = draw_documents(losses, resamples=300)
    by_document = document_bootstrap(losses, lambda means: fit_branches(study(means), k=1).spread, draws=draws)
    whole = study(losses.mean())
    by_branch = branch_jackknife(branches, lambda left: fit_branches(whole.only(left), k=1).spread)
    weights = losses.tokens / losses.tokens.sum()
    exact = 0.5 * float(weights @ curvature) * np.var(list(anchors.values()), axis=0, ddof=1).sum()
    assert by_document.estimate == pytest.approx(exact)
    assert by_branch.estimate == pytest.approx(exact)
    assert by_document.low < exact < by_document.high
    assert by_branch.standard_error > by_document.standard_error  # four branches say less than eighty documents
