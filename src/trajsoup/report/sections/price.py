"""The theory measured on the study (tab:averaging-methods), and how well it split the budget (app:fixed-budget): tables."""

from __future__ import annotations

from trajsoup.core.signal import Signal
from trajsoup.report.cells import score
from trajsoup.report.table import Table, number, tabulate, text
from trajsoup.study.records.theory import TheoryRecord

LOSS = Signal.LOSS


def price_tables(theory: TheoryRecord) -> tuple[Table, ...]:
    """What averaging leaves, and N branches of T/N as they were promised and measured."""
    return (*_levels(theory), *_allocation(theory))


def _levels(theory: TheoryRecord) -> tuple[Table, ...]:
    if (terms := theory.terms) is None:
        return ()
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in terms.best_weights.items())
    surrogate = "grows with what there is" if terms.surrogate_k is None else f"is {terms.surrogate_k:.1f}"
    return (
        tabulate(
            "levels",
            f"What averaging leaves, N = {terms.n_branches} and K = {terms.k} ({theory.split.value} loss)",
            terms.levels.items(),
            {
                "method": lambda level: text(level[0]),
                "by its terms": lambda level: score(level[1].predicted, LOSS),
                "measured": lambda level: score(level[1].measured, LOSS),
            },
            notes=[
                f"By the variogram V_intra is {terms.v_intra:.2g} and checkpoints forget each other in {terms.forgets:,.0f} "
                f"tokens, so {terms.k} count as {terms.k_eff[str(terms.k)]:.2g}; V_inter is {terms.v_inter:.2g}. "
                f"{terms.limit:.4f} is left with any number of branches: bias, and the floor that branches share.",
                f"The surrogate's best K {surrogate}, the measured one is {terms.measured_k}. Weights of least loss in the "
                f"local model are {weights}, {terms.unequal_gain:.2g} nats below equal ones (--method quadratic tests them).",
            ],
        ),
    )


def _allocation(theory: TheoryRecord) -> tuple[Table, ...]:
    if (found := theory.allocation) is None:
        return ()
    return (
        tabulate(
            "allocation-check",
            f"The tokens of one full branch shared by N: promised from small soups, and measured ({theory.split.value} loss)",
            sorted(found.predicted.items(), key=lambda item: int(item[0])),
            {
                "N": lambda item: number(int(item[0])),
                "promised": lambda item: score(item[1], LOSS),
                "measured": lambda item: score(found.measured[item[0]], LOSS),
            },
            notes=[
                "Fitted on one and two branches at horizons below T. "
                f"It chose N = {found.chosen}, the best was {found.best}: {found.regret:.2g} nats of regret, against "
                f"{found.regret_of_one:.2g} of always one and {found.regret_of_most:.2g} of always all branches."
            ],
        ),
    )
