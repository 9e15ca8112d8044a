"""The paper's theory, measured on one study: what each level of averaging leaves, and whether equal weights are right here.

losses of soups and ranked checkpoints, their positions -> variogram, fits -> terms of tab:averaging-methods and what follows
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trajsoup.core.allocation import CheckpointSurrogate, k_increment
from trajsoup.core.estimators import SoupLosses, bias_changes, fit_branches, member_gap
from trajsoup.core.quadratic import from_pairs
from trajsoup.core.theory import averaging_methods
from trajsoup.core.variogram import Gap, Variogram, fit_variogram
from trajsoup.errors import TheoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A row of tab:averaging-methods: the loss that the terms add up to, and the mean that was measured."""

    predicted: float
    measured: float | None  # None: no such soup was scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Everything at one K, for as many branches as there are."""

    k: int
    n_branches: int
    v_intra: float  # of one checkpoint, by the variogram
    v_inter: float
    forgets: float  # tokens in which the correlation of checkpoints falls to 1/e
    k_eff: Mapping[str, float]  # K -> how many independent checkpoints count as much
    limit: float  # bias, and the floor that correlated branches leave: what no number of branches takes away
    levels: Mapping[str, Level]
    increments: Mapping[str, float]  # K -> change of the loss from K to the next that was scored (eq:k-increment)
    surrogate_k: float | None  # best K of eq:checkpoint-surrogate; None: the bias does not grow, all are worth merging
    measured_k: int
    best_weights: Mapping[
        str, float
    ]  # of the branches, in the local quadratic model (app:uniform-covariance-criterion)
    unequal_gain: float  # what these would take off the loss of equal weights


def measured_terms(losses: SoupLosses, tokens: Mapping[str, tuple[int, ...]], *, k: int) -> Terms:
    """All of it from losses; `tokens` are the positions of each branch's ranked checkpoints."""
    fits = {count: fit_branches(losses, k=count) for count in losses.counts()}
    fit, n = fits[k], len(fits[k].branches)
    found = fit_variogram(_gaps(losses, tokens))
    k_eff = {count: _k_eff(found, tokens, count, fits[count].branches) for count in fits}
    v_inter = fit.spread - found.v_intra / k_eff[k]
    first = min(fits)
    levels = averaging_methods(
        biases={
            "rank-1": fits[first].limit,
            "intra": fit.limit,
            "inter": fits[first].limit,
            "trajectory-soup": fit.limit,
        },
        v_intra=found.v_intra / k_eff[first],
        v_inter=v_inter,
        n_branches=n,
        k_eff=k_eff[k] / k_eff[first],
    )
    measured = {
        "rank-1": fits[first].measured.get(1),
        "intra": fit.measured.get(1),
        "inter": fits[first].measured.get(n),
        "trajectory-soup": fit.measured.get(n),
    }
    counts = sorted(fits)
    changes = bias_changes(fits)
    x = np.array([(count - first) ** 2 for count in counts], np.float64)
    gamma = max(float(x @ np.array([changes[count] for count in counts]) / max(float(x @ x), 1.0)), 0.0)
    surrogate = CheckpointSurrogate(
        bias=0.0, gamma=gamma, v_intra=found.v_intra, v_inter=max(v_inter, 0.0), n_branches=n
    ).best_k()
    means = {count: fits[count].measured[n] for count in counts if n in fits[count].measured}
    weights, gain = _best_weights(losses, fit.branches, k)
    return Terms(
        k=k,
        n_branches=n,
        v_intra=found.v_intra,
        v_inter=v_inter,
        forgets=found.length,
        k_eff={str(count): value for count, value in k_eff.items()},
        limit=fit.limit,
        levels={name: Level(predicted=level.total, measured=measured[name]) for name, level in levels.items()},
        increments={
            str(now): k_increment(
                bias=(fits[now].limit, fits[then].limit),
                k_eff=(k_eff[now], k_eff[then]),
                v_intra=found.v_intra,
                n_branches=n,
            )
            for now, then in itertools.pairwise(counts)
        },
        surrogate_k=surrogate if np.isfinite(surrogate) else None,
        measured_k=min(means, key=lambda count: (means[count], count)) if means else k,
        best_weights=weights,
        unequal_gain=gain,
    )


def _gaps(losses: SoupLosses, tokens: Mapping[str, tuple[int, ...]]) -> list[Gap]:
    found: list[Gap] = []
    for (names, k), merged in losses.soups.items():
        (branch, *others) = names
        ranks = losses.ranks.get(branch, ())
        if not others and 1 < k <= len(ranks):
            found.append(Gap(tokens=tuple(tokens[branch][:k]), gap=member_gap(ranks[:k], merged=merged)))
    return found


def _k_eff(found: Variogram, tokens: Mapping[str, tuple[int, ...]], k: int, branches: tuple[str, ...]) -> float:
    return float(np.mean([found.k_eff(tokens[branch][:k]) for branch in branches]))


def _best_weights(losses: SoupLosses, branches: tuple[str, ...], k: int) -> tuple[dict[str, float], float]:
    """The weights of least loss over the anchors, and how much lower that is than with equal ones."""
    n = len(branches)
    anchors = [losses.soups[frozenset([branch]), k] for branch in branches]
    pairs: dict[tuple[int, int], float] = {}
    for i in range(n):
        for j in range(i + 1, n):
            both = frozenset([branches[i], branches[j]])
            if (both, k) not in losses.soups:
                raise TheoryError(
                    f"the soup of {branches[i]} and {branches[j]} at K={k} was not scored: score every pair"
                )
            pairs[i, j] = losses.soups[both, k]
    model = from_pairs(anchors, pairs)
    uniform = np.full(n, 1 / n)
    best = model.best(around=uniform, tau=0.0)
    return dict(zip(branches, best.tolist(), strict=True)), model.loss(uniform) - model.loss(best)
