"""All strategies side by side: the main table, the curves over horizons, and the compute frontier, as entries.

    Field -> entries (rows of W to choose from)

All strategies have the same freedom: which admitted branches, which horizon within the budget and, where they have
one, which K. Where the horizon is an axis it is prescribed for all of them.
"""

from __future__ import annotations

from dataclasses import replace

from trajsoup.core.budget import Setting
from trajsoup.core.pool import ranked
from trajsoup.core.selection import NEEDS_K
from trajsoup.core.soup import Strategy
from trajsoup.study.choosing.entries import Axis, Entry, Option
from trajsoup.study.choosing.field import (
    Field,
    branch_horizon,
    checkpoint_option,
    options_at,
    options_at_budget,
    options_within,
)

LABELS = {
    Strategy.SINGLE_MERGE: "Single-Trajectory Merge",
    Strategy.MODEL_SOUP: "Model Soup",
    Strategy.FULL_SOUP: "Full Soup",
    Strategy.TRAJECTORY_SOUP: "Trajectory Soup",
}
SOUPS = (Strategy.MODEL_SOUP, Strategy.FULL_SOUP, Strategy.TRAJECTORY_SOUP)
RAW, RAW_BEST = "raw", "Raw, best checkpoint"


def main_entries(field: Field) -> tuple[Entry, ...]:
    """tab:tiny-mid-train-main and tab:exp-merge-mid-train."""
    last = max(field.chosen([field.baseline])[0].candidates, key=lambda c: c.tokens)
    entries = [
        Entry(
            name="raw-final",
            label=f"Raw, final ({field.baseline})",
            strategy=RAW,
            options=(checkpoint_option(last),),
            select="final",
        ),
        _raw_best(field, "raw-best", None),
    ]
    for pool in field.pools:
        options = options_within(field, Strategy.SINGLE_MERGE, [(pool.branch,)], setting=Setting.EXTENDED)
        if options:
            label = f"Single EXP Merge ({pool.branch})"
            entry = _entry(Strategy.SINGLE_MERGE, f"single/{pool.branch}", label, options, ("k", "horizon"))
            entries.append(replace(entry, alone=True))
    options = options_within(field, Strategy.SINGLE_MERGE, field.alone(), setting=Setting.LIMITED)
    label = LABELS[Strategy.SINGLE_MERGE]
    entries.append(_entry(Strategy.SINGLE_MERGE, "single-merge", label, options, ("branch", "k", "horizon")))
    for strategy in SOUPS:
        for setting in Setting:
            options = options_within(field, strategy, field.subsets(at_least=2), setting=setting)
            if options:
                name, label = f"{strategy.value}/{setting.value}", f"{LABELS[strategy]} ({setting.value.title()})"
                free = ("branches", "horizon", *_k(strategy))
                entries.append(_entry(strategy, name, label, options, free, setting=setting))
    return tuple(entries)


def horizon_entries(field: Field) -> tuple[Entry, ...]:
    """fig:traj-soup-performance-curves: every strategy at every token budget; branches and K are free, t is the axis."""
    entries: list[Entry] = []
    for h in field.horizons:
        entries.append(_raw_best(field, f"horizons/raw-best@{h}", h))
        for pool in field.chosen(field.admitted):
            options = options_at(field, Strategy.SINGLE_MERGE, (pool.branch,), h)
            label = f"Single EXP Merge ({pool.branch})"
            name = f"horizons/single/{pool.branch}@{h}"
            entries.append(replace(_entry(Strategy.SINGLE_MERGE, name, label, options, ("k",), x=h), alone=True))
        options = options_at_budget(field, Strategy.SINGLE_MERGE, field.alone(), budget=h, setting=Setting.EXTENDED)
        label = LABELS[Strategy.SINGLE_MERGE]
        entries.append(
            _entry(Strategy.SINGLE_MERGE, f"horizons/single-merge@{h}", label, options, ("branch", "k"), x=h)
        )
        for strategy in SOUPS:
            for setting in Setting:
                options = options_at_budget(field, strategy, field.subsets(at_least=2), budget=h, setting=setting)
                name = f"horizons/{strategy.value}/{setting.value}@{h}"
                label = f"{LABELS[strategy]} ({setting.value.title()})"
                entries.append(
                    _entry(strategy, name, label, options, ("branches", *_k(strategy)), setting=setting, x=h)
                )
    return tuple(entry for entry in entries if entry.options)


def frontier_entries(field: Field) -> tuple[Entry, ...]:
    """fig:trajectory-soup-compute-allocation: raw training, one merged trajectory and soups at each total compute.

    At a given compute the soup chooses N, branches and K, the single merge branch and K. Raw training is the baseline's
    checkpoints as they come: nothing is chosen.
    """
    entries = [
        Entry(
            name=f"frontier/raw@{c.tokens}",
            label=f"Raw ({field.baseline})",
            strategy=RAW,
            options=(checkpoint_option(c),),
            at=Axis(series="Raw", x=float(c.tokens)),
        )
        for c in field.chosen([field.baseline])[0].candidates
    ]
    for strategy, subsets, free in (
        (Strategy.SINGLE_MERGE, field.alone(), ("branch", "k")),
        (Strategy.TRAJECTORY_SOUP, field.subsets(at_least=2), ("branches", "horizon", "k")),
    ):
        budgets: dict[int, list[Option]] = {}
        for subset in subsets:
            limited = {
                branch_horizon(field, h, n_branches=len(subset), setting=Setting.LIMITED) for h in field.horizons
            }
            for at in sorted({*field.horizons, *(h for h in limited if h is not None)}):
                for option in options_at(field, strategy, subset, at):
                    budgets.setdefault(option.budget_tokens, []).append(option)
        for tokens, options in sorted(budgets.items()):
            name = f"frontier/{strategy.value}@{tokens}"
            entries.append(_entry(strategy, name, LABELS[strategy], tuple(options), free, x=tokens))
    return tuple(entries)


def _raw_best(field: Field, name: str, horizon: int | None) -> Entry:
    everything = [c for pool in field.chosen(field.admitted) for c in pool.until(horizon).candidates]
    return Entry(
        name=name,
        label=RAW_BEST,
        strategy=RAW,
        options=tuple(checkpoint_option(c) for c in ranked(tuple(everything), rank_by=field.evaluation.rank_by)),
        free=("branch", "checkpoint"),
        at=None if horizon is None else Axis(series=RAW_BEST, x=float(horizon)),
    )


def _k(strategy: Strategy) -> tuple[str, ...]:
    return ("k",) if strategy.select in NEEDS_K else ()


def _entry(
    strategy: Strategy,
    name: str,
    label: str,
    options: tuple[Option, ...],
    free: tuple[str, ...],
    *,
    setting: Setting | None = None,
    x: int | None = None,
) -> Entry:
    return Entry(
        name=name,
        label=label,
        strategy=strategy.value,
        options=options,
        free=free,
        setting=setting,
        select=strategy.select.value,
        at=None if x is None else Axis(series=label, x=float(x)),
    )
