"""The neighbours over saved checkpoints: each against its definition, the published figures, or a peer's own code."""

import itertools
import math

import numpy as np
import pytest
import torch

from tests.core.test_methods import POOLS, Bowl, freedom, scored
from trajsoup.core.gram import WHOLE, Gram, Products
from trajsoup.core.methods.asking import Decision, Measure, settle
from trajsoup.core.methods.freedom import Stop
from trajsoup.core.methods.inverse_variance import anchor_variances
from trajsoup.core.methods.table import METHODS
from trajsoup.core.methods.wsm import DECAYS, decay_weights, merge_weights, update_coefficients
from trajsoup.core.pool import Candidate, Pool, Unit
from trajsoup.core.window import Window, newest, parse_window
from trajsoup.errors import SelectionError, StudyError, UnansweredError

ONE = Stop(branches=("EXP1",))


def pool_at(*tokens, branch="EXP1", unit=Unit.TOKENS):
    """A pool that saved at these tokens."""
    saved = (Candidate(key=f"{branch}/{i}", branch=branch, tokens=t, unit=unit) for i, t in enumerate(tokens, 1))
    return Pool(branch=branch, candidates=tuple(saved))


def row(name, *pools, stop=None, window=None, scoring=None, fork_point=None, **given):
    """The weights that a method chooses, by number of the checkpoint or by key."""
    method = METHODS[name]
    allowed = freedom(
        pools=pools or POOLS,
        stops=(stop or Stop(branches=tuple(p.branch for p in pools or POOLS)),),
        window=window,
        fork_point=fork_point,
    )
    (found,) = settle([method.ask(allowed, **method.settings(given))], scoring or Bowl())
    return dict(found.option.weights)


def test_swa_is_the_mean_of_the_last_quarter_or_of_a_window():
    ten = pool_at(*range(10, 110, 10))
    assert row("swa", ten) == pytest.approx({"EXP1/8": 1 / 3, "EXP1/9": 1 / 3, "EXP1/10": 1 / 3})
    assert row("swa", ten, start="90%") == {"EXP1/10": 1.0}
    assert row("swa", ten, window=Window(checkpoints=2)) == {"EXP1/9": 0.5, "EXP1/10": 0.5}


def test_lawa_is_the_mean_of_the_latest_five():
    assert row("lawa", pool_at(*range(1, 9))) == pytest.approx(dict.fromkeys([f"EXP1/{i}" for i in range(4, 9)], 0.2))
    assert row("lawa", pool_at(1, 2, 3)) == pytest.approx(dict.fromkeys(["EXP1/1", "EXP1/2", "EXP1/3"], 1 / 3))


def test_ema_is_torchs_averaged_model_over_the_same_checkpoints():
    averaged = torch.optim.swa_utils.AveragedModel(
        torch.nn.Linear(3, 2, dtype=torch.float64), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.7)
    )
    torch.manual_seed(0)
    models = [torch.nn.Linear(3, 2, dtype=torch.float64) for _ in range(6)]
    for model in models:
        averaged.update_parameters(model)
    found = row("ema", pool_at(*range(1, 7)), decay="0.7")
    weights = torch.tensor(list(found.values()), dtype=torch.float64)
    soup = torch.einsum("i,ijk->jk", weights, torch.stack([model.weight for model in models]))
    assert torch.allclose(soup, next(averaged.module.parameters()), rtol=1e-12)


def test_a_half_life_in_tokens_halves_whatever_the_spacing():
    assert row("ema", pool_at(10, 20, 30), half_life="10") == pytest.approx(
        row("ema", pool_at(10, 20, 30), decay="0.5")
    )
    found = row("ema", pool_at(10, 40), half_life="10")
    assert found == pytest.approx({"EXP1/1": 1 / 8, "EXP1/2": 7 / 8})


def test_pma_is_sma_wma_or_ema():
    four = pool_at(1, 2, 3, 4)
    assert list(row("pma", four).values()) == pytest.approx([0.25] * 4)
    assert list(row("pma", four, kind="wma").values()) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    a = 0.1
    expected = [(1 - a) ** 3, a * (1 - a) ** 2, a * (1 - a), a]
    assert list(row("pma", four, kind="ema", alpha="0.1").values()) == pytest.approx(expected)
    assert len(row("pma", pool_at(*range(1, 15)))) == 10


@pytest.mark.parametrize(
    ("decay", "figures"),
    [
        ("linear", (0.25, 0.25, 0.25, 0.25)),
        ("cosine", (0.146, 0.354, 0.354, 0.146)),
        ("1-sqrt", (0.5, 0.207, 0.159, 0.134)),
    ],
)
def test_wsm_has_the_published_weights_where_checkpoints_are_evenly_spaced(decay, figures):
    assert tuple(round(w, 3) for w in row("wsm", pool_at(25, 50, 75, 100), decay=decay).values()) == figures


def megatron(n, shape):
    """Megatron-LM pull request 5114, by the index: what is left of the learning rate at i/n, less that at (i+1)/n."""
    return [shape(i / n) - shape((i + 1) / n) for i in range(n)]


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_wsm_is_megatrons_formula_for_any_number_of_even_checkpoints(decay, n):
    tokens = [25 * (i + 1) for i in range(n)]
    assert decay_weights(tokens, decay=decay) == pytest.approx(megatron(n, DECAYS[decay]), abs=1e-12)


def test_wsm_goes_by_tokens_not_by_number():
    assert decay_weights([0, 10, 40], decay="linear") == pytest.approx([1 / 6, 1 / 2, 1 / 3])  # ends at 60


def test_merge_weights_and_update_coefficients_are_two_ways_to_say_the_same():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5)).tolist()
    updates = update_coefficients(weights)
    assert merge_weights(updates) == pytest.approx(weights)
    theta = rng.normal(size=(5, 7))
    re_weighted = theta[0] + sum(u * (b - a) for u, (a, b) in zip(updates, itertools.pairwise(theta), strict=True))
    assert np.allclose(np.array(weights) @ theta, re_weighted)


def test_wsm_may_begin_at_the_fork_point():
    found = row("wsm", pool_at(25, 50, 75), decay="1-sqrt", start="fork-point", fork_point="base")
    assert tuple(round(w, 3) for w in found.values()) == (0.5, 0.207, 0.159, 0.134)
    assert next(iter(found)) == "base"
    with pytest.raises(SelectionError, match=r"start=fork-point needs the fork point: pass --fork-point"):
        row("wsm", pool_at(25, 50), start="fork-point")


@pytest.mark.parametrize("name", ["swa", "lawa", "ema", "pma", "wsm"])
def test_over_branches_it_is_the_mean_of_their_anchors(name):
    pools = pool_at(10, 20, 30, branch="A"), pool_at(5, 20, 30, branch="B")
    together = row(name, *pools)
    alone = row(name, *pools, stop=Stop(branches=("A",))) | row(name, *pools, stop=Stop(branches=("B",)))
    assert together == pytest.approx({key: weight / 2 for key, weight in alone.items()})
    assert math.fsum(together.values()) == pytest.approx(1)


def test_the_strongest_branch_is_chosen_by_the_score_of_its_anchor():
    pools = pool_at(1, 2, branch="A"), pool_at(1, 2, branch="B")
    allowed = freedom(pools=pools, stops=(Stop(branches=("A",)), Stop(branches=("B",))), free=("branch",))

    def scoring(rows):
        return {r.name: scored(1.0 if "B/2" in r.weights else 2.0) for r in rows}

    (found,) = settle([METHODS["lawa"].ask(allowed)], scoring)
    assert (found.option.branches, found.free, found.among) == (("B",), ("branch",), 2)


def model_soups_rule(order, loss):
    """model-soups `main.py`: from best to worst, keep what makes the mean strictly better."""
    taken, best = [order[0]], loss([order[0]])
    for one in order[1:]:
        if (tried := loss([*taken, one])) < best:
            taken, best = [*taken, one], tried
    return taken


@pytest.mark.parametrize("seed", range(5))
def test_greedy_soup_takes_what_model_soups_takes(seed):
    rng = np.random.default_rng(seed)
    keys = [f"{p.branch}/{i}" for p in POOLS for i in range(1, 5)]
    theta = dict(zip(keys, rng.normal(size=(8, 3)) + 0.5, strict=True))

    def loss(members):
        return float(np.square(np.mean([theta[k] for k in members], axis=0)).sum())

    def scoring(rows):
        return {r.name: scored(loss(list(r.weights))) for r in rows}

    expected = model_soups_rule(sorted(keys, key=lambda k: loss([k])), loss)
    assert row("greedy-soup", scoring=scoring) == pytest.approx(dict.fromkeys(expected, 1 / len(expected)))


def test_inverse_variance_reads_the_variances_off_losses():
    v, bias, n = np.array([0.5, 1.0, 4.0]), 2.0, 3
    mean = bias + v.sum() / (2 * n**2)
    assert anchor_variances((bias + v / 2).tolist(), mean) == pytest.approx(v.tolist())
    assert anchor_variances([2.0, 2.0], 2.5) is None  # the mean is worse than both: no variance says that

    def scoring(rows):  # EXP1 has a third of EXP2's variance
        share = {r.name: sum(w for k, w in r.weights.items() if k.startswith("EXP1")) for r in rows}
        return {name: scored(1 + (1 * a**2 + 3 * (1 - a) ** 2) / 2) for name, a in share.items()}

    found = row("inverse-variance", scoring=scoring)
    assert sum(w for k, w in found.items() if k.startswith("EXP1")) == pytest.approx(0.75)
    equal = row("inverse-variance", scoring=lambda rows: {r.name: scored(1.0) for r in rows})
    assert set(equal.values()) == {0.25}


class Line:
    """Checkpoints as vectors: scores by distance from a target, products in full, and by two parts."""

    def __init__(self, vectors, target):
        self.x, self.target = vectors, np.asarray(target, float)

    def at(self, row):
        return sum(w * self.x[key] for key, w in row.weights.items())

    def score(self, rows):
        return {r.name: scored(np.square(self.at(r) - self.target).sum()) for r in rows}

    def measure(self, request):
        x = np.array([self.x[key] for key in request.keys])
        d = x - self.x[request.centre]
        half = len(self.target) // 2
        parts = {WHOLE: d} | ({} if request.parts is None else {"layer 0": d[:, :half], "layer 1": d[:, half:]})
        none = np.zeros(len(d))
        return Gram(
            keys=request.keys,
            centre=request.centre,
            groups={
                name: Products(inner=p @ p.T, along_centre=none, centre_square=0.0, elements=p.shape[1])
                for name, p in parts.items()
            },
        )

    def settled(self, name, *pools, stop=None, fork_point=None, **given):
        allowed = freedom(
            pools=pools, stops=(stop or Stop(branches=tuple(p.branch for p in pools)),), fork_point=fork_point
        )
        method = METHODS[name]
        asking = method.ask(allowed, **method.settings(given))
        return settle([asking], self.score, measuring=self.measure)[0]


def test_extra_merge_goes_on_along_the_line_as_far_as_validation_says():
    rng = np.random.default_rng(0)
    pool = pool_at(*range(1, 9))
    drift = np.array([1.0, 2.0, 0.0, 0.0])
    line = Line({c.key: i * drift + 0.01 * rng.normal(size=4) for i, c in enumerate(pool.candidates)}, 7.5 * drift)
    found = line.settled("extra-merge", pool)
    # The last merged point is the mean of 4, 5, 6 and 7: at 5.5. Two mean steps beyond lies 7.5.
    assert np.allclose(line.at(found.option), 7.5 * drift, atol=0.05)
    assert math.fsum(found.option.weights.values()) == pytest.approx(1)
    assert min(found.option.weights.values()) < 0
    assert (found.free, found.among, found.spent.validation_passes) == (("lambda",), 5, 5)
    fixed = line.settled("extra-merge", pool, steps="1")
    assert np.allclose(line.at(fixed.option), 6.5 * drift, atol=0.05)
    assert fixed.spent.validation_passes == 0
    with pytest.raises(SelectionError, match=r"merged=8 needs 9 checkpoints for two merged points, .*'EXP1' has 8"):
        line.settled("extra-merge", pool, merged="8")


def mergekits_model_stock(fork_point, models):
    """mergekit's `model_stock.py` on one tensor, in fp64."""
    offsets = [m - fork_point for m in models]
    cosines = [
        (a @ b) / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-6) for a, b in itertools.combinations(offsets, 2)
    ]
    cos, n = np.mean(np.clip(cosines, -1, 1)), len(models)
    t = n * cos / (1 + (n - 1) * cos)
    return t * np.mean(models, axis=0) + (1 - t) * fork_point


@pytest.mark.parametrize("n", [2, 3])
def test_model_stock_is_mergekits_in_every_part(n):
    rng = np.random.default_rng(n)
    pools = [pool_at(1, 2, branch=f"B{i}") for i in range(n)]
    base, shared = rng.normal(size=10), rng.normal(size=10)
    x = {"base": base} | {c.key: base + shared + rng.normal(size=10) for p in pools for c in p.candidates}
    found = Line(x, np.zeros(10)).settled("model-stock", *pools, fork_point="base", by="layer").option
    ends = [x[f"B{i}/2"] for i in range(n)]
    assert found.groups is not None
    for name, part in {"layer 0": slice(0, 5), "layer 1": slice(5, 10)}.items():
        soup = sum(w * x[key][part] for key, w in found.groups[name].items())
        assert np.allclose(soup, mergekits_model_stock(base[part], [end[part] for end in ends]))


def test_model_stock_needs_a_fork_point_and_two_branches():
    pools = pool_at(1, branch="A"), pool_at(1, branch="B")
    line = Line({}, np.zeros(2))
    with pytest.raises(SelectionError, match="model-stock needs the fork point"):
        line.settled("model-stock", *pools)
    with pytest.raises(SelectionError, match="needs the angle between branches, and there is one, 'A'"):
        line.settled("model-stock", *pools, stop=Stop(branches=("A",)), fork_point="base")


def test_who_measures_nothing_is_heard():
    with pytest.raises(UnansweredError, match="nobody measures distances"):
        row("extra-merge", pool_at(1, 2, 3), merged="2")


def test_matrices_about_one_centre_come_out_of_one_read():
    asked = []

    def measuring(request):
        asked.append(request)
        return Line({"o": np.zeros(2), "a": np.ones(2), "b": np.ones(2)}, np.zeros(2)).measure(request)

    def asks(*keys):
        matrix = yield Measure(keys=keys, centre="o")
        assert matrix.keys == keys
        return Decision(option=freedom().option({"a": 1.0}, stop=freedom().stops[0]))

    settle([asks("o", "a"), asks("b", "o")], Bowl(), measuring=measuring)
    assert [request.keys for request in asked] == [("o", "a", "b")]


def test_windows_count_checkpoints_or_tokens():
    assert parse_window("10", where="--window") == Window(checkpoints=10)
    assert parse_window("500B", where="--window") == Window(tokens=500 * 10**9)
    pool = pool_at(*range(25, 1025, 25))
    assert len(newest(pool, Window(tokens=500))) == 20
    assert [c.tokens for c in newest(pool, Window(checkpoints=2))] == [975, 1000]
    with pytest.raises(StudyError, match="--window is 'x'"):
        parse_window("x", where="--window")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: row("lawa", pool_at(1, 2), window=Window(checkpoints=3)),
            r"3 checkpoints is longer .*'EXP1'.* 2 usable",
        ),
        (
            lambda: row("lawa", pool_at(1, 2), window=Window(tokens=3)),
            r"3 tokens is longer than branch 'EXP1', .*has 2",
        ),
        (lambda: row("lawa", pool_at(1, unit=Unit.STEPS), window=Window(tokens=1)), r"knows only steps"),
        (lambda: row("wsm", pool_at(1, 2, unit=Unit.STEPS)), r"wsm is derived from tokens, .*only steps are known"),
        (lambda: row("wsm", pool_at(1, 2, 2)), r"two checkpoints at 2: correct the tokens"),
        (
            lambda: row("ema", pool_at(1, unit=Unit.STEPS), half_life="1"),
            r"half_life is derived from tokens.*use decay",
        ),
        (lambda: row("ema", pool_at(1, 2), half_life="1", decay="0.5"), r"leave out one of them"),
        (lambda: row("ema", pool_at(1, 2), decay="1"), r"decay=1 never leaves the oldest"),
        (lambda: row("ema", pool_at(1, 2), decay="2"), r"parameter decay of ema is '2': write a share"),
        (lambda: row("pma", pool_at(1, 2), kind="mean"), r"parameter kind of pma is 'mean': use sma, wma or ema"),
        (lambda: row("pma", pool_at(1, 2), kind="ema", alpha="0"), r"alpha=0 never leaves"),
        (
            lambda: row("ema", pool_at(1, 2), gamma="1"),
            r"ema has no parameter 'gamma': its parameters are decay, half_life",
        ),
        (lambda: row("lawa", pool_at(1, 2), n="1"), r"lawa has no parameter 'n': it has none"),
    ],
)
def test_bad_input_is_one_clear_message(ask, message):
    with pytest.raises(SelectionError, match=message):
        ask()


def test_weights_by_number_on_uneven_checkpoints_say_so():
    method = METHODS["ema"]
    allowed = freedom(pools=(pool_at(10, 20, 50),), stops=(ONE,))
    (found,) = settle([method.ask(allowed)], Bowl())
    assert found.notes == (
        "checkpoints of EXP1 are 10 to 30 tokens apart, and these weights go by their number, not by tokens: "
        "half_life=TOKENS does",
    )
    assert settle([method.ask(freedom(stops=(ONE,)))], Bowl())[0].notes == ()
