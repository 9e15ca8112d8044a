"""Which comparisons get a verdict, and under which names they are compared over seeds."""

import dataclasses

import pytest

from tests.report.bowl import Bowl
from tests.report.conftest import SMALL
from tests.report.sample_study import SampleBench, write_study
from trajsoup.core.crossed import holm
from trajsoup.core.signal import Signal
from trajsoup.study.file.primary import REGISTERED, Primary, resolved
from trajsoup.study.records.comparisons import ComparisonsRecord, Evidence
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.stages.comparisons import comparisons_stage


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = write_study(tmp_path_factory.mktemp("study"), dataclasses.replace(SMALL, until="sweeps"))
    return SampleBench(folder, Bowl(SMALL))


def compared(bench, primary):
    bench.setup.primary = primary
    assert comparisons_stage(bench)
    return bench.records.require(ComparisonsRecord)


def test_only_registered_comparisons_have_a_verdict_and_their_p_values_are_adjusted_together(bench):
    bench.setup.primary = REGISTERED
    comparisons_stage(bench)
    record = bench.records.require(ComparisonsRecord)
    family = [c for c in record.comparisons if c.primary]
    assert {(c.model, c.reference, c.signal) for c in family} == {
        (p.model, p.reference, p.signal) for p in resolved(REGISTERED, baseline="EXP1")
    }
    assert [c.p_holm for c in family] == pytest.approx(holm([c.p for c in family]))
    others = [c for c in record.comparisons if not c.primary]
    assert others
    assert {c.evidence for c in others} == {Evidence.EXPLORATORY}


def test_a_study_registers_its_own_of_any_rows_and_what_cannot_be_made_is_named(bench):
    own = (Primary("single/EXP1", "raw-final"), Primary("single/EXP9", "raw-final", Signal.ACCURACY))
    record = compared(bench, own)
    (found,) = [c for c in record.comparisons if c.primary]
    assert (found.model, found.reference, found.signal) == ("single/EXP1", "raw-final", Signal.LOSS)
    assert found.p_holm == found.p
    assert record.not_made == ("single/EXP9 against raw-final in accuracy",)


def test_names_of_comparisons_carry_the_branches_that_nothing_chose(bench):
    for name in ("allocation", "coefficients"):
        sweep = bench.records.require(SweepRecord, name)
        branches = sweep.points[0].branches
        assert len(branches) >= 2
        assert sweep.comparisons
        assert all(c.name.endswith(f" of {'+'.join(branches)}") for c in sweep.comparisons)
    horizons = bench.records.require(SweepRecord, "horizons")  # validation chose the branches: the method is compared
    assert not any(" of " in c.name for c in horizons.comparisons)
