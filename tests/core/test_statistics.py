from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from trajsoup.core.scores import DocumentLosses, Per, TaskResult, TestScores, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.core.statistics import (
    compare_losses,
    compare_tasks,
    optimism,
    paired_bootstrap,
    ranking_agreement,
    spread_over_seeds,
)
from trajsoup.errors import ScoreError


def losses_of(nll, targets, **fields):
    return DocumentLosses(nll=np.array(nll, float), targets=np.array(targets), **fields)


def test_the_interval_agrees_with_scipys_bootstrap():
    random = np.random.default_rng(3)
    difference = random.exponential(size=200) - 0.9
    mine = paired_bootstrap([difference], signal=Signal.LOSS)
    theirs = stats.bootstrap((difference,), np.mean, method="percentile", n_resamples=10_000, rng=random)
    assert mine.difference == pytest.approx(difference.mean())
    assert (mine.low, mine.high) == pytest.approx(theirs.confidence_interval, abs=0.01)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    random = np.random.default_rng(5)
    covered = 0
    for seed in range(200):
        found = paired_bootstrap([random.normal(0.3, 1, 80)], signal=Signal.ACCURACY, resamples=400, seed=seed)
        covered += found.low <= 0.3 <= found.high
    assert 0.89 <= covered / 200 <= 0.99


def test_a_clear_difference_is_outside_its_noise_and_a_small_one_inside():
    random = np.random.default_rng(0)
    clear = paired_bootstrap([random.normal(-1, 0.5, 100)], signal=Signal.LOSS)
    assert (clear.within_noise, clear.resamples_better) == (False, 1.0)
    small = paired_bootstrap([random.normal(0, 1, 50)], signal=Signal.LOSS)
    assert small.within_noise
    assert 0.02 < small.resamples_better < 0.98


def test_improvement_means_lower_for_losses_and_higher_for_accuracies():
    gain = np.full(10, 0.5)
    assert paired_bootstrap([gain], signal=Signal.ACCURACY).resamples_better == 1
    assert paired_bootstrap([gain], signal=Signal.LOSS).resamples_better == 0
    assert paired_bootstrap([0 * gain], signal=Signal.LOSS).resamples_better == 0.5


def test_documents_weigh_as_much_as_their_tokens():
    model, reference = losses_of([10, 300], [10, 100]), losses_of([20, 290], [10, 100])
    assert compare_losses(model, reference).difference == pytest.approx(0 / 110)
    assert compare_losses(model, reference).difference == pytest.approx(model.loss() - reference.loss())


def test_a_comparison_uses_the_same_weights_as_the_loss():
    fields = {"document_bytes": np.array([7, 90]), "source": np.array([0, 1], np.uint8), "source_names": ("a", "b")}
    model, reference = losses_of([10, 300], [10, 100], **fields), losses_of([25, 290], [10, 100], **fields)
    for options in ({"per": Per.BYTE}, {"source_weights": {"a": 4.0}}, {"source_weights": {"a": 0.0}}):
        expected = model.loss(**options) - reference.loss(**options)
        assert compare_losses(model, reference, **options).difference == pytest.approx(expected)


def test_pairing_is_what_gives_power():
    random = np.random.default_rng(1)
    hard = random.normal(300, 100, 400)
    reference = losses_of(hard, np.full(400, 100))
    model = losses_of(hard - 0.3 + random.normal(0, 0.5, 400), np.full(400, 100))
    paired = compare_losses(model, reference)
    shuffled = compare_losses(model, losses_of(random.permutation(hard), np.full(400, 100)))
    assert not paired.within_noise
    assert shuffled.within_noise


def test_the_overall_average_counts_configurations_equally_however_many_items_they_have():
    mine = [
        TaskResult(name="a", category="x", correct=np.ones(1000)),
        TaskResult(name="b", category="x", correct=np.zeros(10)),
    ]
    theirs = [
        TaskResult(name="a", category="x", correct=np.zeros(1000)),
        TaskResult(name="b", category="x", correct=np.ones(10)),
    ]
    found = compare_tasks(mine, theirs)
    assert found.difference == pytest.approx(0)
    expected = (
        ValidationScores(tasks=tuple(mine)).overall_average - ValidationScores(tasks=tuple(theirs)).overall_average
    )
    assert found.difference == pytest.approx(expected)


def test_the_same_seed_gives_the_same_interval():
    difference = np.random.default_rng(0).normal(size=30)
    assert paired_bootstrap([difference], signal=Signal.LOSS) == paired_bootstrap([difference], signal=Signal.LOSS)
    assert paired_bootstrap([difference], signal=Signal.LOSS, seed=1) != paired_bootstrap(
        [difference], signal=Signal.LOSS
    )


def test_nan_makes_no_claim():
    found = paired_bootstrap([np.array([1.0, np.nan, -1.0])], signal=Signal.LOSS)
    assert np.isnan([found.low, found.high, found.resamples_better]).all()
    assert found.within_noise


def test_models_scored_on_different_things_are_not_compared():
    with pytest.raises(ScoreError, match="different documents"):
        compare_losses(losses_of([1], [2]), losses_of([1, 2], [2, 2]))
    with pytest.raises(ScoreError, match="different documents"):
        compare_losses(losses_of([1], [2]), losses_of([1], [3]))
    task = TaskResult(name="a", category="x", correct=np.ones(3))
    with pytest.raises(ScoreError, match="different configurations"):
        compare_tasks([task], [TaskResult(name="b", category="x", correct=np.ones(3))])
    with pytest.raises(ScoreError, match="3 and 4 items"):
        compare_tasks([task], [TaskResult(name="a", category="x", correct=np.ones(4))])
    with pytest.raises(ScoreError, match="nothing to compare"):
        compare_tasks([], [])


def test_the_spread_over_seeds_is_students_interval_of_the_mean():
    values = [1.52, 1.55, 1.50, 1.53]
    found = spread_over_seeds(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.deviation == pytest.approx(np.std(values, ddof=1))
    alone = spread_over_seeds([1.5])
    assert (alone.mean, alone.deviation, alone.low) == (1.5, None, None)
    with pytest.raises(ScoreError, match="no seed"):
        spread_over_seeds([])


def test_optimism_is_validation_minus_test_with_the_difficulty_of_the_splits_beside_it():
    winner = ValidationScores(losses=losses_of([10], [10])), TestScores(losses=losses_of([12], [10]))
    fixed = ValidationScores(losses=losses_of([20], [10])), TestScores(losses=losses_of([21], [10]))
    found = optimism(winner, reference=fixed)
    assert found.validation - found.test == pytest.approx(-0.2)
    assert found.reference_gap == pytest.approx(-0.1)
    assert found.flattery == pytest.approx(0.1)
    with pytest.raises(ScoreError, match="no loss"):
        optimism((ValidationScores(), TestScores()), reference=fixed)


def test_optimism_is_not_clipped_and_its_interval_covers_what_documents_change():
    rng = np.random.default_rng(5)
    covered, below = 0, 0
    for _ in range(150):

        def scores(kind, shift, rng=rng):
            hard = rng.normal(2, 1, 60)
            pair = (hard + shift + 0.2 * rng.standard_normal(60), hard)
            return tuple(kind(losses=losses_of((nll * 10).tolist(), [10] * 60)) for nll in pair)

        mine, other = zip(scores(ValidationScores, -0.1), scores(TestScores, -0.07), strict=True)
        found = optimism(mine, reference=other, resamples=300)
        covered += found.low <= 0.03 <= found.high
        below += found.flattery < 0
    assert 0.88 <= covered / 150 <= 0.99
    assert below


def test_agreement_of_rankings_is_spearmans_with_ties():
    random = np.random.default_rng(2)
    losses, accuracies = random.integers(0, 6, 20).astype(float), random.integers(0, 6, 20).astype(float)
    assert ranking_agreement(losses, accuracies) == pytest.approx(stats.spearmanr(-losses, accuracies).statistic)
    assert ranking_agreement([3, 2, 1], [0.1, 0.2, 0.9]) == pytest.approx(1)
    assert ranking_agreement([3, 2, 1, float("nan")], [0.1, 0.2, 0.9, 0.0]) == pytest.approx(1)
    assert ranking_agreement([1, 2], [1, 2]) is None
    assert ranking_agreement([1, 1, 1], [1, 2, 3]) is None


def test_false_alarms_of_one_seeds_p_value_are_nominal():
    rng = np.random.default_rng(9)
    drawn = [paired_bootstrap([rng.standard_normal(80)], signal=Signal.LOSS, resamples=200).p for _ in range(400)]
    assert 0.02 <= np.mean(np.array(drawn) <= 0.05) <= 0.085
    assert paired_bootstrap([np.zeros(5)], signal=Signal.LOSS).p == 1
    sure = paired_bootstrap([0.5 + rng.standard_normal(200)], signal=Signal.LOSS, resamples=50).p
    assert sure < 1e-4  # few resamples are no floor


def test_items_of_one_document_are_drawn_together_whatever_their_configuration():
    """Two configurations of the same documents, equal item by item, are as uncertain as one of them."""
    rng = np.random.default_rng(2)
    mine, theirs = rng.integers(0, 2, (2, 200)).astype(float)
    document = np.arange(200) // 2

    def results(correct, names):
        return [TaskResult(name=name, category="c", correct=correct, document=document) for name in names]

    one, two = (compare_tasks(results(mine, names), results(theirs, names)) for names in (["a"], ["a", "b"]))
    apart = [TaskResult(name=name, category="c", correct=mine) for name in "ab"]
    independent = compare_tasks(apart, [replace(task, correct=theirs) for task in apart])
    assert two.difference == one.difference == independent.difference
    assert two.count == one.count == 100
    assert two.high - two.low == pytest.approx(one.high - one.low, rel=0.05)
    assert independent.high - independent.low < 0.85 * (one.high - one.low)


def test_a_configuration_that_a_resample_leaves_out_gives_no_nan():
    task = TaskResult(name="a", category="c", correct=np.array([1.0, 0.0]), document=np.array([0, 1]))
    rare = TaskResult(name="b", category="c", correct=np.array([1.0]), document=np.array([0]))
    found = compare_tasks([task, rare], [replace(t, correct=np.zeros_like(t.correct)) for t in (task, rare)])
    assert np.isfinite([found.low, found.high]).all()
