import numpy as np

from trajsoup.core.scores import DocumentLosses, TaskResult, TestScores
from trajsoup.core.signal import Signal
from trajsoup.study.stages.ties import column_ties

DOCUMENTS = 60


def scored(shift, *, noise=0.0, right=0.5):
    """Losses by two sources: the first shifted for certain, the second only noisily."""
    random = np.random.default_rng(0)
    targets = np.full(DOCUMENTS, 100)
    source = np.arange(DOCUMENTS, dtype=np.uint8) % 2
    hard = random.normal(size=DOCUMENTS)
    moved = np.where(source == 0, shift, noise * random.normal(size=DOCUMENTS))
    return TestScores(
        losses=DocumentLosses(
            nll=(5 + hard + moved) * targets, targets=targets, source=source, source_names=("web", "code")
        ),
        tasks=(TaskResult(name="sums", category="math", correct=(np.arange(50) < 50 * right).astype(float)),),
    )


def columns(**scores):
    return {(t.signal, t.column): t for t in column_ties(scores, resamples=500)}


def test_a_certain_difference_is_no_tie_and_noise_is_one():
    found = columns(best=scored(0.0, right=0.9), other=scored(0.3, noise=0.1, right=0.2))
    assert found[Signal.LOSS, "web"].best == "best"
    assert found[Signal.LOSS, "web"].tied == ()
    assert len(found[Signal.LOSS, "code"].tied) == 1
    assert found[Signal.ACCURACY, "math"].tied == ()


def test_every_column_of_the_table_is_judged_and_overall_too():
    found = columns(a=scored(0.0), b=scored(0.1))
    assert set(found) == {
        (Signal.LOSS, "web"),
        (Signal.LOSS, "code"),
        (Signal.LOSS, None),
        (Signal.ACCURACY, "math"),
        (Signal.ACCURACY, None),
    }


def test_equal_models_tie_and_a_model_that_diverged_is_neither_best_nor_tied():
    found = columns(a=scored(0.0), b=scored(0.0), broken=scored(float("nan")))
    assert found[Signal.LOSS, None].best == "a"
    assert found[Signal.LOSS, None].tied == ("b",)


def test_one_model_alone_has_nothing_to_tie_with():
    assert columns(a=scored(0.0)) == {}
