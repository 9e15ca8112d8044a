"""`trajsoup plan STUDY --budget B`: the price of a trajectory, as tables and words."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.cli.console import say, show_json, show_table
from trajsoup.cli.options import study_file
from trajsoup.core.quantity import format_bytes, format_tokens

if TYPE_CHECKING:
    from trajsoup.study.price import Machines, Offer
    from trajsoup.study.records.theory import TermsRecord


def show_price(
    study: Path, budget: str, *, machines: Machines, most: int | None, branch_tokens: float, as_json: bool
) -> None:
    """Print the offers for a budget, what to do, and the theory that it rests on."""
    from trajsoup.study.file.study import load_study
    from trajsoup.study.price import parse_budget, price
    from trajsoup.study.records.files import Records
    from trajsoup.study.records.theory import TheoryRecord

    setup = load_study(study_file(study))
    found = price(
        setup.output,
        parse_budget(budget),
        machines=machines,
        seeds=getattr(setup, "seeds", 1),
        most=most,
        branch_tokens=branch_tokens,
    )
    if as_json:
        show_json(dataclasses.asdict(found))
        return
    show_table(
        f"N branches for {found.budget} (* the choice)",
        ["N", "tokens each", "K", "promised loss", "95 %", "FLOPs", "USD", "checkpoints", "hours", "busy"],
        [_line(offer, chosen=offer.n_branches == found.chosen) for offer in found.offers],
    )
    theory = Records(setup.output).read(TheoryRecord)
    if theory is not None and theory.terms is not None:
        _show_terms(theory.terms)
    for sentence in found.words:
        say(sentence)


def _line(offer: Offer, *, chosen: bool) -> list[str | int | float | None]:
    between = None if offer.low is None or offer.high is None else f"{offer.low:.4f} to {offer.high:.4f}"
    return [
        f"{offer.n_branches}{' *' if chosen else ''}",
        format_tokens(round(offer.horizon)) + (" (beyond)" if offer.beyond else ""),
        offer.k,
        offer.loss,
        between,
        f"{offer.flops:.3g}",
        None if offer.dollars is None else f"{offer.dollars:,.2f}",
        format_bytes(offer.stored_bytes),
        None if offer.hours is None else f"{offer.hours:,.2f}",
        None if offer.utilisation is None else f"{offer.utilisation:.0%}",
    ]


def _show_terms(terms: TermsRecord) -> None:
    """tab:averaging-methods and what follows, as this study measured it."""
    show_table(
        f"what averaging leaves (N = {terms.n_branches}, K = {terms.k}, validation)",
        ["method", "by the terms", "measured"],
        [[name, level.predicted, level.measured] for name, level in terms.levels.items()],
    )

    def told(name: str, value: float, digits: str = ".2g") -> str:
        found = terms.between.get(name)
        if found is None or found.low is None or found.high is None:
            return format(value, digits)
        return f"{value:{digits}} ({found.low:{digits}} to {found.high:{digits}} over branches)"

    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in terms.best_weights.items())
    surrogate = "all that there are" if terms.surrogate_k is None else f"{terms.surrogate_k:.1f}"
    show_table(
        "theory",
        ["quantity", "value"],
        [
            ["V_intra, of one checkpoint", told("v_intra", terms.v_intra)],
            ["V_inter", told("v_inter", terms.v_inter)],
            ["checkpoints forget each other in", f"{format_tokens(max(round(terms.forgets), 0))} tokens"],
            [f"K_eff of {terms.k}", told("k_eff", terms.k_eff[str(terms.k)], ".3g")],
            ["left with any number of branches (bias and shared floor)", told("limit", terms.limit, ".4f")],
            *([f"worth of more than {k} checkpoints", f"{change:+.2g} nats"] for k, change in terms.increments.items()),
            ["best K of the surrogate, and measured", f"{surrogate}; {terms.measured_k}"],
            ["best weights of the branches", weights],
            ["what they would gain over equal ones", told("unequal_gain", terms.unequal_gain)],
        ],
    )
