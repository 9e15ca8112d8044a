"""The (N, K) grid on points whose losses are written down here."""

import dataclasses
from pathlib import Path

import pytest

from trajsoup.study.records.files import Records
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.stages.grid import grid_cells, grid_gains

EXAMPLE = Path(__file__).parents[2] / "data" / "example-study"
LOSSES = {(1, 1): (2.0, 2.2), (1, 2): (2.3,), (2, 1): (1.9,), (2, 2): (1.8, 2.4)}  # (N, K) -> its subsets


@pytest.fixture
def cells():
    point = Records(EXAMPLE).require(SweepRecord, "scaling").points[0]
    return grid_cells(
        [
            dataclasses.replace(point, row=f"{n}/{k}/{i}", n_branches=n, k=k, validation_loss=loss)
            for (n, k), losses in LOSSES.items()
            for i, loss in enumerate(losses)
        ]
    )


def test_a_cell_is_the_mean_over_subsets_and_is_named_by_the_best(cells):
    assert {(c.n_branches, c.k): (c.loss, c.subsets) for c in cells} == {
        cell: (pytest.approx(sum(losses) / len(losses)), len(losses)) for cell, losses in LOSSES.items()
    }
    assert [c.row for c in cells] == ["1/1/0", "1/2/0", "2/1/0", "2/2/0"]


def test_the_best_of_all_and_of_each_n_are_marked(cells):
    assert [(c.n_branches, c.k) for c in cells if c.best] == [(2, 1)]
    assert [(c.n_branches, c.k) for c in cells if c.best_of_n] == [(1, 1), (2, 1)]


def test_gains_are_against_one_branch_at_the_same_k_where_a_seed_has_both(cells):
    without = [c for c in cells if (c.n_branches, c.k) != (1, 2)]
    gains = grid_gains({0: cells, 1: without})
    assert gains[2, 1] == pytest.approx({0: 1.9 - 2.1, 1: 1.9 - 2.1})
    assert gains[2, 2] == pytest.approx({0: 2.1 - 2.3})


def test_without_losses_there_is_no_grid():
    assert grid_cells([]) == ()
    assert grid_gains({0: ()}) == {}
