"""A fork point is no ingredient: runs that went on in another float type are merged and examined with it."""

import json
from pathlib import Path

import pytest
import torch

from tests.checkpoints import write_checkpoint
from tests.runs import load
from trajsoup.core.soup import Row
from trajsoup.errors import MismatchError
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.doctor import examine
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import plan_row
from trajsoup.merge.verify import verify_soup

CONFIG = {"model_type": "llama", "hidden_size": 8, "vocab_size": 16}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A bf16 model, and two runs of fp32 checkpoints that started from it."""
    folder = tmp_path_factory.mktemp("mixed")
    start = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    write_checkpoint(
        folder / "base",
        {"w": start.to(torch.bfloat16)},
        config=CONFIG | {"dtype": "bfloat16"},
        files={"vocab.txt": "a"},
    )
    for run in (1, 2):
        for step in (10, 20):
            moved = start + 0.001 * step * torch.randn(64, 64, generator=torch.Generator().manual_seed(run))
            path = folder / f"run{run}" / f"checkpoint-{step}"
            write_checkpoint(path, {"w": moved}, config=CONFIG | {"dtype": "float32"})
    return folder


def last(runs, number):
    return str(runs / f"run{number}" / "checkpoint-20")


def test_the_soup_has_the_types_of_its_ingredients_and_the_side_files_of_the_fork_point(runs, tmp_path):
    row = Row(name="mean", weights={last(runs, 1): 0.5, last(runs, 2): 0.5})
    make_soup(plan_row(row, fork_point=runs / "base"), tmp_path / "soup")
    (merged,) = load(tmp_path / "soup").values()
    one, two = (load(Path(last(runs, number)))["w"] for number in (1, 2))
    assert merged.dtype is torch.float32
    assert torch.equal(merged, ((one.double() + two.double()) / 2).float())
    assert json.loads((tmp_path / "soup" / "config.json").read_text())["dtype"] == "float32"
    assert (tmp_path / "soup" / "vocab.txt").read_text() == "a"
    verify_soup(tmp_path / "soup")


def test_the_doctor_finds_nothing_wrong_and_says_what_it_could_not_use(runs):
    found = examine(scan_branches([runs / "run1", runs / "run2"], fork_point=runs / "base"))
    assert found.healthy
    assert any("the fork point is stored in another float type" in note for note in found.notes)


def test_another_shape_is_still_refused(runs, tmp_path):
    write_checkpoint(tmp_path / "other", {"w": torch.zeros(64, 32, dtype=torch.bfloat16)}, config=CONFIG)
    row = Row(name="mean", weights={last(runs, 1): 0.5, last(runs, 2): 0.5})
    with pytest.raises(MismatchError, match=r"shape \[64, 32\] and \[64, 64\]"):
        plan_row(row, fork_point=tmp_path / "other")
