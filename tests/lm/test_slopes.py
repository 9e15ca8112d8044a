"""The slope of a loss along the weights of a row, against autograd through a stack of all checkpoints."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.lm.test_validate import token_set
from tests.lm.tiny_models import llama_config, moe_config, save_checkpoints
from tests.runs import load
from trajsoup.core.gram import WHOLE
from trajsoup.core.methods.asking import Descend, Option, settle
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.learned_soup import Adam
from trajsoup.core.methods.table import METHODS
from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.splits import Split
from trajsoup.core.tensor_groups import part_of
from trajsoup.errors import UnansweredError
from trajsoup.lm.live import load_model
from trajsoup.lm.slopes import Slopes
from trajsoup.merge.plan import measure

CONFIGS = {"tied llama": llama_config(tied=True), "mixture of experts": moe_config()}


def option(weights, groups=None):
    return Option(weights=weights, k=None, horizon=None, branches=("A",), budget_tokens=1, groups=groups)


def answers(checkpoints, rng=None):
    rng = rng or np.random.default_rng(0)
    tokens = token_set(*(rng.integers(1, 60, size=n).tolist() for n in (30, 12, 25, 18)))
    first = next(iter(checkpoints.values()))
    return Slopes(checkpoints=checkpoints, source=first, tokens={Split.VALIDATION: tokens}, window=16)


def by_autograd(checkpoints, weights, batch):
    """dL/dw by a stack of all checkpoints: by tensor."""
    model = load_model(next(iter(checkpoints.values())))
    loaded = {key: load(Path(str(c.folder))) for key, c in checkpoints.items()}
    w = {name: torch.tensor(list(weights.values()), dtype=torch.float64, requires_grad=True) for name in loaded["c1"]}
    soup = {
        name: torch.einsum("c,c...->...", w[name], torch.stack([one[name].double() for one in loaded.values()])).float()
        for name in w
    }
    out = torch.func.functional_call(model, soup, (torch.from_numpy(batch.inputs),))
    inside = torch.from_numpy(np.arange(batch.targets.shape[1]) < batch.lengths[:, None])
    losses = torch.nn.functional.cross_entropy(
        out.logits.transpose(1, 2), torch.from_numpy(batch.targets), reduction="none"
    )
    (losses * inside).sum().div(int(batch.lengths.sum())).backward()
    return {name: value.grad.numpy() for name, value in w.items() if value.grad is not None}


def test_the_slope_is_autograds_through_a_stack_of_all_checkpoints(tmp_path):
    checkpoints = save_checkpoints(tmp_path, CONFIGS["tied llama"], count=3)
    weights = {"c1": 0.5, "c2": 0.75, "c3": -0.25}
    slopes = answers(checkpoints)
    request = Descend(option=option(weights), keys=("c1", "c2", "c3"), batch=0, parts="layer")
    found = slopes(request)
    expected = by_autograd(checkpoints, weights, slopes._batch(request))
    whole = np.sum(list(expected.values()), axis=0)
    assert found.along[WHOLE] == pytest.approx(whole, rel=1e-4, abs=1e-6)
    shapes = {name: tensor.shape for name, tensor in load(Path(str(checkpoints["c1"].folder))).items()}
    layer = np.sum([g for n, g in expected.items() if part_of(n, tuple(shapes[n])) == ("layer 0",)], axis=0)
    assert found.along["layer 0"] == pytest.approx(layer, rel=1e-4, abs=1e-6)
    assert sum(found.along[part] for part in found.along if part != WHOLE) == pytest.approx(whole, rel=1e-4, abs=1e-6)
    assert found.tokens == int(slopes._batch(request).lengths.sum())


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_slope_is_what_small_differences_of_the_loss_say(tmp_path, config):
    checkpoints = save_checkpoints(tmp_path, config, count=2)
    slopes, step = answers(checkpoints), 1e-3

    def at(a):
        return slopes(Descend(option=option({"c1": a, "c2": 1 - a}), keys=("c1", "c2"), batch=1))

    along = at(0.4).along[WHOLE]
    difference = (at(0.4 + step).loss - at(0.4 - step).loss) / (2 * step)
    assert along[0] - along[1] == pytest.approx(difference, rel=0.02, abs=2e-4)


def test_adam_is_torchs():
    rng = np.random.default_rng(0)
    mine, theirs = Adam(np.zeros(3), lr=0.05), torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW([theirs], lr=0.05, weight_decay=0.0)
    for _ in range(5):
        gradient = rng.normal(size=3)
        mine.step(gradient)
        theirs.grad = torch.from_numpy(gradient)
        optimizer.step()
    assert np.allclose(mine.value, theirs.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "given"),
    [("learned-soup", {}), ("learned-soup", {"by": "layer"}), ("trainable-averaging", {"lr": "0.05"})],
)
def test_what_learns_lowers_the_loss_it_learns_from_and_counts_its_tokens(tmp_path, name, given):
    checkpoints = save_checkpoints(tmp_path, CONFIGS["tied llama"], count=3)
    slopes = answers(checkpoints)
    paths = {str(c.path): c for c in checkpoints.values()}
    heard = []
    slopes = Slopes(checkpoints=paths, source=slopes.source, tokens=slopes.tokens, window=16, progress=heard.append)
    saved = (Candidate(key=key, branch="A", tokens=i) for i, key in enumerate(paths, 1))
    allowed = Freedom(pools=(Pool(branch="A", candidates=tuple(saved)),), stops=(Stop(branches=("A",)),))
    method = METHODS[name]
    asking = method.ask(allowed, **method.settings({"steps": "12", **given}))
    (found,) = settle([asking], lambda rows: {}, measuring=measure, descending=slopes)
    assert heard == list(range(1, 13))
    row, mean = found.option, option(dict.fromkeys(paths, 1 / 3))
    losses = [slopes(Descend(option=o, keys=tuple(paths), batch=0)).loss for o in (mean, row)]
    assert losses[1] < losses[0]
    row.row.require_sum_one()
    assert (row.groups is not None) == ("by" in given)
    assert found.spent.gradient_tokens == 12 * slopes(Descend(option=mean, keys=tuple(paths), batch=0)).tokens
    assert found.free == ("weights",)


def test_gradients_that_nobody_can_give_are_refused(tmp_path):
    checkpoints = save_checkpoints(tmp_path, CONFIGS["tied llama"], count=2)
    with pytest.raises(UnansweredError, match="gradients on train documents, and there are none here"):
        answers(checkpoints)(Descend(option=option({"c1": 1.0}), keys=("c1",), batch=0, on=Split.TRAIN))
