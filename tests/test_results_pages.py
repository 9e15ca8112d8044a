"""Pages of results over the seeds of finished studies (docs/generate_neighbours.py)."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from tests.report.sections.test_neighbours import swept
from trajsoup.core.signal import Signal
from trajsoup.study.records.files import writing
from trajsoup.study.records.seeds import SeedSpread

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("generate_neighbours", DOCS / "generate_neighbours.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def studied(tmp_path):
    study = write_study(tmp_path, replace(SMALL, until="plan"))
    with writing(study) as records:
        records.write(swept())
    return study


def test_one_seed_is_shown_as_one_and_what_was_not_run_is_said(pages, studied, tmp_path):
    text = pages.neighbours_page(studied, tmp_path / "dense")
    assert "1 seed of the `neighbours` preset" in text
    assert "validation prefers LAWA of N branches of T/N: −0.1000 nats from it" in text
    assert text.rstrip().endswith("Not run.")


def spread(name, low, high):
    values = {"0": low, "1": high}
    return SeedSpread(
        name=name,
        signal=Signal.LOSS,
        values=values,
        mean=(low + high) / 2,
        deviation=0.01,
        low=low,
        high=high,
        label="",
    )


def test_over_seeds_only_intervals_without_zero_are_called_clear(pages):
    first = swept()
    clear = pages.won(first, [spread("lawa/limited against soup", -0.15, -0.05)], 2)
    assert "of 1 models 1 have a clearly lower test loss" in clear[0]
    assert "LAWA of N branches of T/N, −0.1000 nats" in clear[0]
    assert "ahead in 2 of 2 seeds" in clear[0]
    assert "2 seeds are few" in clear[-1]
    (unclear, *_) = pages.won(first, [spread("lawa/limited against soup", -0.15, 0.05)], 5)
    assert "0 have a clearly lower test loss than Trajectory Soup, 0 a clearly higher one, and 1 cannot" in unclear
