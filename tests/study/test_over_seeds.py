"""What seeds of everything say together: the main table, every sweep and fine-tuning, spread over them."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from trajsoup.core.crossed import crossed_interval, holm
from trajsoup.core.scores import DocumentLosses, TaskResult, TestScores
from trajsoup.core.signal import Signal
from trajsoup.errors import ScoreError
from trajsoup.report.sections.seeds import seeds_tables
from trajsoup.store.scores import ScoreKey, test_store
from trajsoup.study.file.evaluation import FineTuningPlan
from trajsoup.study.file.study import load_study
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.comparisons import ComparisonsRecord, Evidence
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.fine_tuning import FineTuningRecord
from trajsoup.study.records.seeds import SeedsRecord
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.stages.seeds import seeds_stage
from trajsoup.study.status import stages_of
from trajsoup.study.sweeps.table import Sweep

EXAMPLE = Path(__file__).parents[1] / "data" / "example-study"
SWEEPS = tuple(Sweep(name=kind, kind=kind) for kind in ("coefficients", "selections"))
FURTHER = ("sweeps/coefficients", "sweeps/selections", "sft")
COMPARED = (
    (ComparisonsRecord, None),
    (SweepRecord, "coefficients"),
    (SweepRecord, "selections"),
    (FineTuningRecord, None),
)


def two_seeds(folder, *, sweeps=SWEEPS, sft=True):
    """The example as a study of two seeds with these sweeps."""
    setup = load_study(EXAMPLE / "study.yaml")
    tuning = FineTuningPlan() if sft else None
    return dataclasses.replace(setup, output=folder, seeds=2, sweeps=sweeps, sft=tuning)


def over_two(folder, **settings):
    """The stage, on that study."""
    return seeds_stage(Records(folder, held=True), two_seeds(folder, **settings))


DOCUMENTS, ITEMS = 30, 20


def keep(folder, rng, **values):
    """Scores by document and item of one model that has these means; the name of their record."""
    noise = rng.standard_normal(DOCUMENTS)
    losses = DocumentLosses(nll=100 * (values["loss"] + 0.01 * (noise - noise.mean())), targets=np.full(DOCUMENTS, 100))
    items = rng.uniform(0, 0.1, ITEMS)
    task = TaskResult(name="t", category="c", correct=values["accuracy"] + items - items.mean())
    key = ScoreKey(model=str(rng.integers(2**60)), corpus="documents", suite="items", settings={})
    test_store(folder).write(key, TestScores(losses=losses, tasks=(task,)), name="model")
    return (key.digest,)


def with_scores(folder, *, times, seed):
    """Let every comparison of a seed be of two models that were scored, `times` as far apart as they were."""
    rng = np.random.default_rng(seed)
    records = Records(folder, held=True)
    for kind, name in COMPARED:
        record = records.require(kind, name)
        scores = folder / ("scores/sft" if kind is FineTuningRecord else "scores")
        found = []
        for c in record.comparisons:
            gap = {signal.value: times * c.difference if signal is c.signal else 0.0 for signal in Signal}
            theirs = keep(scores, rng, loss=2.0, accuracy=0.4)
            mine = keep(scores, rng, loss=2.0 + gap["loss"], accuracy=0.4 + gap["accuracy"])
            found.append(dataclasses.replace(c, difference=times * c.difference, kept=(mine, theirs)))
        records.write(dataclasses.replace(record, comparisons=tuple(found)))
    scored = records.require(EvaluationsRecord)
    rows = [
        dataclasses.replace(e, kept=keep(folder / "scores", rng, loss=e.loss.value, accuracy=e.overall_average.value))
        for e in scored.evaluations
    ]
    records.write(dataclasses.replace(scored, evaluations=tuple(rows)))


@pytest.fixture
def two(tmp_path):
    """The example as two seeds; in the second every difference is twice as large, and one comparison is missing."""
    folders = [tmp_path / "study", tmp_path / "study" / "seeds" / "1"]
    for i, folder in enumerate(folders):
        shutil.copytree(EXAMPLE / "records", folder / "records")
        with_scores(folder, times=i + 1, seed=i)
    records = Records(folders[1], held=True)
    sweep = records.require(SweepRecord, "coefficients")
    kept = tuple(c for c in sweep.comparisons if "rsqrt" not in c.name)
    records.write(dataclasses.replace(sweep, comparisons=kept))
    answer = records.require(AnswerRecord)
    records.write(dataclasses.replace(answer, seeds=(1,)))
    return folders


def test_every_comparison_is_spread_over_the_seeds_that_have_it(two):
    assert over_two(two[0])
    record = Records(two[0]).require(SeedsRecord)
    assert tuple(record.further) == FURTHER
    for (kind, name), found in zip(COMPARED, [record.comparisons, *record.further.values()], strict=True):
        first = {(c.name, c.signal): c.difference for c in Records(two[0]).require(kind, name).comparisons}
        assert {(c.name, c.signal) for c in found} == set(first)
        for c in found:
            seen = first[c.name, c.signal]
            if "rsqrt" in c.name:
                assert c.values == {"0": seen}
                assert c.low is None
                assert c.without == ("1",)
            else:
                assert c.values == {"0": seen, "1": 2 * seen}
                assert c.mean == pytest.approx(1.5 * seen)
                assert c.without == ()


def test_the_interval_over_seeds_crosses_them_with_the_documents_that_they_share(two):
    over_two(two[0])
    record = Records(two[0]).require(SeedsRecord)
    stores = [test_store(folder / "scores") for folder in two]
    (found,) = [c for c in record.comparisons if c.name == "soup-limited" and c.signal is Signal.LOSS]
    parts = []
    for folder, store in zip(two, stores, strict=True):
        (c,) = [
            c
            for c in Records(folder).require(ComparisonsRecord).comparisons
            if (c.name, c.signal) == (found.name, found.signal)
        ]
        mine, theirs = (store.named(kept[0]).losses.nll for kept in c.kept)
        parts.append(mine - theirs)
    expected = crossed_interval([np.stack(parts)], weights=[np.full(DOCUMENTS, 100.0)])
    assert (found.low, found.high, found.p) == pytest.approx((expected.low, expected.high, expected.p))
    assert (found.seeds_error, found.documents_error) == pytest.approx((expected.seeds_error, expected.documents_error))
    assert found.count == DOCUMENTS


def test_only_registered_comparisons_have_a_verdict_over_seeds_and_it_is_holms(two):
    over_two(two[0])
    record = Records(two[0]).require(SeedsRecord)
    family = [c for c in record.comparisons if c.primary]
    assert len(family) == 9
    assert [c.p_holm for c in family] == pytest.approx(holm([c.p for c in family]))
    others = [c for c in record.comparisons if not c.primary] + [c for cs in record.further.values() for c in cs]
    assert {c.evidence for c in others} == {Evidence.EXPLORATORY}
    assert len(record.words) == len(family) + 1
    assert "exploratory" in record.words[-1]


def test_seeds_that_were_scored_on_other_documents_are_refused(two):
    records = Records(two[1], held=True)
    record = records.require(ComparisonsRecord)
    short = DocumentLosses(nll=np.ones(3), targets=np.full(3, 7))
    key = ScoreKey(model="short", corpus="other", suite="items", settings={})
    test_store(two[1] / "scores").write(key, TestScores(losses=short), name="short")
    first = dataclasses.replace(record.comparisons[0], kept=((key.digest,), (key.digest,)))
    records.write(dataclasses.replace(record, comparisons=(first,)))
    with pytest.raises(ScoreError, match="different documents"):
        over_two(two[0])


def test_nothing_is_made_twice_and_another_sweep_makes_it_anew(two):
    assert over_two(two[0], sweeps=SWEEPS[:1], sft=False)
    assert not over_two(two[0], sweeps=SWEEPS[:1], sft=False)
    assert over_two(two[0])


def test_status_sees_that_a_seed_changed_went_or_was_added(two):
    setup = two_seeds(two[0])

    def state(setup=setup):
        return stages_of(setup)[-1]

    assert (state().stage, state().state) == ("seeds", "waiting")
    over_two(two[0])
    assert state().state == "done"
    assert state(dataclasses.replace(setup, seeds=3)).state == "out of date"
    records = Records(two[1], held=True)
    sweep = records.require(SweepRecord, "coefficients")
    records.write(dataclasses.replace(sweep, comparisons=()))
    assert state().state == "out of date"
    records.write(sweep)
    assert state().state == "done"
    records.path(SweepRecord, "coefficients").unlink()
    assert state().state == "out of date"


def test_tables_name_the_papers_comparison_and_the_verdict(two):
    over_two(two[0])
    _, main, coefficients, selections, tuned = seeds_tables(Records(two[0]))[:5]
    assert "tab:tiny-coefficient-selection-ablation" in coefficients.title
    assert coefficients.texts[0][:2] == ["1sqrt against equal of EXP1+EXP2+EXP3", "loss, nats"]
    assert "tail-k against top-k of EXP1+EXP2+EXP3" in [line[0] for line in selections.texts]
    assert tuned.title.startswith("After fine-tuning")
    assert {line[-1] for line in main.texts} <= {"holds", "within noise", "the opposite holds", "exploratory"}
    assert {line[-1] for table in (coefficients, selections, tuned) for line in table.texts} == {"exploratory"}


def test_the_grid_is_what_each_further_branch_gains_at_the_same_k_in_every_seed(two):
    second = Records(two[1], held=True)
    sweep = second.require(SweepRecord, "scaling")
    cells = tuple(dataclasses.replace(c, loss=c.loss + 0.01 * c.n_branches) for c in sweep.cells)
    second.write(dataclasses.replace(sweep, cells=cells))
    over_two(two[0])
    records = Records(two[0])
    points = records.require(SweepRecord, "scaling").points

    def mean(n, k):
        found = [p.validation_loss for p in points if p.n_branches == n and p.k == k]
        return sum(found) / len(found)

    gains = {(g.n_branches, g.k): g.loss for g in records.require(SeedsRecord).grid}
    assert set(gains) == {(n, k) for n in (2, 3) for k in (1, 2, 4)}
    for (n, k), found in gains.items():
        first = mean(n, k) - mean(1, k)
        assert found.values == pytest.approx({"0": first, "1": first + 0.01 * (n - 1)})
        assert found.mean == pytest.approx(first + 0.005 * (n - 1))
    table = seeds_tables(records)[-1]
    assert table.columns == ("K", "N=2", "N=3")
    assert table.rows[0].cells[2].value == gains[3, 1].mean


def test_a_seed_without_the_grid_leaves_none(two):
    Records(two[1]).path(SweepRecord, "scaling").unlink()
    over_two(two[0])
    assert Records(two[0]).require(SeedsRecord).grid == ()
