import pytest

from trajsoup.core.budget import Budget, Setting, cost_of

B = 10**9


def test_total_tokens_are_branches_times_horizon():
    budget = Budget(setting=Setting.EXTENDED, n_branches=4, horizon=600 * B)
    assert budget.total_tokens == 2400 * B


@pytest.mark.parametrize(("n", "horizon", "flops"), [(1, 100, 3.6741e21), (1, 600, 2.2044e22), (4, 600, 8.8178e22)])
def test_compute_is_the_papers_at_its_cost_per_token(n, horizon, flops):
    cost = cost_of(
        Budget(setting=Setting.EXTENDED, n_branches=n, horizon=horizon * B),
        checkpoints_per_branch=24,
        flops_per_token=3.674e10,
        model_bytes=16 * B,
        state_bytes=64 * B,
    )
    assert cost.train_flops == pytest.approx(flops, rel=2e-4)


def test_every_checkpoint_costs_its_bytes_and_one_validation_pass():
    cost = cost_of(
        Budget(setting=Setting.EXTENDED, n_branches=3, horizon=600),
        checkpoints_per_branch=24,
        flops_per_token=6.0,
        model_bytes=10,
        state_bytes=100,
        validation_tokens=50,
    )
    assert (cost.checkpoints, cost.validation_passes, cost.checkpoint_bytes, cost.state_bytes) == (72, 72, 720, 600)
    assert cost.disk_bytes == 1320
    assert cost.validation_flops == pytest.approx(72 * 50 * 2.0)
