"""Seeds of everything, on the records of a real study of five."""

import dataclasses
from pathlib import Path

import pytest

from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report.page import page_parts
from trajsoup.report.sections.answer import read_answer
from trajsoup.report.sections.seeds import grid_tables, seeds_tables
from trajsoup.report.study import open_study
from trajsoup.study.records.comparisons import Evidence
from trajsoup.study.records.files import Records
from trajsoup.study.records.seeds import GridGain, SeedSpread, SeedsRecord

EXAMPLE = Path(__file__).parents[2] / "data" / "example-seeds"


def spread(name="soup-limited", *, values, low, high):
    mean = sum(values) / len(values)
    return SeedSpread(
        name=name,
        signal=Signal.LOSS,
        values={str(i): value for i, value in enumerate(values)},
        mean=mean,
        deviation=None,
        low=low,
        high=high,
        label="soup against single",
    )


def test_five_seeds_are_tabulated_with_their_mean_and_verdict():
    records = open_study(EXAMPLE)
    main, compared, *_ = seeds_tables(records)
    assert main.title == "Over 5 seeds of everything"
    assert compared.columns[2:8] == ("seed 0", "seed 1", "seed 2", "seed 3", "seed 4", "mean")
    for row, s in zip(compared.rows, records.require(SeedsRecord).comparisons, strict=True):
        assert [cell.value for cell in row.cells[2:7]] == list(s.values.values())
        assert (row.cells[7].value, row.cells[7].low, row.cells[7].high) == (s.mean, s.low, s.high)
        assert row.cells[8].text == f"{s.better}/5"
        assert row.cells[9].value == len(s.without)
        assert row.cells[-1].text == s.evidence.holds
        assert (s.evidence is Evidence.EXPLORATORY) == (not s.primary)


def test_the_page_of_five_seeds_says_so_and_every_question_has_its_dots():
    records = open_study(EXAMPLE)
    answer = read_answer(records)
    assert answer.seeds == 5
    assert [len(line.seeds) for line in answer.lines] == [5] * len(answer.lines)
    assert "5 seeds" in page_parts(records).body


@pytest.mark.parametrize(("p_holm", "expected"), [(0.01, Evidence.STRONG), (0.3, Evidence.WITHIN_NOISE)])
def test_seeds_take_back_an_answer_that_they_do_not_confirm(tmp_path, p_holm, expected):
    study = write_study(tmp_path, SMALL)
    found = spread(values=(-0.02, 0.001), low=-0.08, high=0.05)
    found = dataclasses.replace(found, p=p_holm / 8, p_holm=p_holm, primary=True)
    record = SeedsRecord(
        inputs={},
        seeds=(0, 1),
        split=Split.TEST,
        rows=(),
        comparisons=(found,),
        words=(),
        further={"sweeps/coefficients": (found,)},
    )
    assert read_answer(open_study(study)).headline.over_seeds is None
    Records(study, held=True).write(record)
    records = open_study(study)
    line = read_answer(records).headline
    assert line.compared.evidence is Evidence.STRONG
    assert line.evidence is expected
    assert line.over_seeds.better == 1
    assert line.seeds[1] > line.zero  # that seed was worse
    own, further = seeds_tables(records)
    assert own.texts[0][:4] == ["soup against single", "loss, nats", "−0.0200", "+0.0010"]
    assert further.title.startswith("Merging coefficients (tab:tiny-coefficient-selection-ablation)")


def test_the_grid_over_seeds_is_that_of_the_record():
    record = open_study(EXAMPLE).require(SeedsRecord)
    assert grid_tables(record) == ()
    gains = tuple(
        GridGain(n_branches=n, k=k, loss=spread(values=(-0.01 * n, -0.01 * k), low=None, high=None))
        for n in (2, 3)
        for k in (1, 2)
    )
    (table,) = grid_tables(dataclasses.replace(record, grid=gains))
    assert table.columns == ("K", "N=2", "N=3")
    assert [[cell.value for cell in row.cells] for row in table.rows] == [
        [1, pytest.approx(-0.015), pytest.approx(-0.02)],
        [2, pytest.approx(-0.02), pytest.approx(-0.025)],
    ]
