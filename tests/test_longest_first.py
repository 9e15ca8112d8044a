"""The order of `make test` names files that are there."""

from pathlib import Path

from tests.longest_first import LONGEST_FIRST

ROOT = Path(__file__).parents[1]


def test_every_file_that_is_begun_early_exists_and_is_named_once():
    assert [name for name in LONGEST_FIRST if not (ROOT / name).is_file()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)
