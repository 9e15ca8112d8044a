import numpy as np
import pytest
import torch

from trajsoup.core.outer_steps import outer_iterate


def test_the_first_outer_step_goes_beyond_the_mean():
    weights = outer_iterate("fork", [["a", "b"]], lr=0.7, momentum=0.9).weights
    assert weights == pytest.approx({"fork": -0.33, "a": 0.665, "b": 0.665})


def test_before_any_round_it_is_the_fork_point_and_with_plain_sgd_of_rate_one_the_mean():
    assert outer_iterate("fork", [], lr=0.7, momentum=0.9).weights == {"fork": 1.0}
    assert outer_iterate("fork", [["a", "b"]], lr=1, momentum=0).weights == {"a": 0.5, "b": 0.5}


def test_every_iterate_is_what_torchs_nesterov_sgd_makes_of_the_outer_gradients():
    random = np.random.default_rng(0)
    points = {"fork": random.normal(size=50)}
    rounds = [[f"{r}{n}" for n in range(3)] for r in range(4)]
    points |= {key: random.normal(size=50) for keys in rounds for key in keys}
    theta = torch.nn.Parameter(torch.from_numpy(points["fork"].copy()))
    outer = torch.optim.SGD([theta], lr=0.7, momentum=0.9, nesterov=True)
    for done, keys in enumerate(rounds, 1):
        theta.grad = theta.detach() - torch.from_numpy(np.mean([points[key] for key in keys], axis=0))
        outer.step()
        row = outer_iterate("fork", rounds[:done], lr=0.7, momentum=0.9)
        assert row.total == pytest.approx(1)
        blended = sum(weight * points[key] for key, weight in row.weights.items())
        np.testing.assert_allclose(blended, theta.detach().numpy(), rtol=1e-12, atol=1e-12)
