"""What a budget should buy, from the records of a finished or pilot study: branches, tokens, K, dollars and hours.

records of a study or of its seeds -> Surface (core/price.py) -> an offer for each N with its interval -> the answer in words
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trajsoup.core.estimators import SoupLosses
from trajsoup.core.numerics import t_quantile
from trajsoup.core.price import Allocation, Prices, Surface, allocations, fit_surface, recommended
from trajsoup.core.quantity import format_tokens, parse_number, parse_tokens
from trajsoup.core.resampling import LEVEL
from trajsoup.errors import PilotError, StudyError, TheoryError
from trajsoup.study.records.files import Records
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.theory import TheoryRecord

PILOT = 0.05  # of the budget
PILOT_BRANCHES = 3  # the fewest that have an interval
ITEM_BYTES = 2  # of a checkpoint's number, where nobody says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A budget as it was written."""

    amount: float
    unit: str  # FLOPs, tokens, USD

    def __str__(self) -> str:
        return (
            format_tokens(round(self.amount)) + " tokens" if self.unit == "tokens" else f"{self.amount:.4g} {self.unit}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What trains, and what it costs."""

    accelerators: int = 1
    per_branch: int | None = None  # accelerators of one branch; None: all of them
    flops_per_second: float | None = None  # sustained, of one accelerator; None: no hours are told
    dollars_per_hour: float | None = None  # of one accelerator
    dollars_per_terabyte: float = 0.0  # of checkpoints kept

    def hours(self, n_branches: int, flops: float) -> tuple[float, float] | None:
        """Wall time of N equal branches, as many at once as fit, and the share of the accelerators that works."""
        if self.flops_per_second is None:
            return None
        gang = min(self.per_branch or self.accelerators, self.accelerators)
        waves = math.ceil(n_branches / max(self.accelerators // gang, 1))
        hours = waves * flops / n_branches / (gang * self.flops_per_second) / 3600
        return hours, n_branches * gang / (waves * self.accelerators)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Allocation):
    """An allocation with its interval and its price."""

    low: float | None  # of the loss, over branches or seeds; None: fewer than three branches and one seed
    high: float | None
    flops: float
    dollars: float | None
    stored_bytes: float
    hours: float | None
    utilisation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The answer."""

    budget: Sum
    offers: tuple[Offer, ...]  # one for each N
    chosen: int | None  # N; None: every horizon is too far beyond what was measured
    chosen_without: Mapping[str, int]  # what was left out (a branch, a seed) -> N chosen then
    words: tuple[str, ...]


def parse_budget(text: str) -> Sum:
    """Read 3e21FLOPs, 600B or 2000USD."""
    match = re.fullmatch(r"\s*\$?\s*([\d.,_eE+]+)\s*(flops?|usd|\$)?\s*", text, re.IGNORECASE)
    if match and (match[2] or "$" in text):
        unit = "FLOPs" if (match[2] or "").lower().startswith("flop") else "USD"
        return Sum(amount=parse_number(re.sub("[_,]", "", match[1]), where="--budget", above=0), unit=unit)
    try:
        return Sum(amount=parse_tokens(text, where="--budget"), unit="tokens")
    except StudyError as error:
        raise StudyError(f"--budget is {text!r}: write 3e21FLOPs, 600B (tokens) or 2000USD") from error


def price(
    output: Path,
    budget: Sum,
    *,
    machines: Machines,
    seeds: int = 1,
    most: int | None = None,
    branch_tokens: float = 0.0,
) -> Priced:
    """Price branches against tokens with what this study measured."""
    folders = [output, *(output / "seeds" / str(seed) for seed in range(1, seeds))]
    theories = [found for folder in folders if (found := Records(folder).read(TheoryRecord)) is not None]
    if any(theory.counts and not theory.measured for theory in theories):
        raise StudyError(
            f"{Records(output).path(TheoryRecord)} was made before soups were kept by horizon: remove it (and those of the "
            "seeds), and `trajsoup run` makes it again from the scores that are kept"
        )
    theories = [theory for theory in theories if theory.measured]
    if not theories:
        raise PilotError("\n".join(pilot_words(output, budget)))
    plan = Records(output).require(PlanRecord)
    if plan.flops_per_token is None or plan.checkpoint_every is None:
        raise StudyError(
            f"{output} does not know the FLOPs of a token or its checkpoint interval, as runs that exist seldom do: price a "
            "study that trains"
        )
    per_flop = None
    if machines.flops_per_second is not None and machines.dollars_per_hour is not None:
        per_flop = machines.dollars_per_hour / 3600 / machines.flops_per_second
    if budget.unit == "USD" and per_flop is None:
        raise StudyError("a budget in USD needs --usd-per-hour and --flops-per-second of one accelerator: add them")
    prices = Prices(
        flops_per_token=plan.flops_per_token,
        checkpoint_every=plan.checkpoint_every,
        validation_tokens=plan.corpus.get("validation", 0),
        checkpoint_bytes=(plan.total_params or 0) * ITEM_BYTES,
        searched_rows=len([soup for soup in theories[0].measured if soup.horizon == theories[0].horizon]),
        branch_tokens=branch_tokens,
        dollars_per_flop=per_flop or 0.0,
        dollars_per_byte=machines.dollars_per_terabyte / 1e12,
    )
    amount = budget.amount * plan.flops_per_token if budget.unit == "tokens" else budget.amount
    largest = most or 2 * len(theories[0].branches)

    def offered(surfaces: Sequence[Surface]) -> tuple[Allocation, ...]:
        return allocations(surfaces, prices=prices, budget=amount, in_dollars=budget.unit == "USD", most=largest)

    surfaces = [fit_surface(by_horizon(theory)) for theory in theories]
    found = offered(surfaces)
    replicas = _replicas(theories)
    others = {name: offered(fitted) for name, fitted in replicas.items()}
    longest = surfaces[0].t0
    chosen = recommended(found, longest=longest)
    offers = tuple(_offer(a, list(others.values()), prices, machines) for a in found)
    without = {name: best.n_branches for name, each in others.items() if (best := recommended(each, longest=longest))}
    pick = next((o for o in offers if chosen is not None and o.n_branches == chosen.n_branches), None)
    return Priced(
        budget=budget,
        offers=offers,
        chosen=None if pick is None else pick.n_branches,
        chosen_without=without,
        words=tuple(_words(budget, offers, pick, surfaces, prices, without, theories)),
    )


def by_horizon(theory: TheoryRecord, *, without: str | None = None) -> dict[int, SoupLosses]:
    """What the record has measured at each horizon, maybe without a branch."""
    found: dict[int, dict[tuple[frozenset[str], int], float]] = {}
    for soup in theory.measured:
        if without not in soup.branches:
            found.setdefault(soup.horizon, {})[frozenset(soup.branches), soup.k] = soup.loss
    return {horizon: SoupLosses(soups=soups) for horizon, soups in found.items()}


def pilot_words(output: Path, budget: Sum) -> list[str]:
    """Without a study to fit: what a small one would tell, and how to run it."""
    share = Sum(amount=PILOT * budget.amount, unit=budget.unit)
    each = Sum(amount=share.amount / PILOT_BRANCHES, unit=budget.unit)
    return [
        f"{output} has no measured soups yet, so nothing prices a branch against a token here. A pilot of {PILOT:.0%} "
        f"({share}): {PILOT_BRANCHES} branches of {each} each, in the study file `horizon`, {PILOT_BRANCHES} of the branches "
        "and `evaluate: {horizons: 4}`; then `trajsoup run PILOT` and `trajsoup plan PILOT --budget` with the whole budget.",
        "It would tell how fast the loss falls with tokens (a, from four horizons) and what branches average away (b, from "
        f"{PILOT_BRANCHES} anchors, their pairs and soup; with {PILOT_BRANCHES} branches b is known to about its own size, "
        "with 5 to two thirds of it). It cannot tell whether the serial run saturates beyond twice its horizon.",
    ]


def _replicas(theories: Sequence[TheoryRecord]) -> dict[str, list[Surface]]:
    """Fits that leave one seed out, or with one seed one branch, where that leaves enough."""
    if len(theories) > 1:
        every = [fit_surface(by_horizon(theory)) for theory in theories]
        return {f"seed {i}": [s for j, s in enumerate(every) if j != i] for i in range(len(every))}
    found: dict[str, list[Surface]] = {}
    (theory,) = theories
    if len(theory.branches) > 2:
        for branch in theory.branches:
            try:
                found[branch] = [fit_surface(by_horizon(theory, without=branch))]
            except TheoryError:
                return {}
    return found


def _offer(a: Allocation, others: Sequence[tuple[Allocation, ...]], prices: Prices, machines: Machines) -> Offer:
    """With the jackknife interval of its loss: Student's t over what was left out in turn."""
    parts = np.array([o.loss for each in others for o in each if o.n_branches == a.n_branches])
    n, half = len(parts), None
    if n > 1 and n == len(others):
        error = math.sqrt((n - 1) / n * float(np.sum((parts - parts.mean()) ** 2)))
        half = t_quantile((1 + LEVEL) / 2, degrees=n - 1) * error
    flops = prices.flops(a.n_branches, a.horizon)
    clock = machines.hours(a.n_branches, flops)
    return Offer(
        n_branches=a.n_branches,
        horizon=a.horizon,
        k=a.k,
        loss=a.loss,
        beyond=a.beyond,
        low=None if half is None else a.loss - half,
        high=None if half is None else a.loss + half,
        flops=flops,
        dollars=prices.dollars(a.n_branches, a.horizon) if prices.dollars_per_flop else None,
        stored_bytes=prices.stored_bytes(a.n_branches, a.horizon),
        hours=None if clock is None else clock[0],
        utilisation=None if clock is None else clock[1],
    )


def _words(
    budget: Sum,
    offers: Sequence[Offer],
    pick: Offer | None,
    surfaces: Sequence[Surface],
    prices: Prices,
    without: Mapping[str, int],
    theories: Sequence[TheoryRecord],
) -> list[str]:
    longest = surfaces[0].t0
    if pick is None:
        return [
            f"{budget} is more than this study can speak for: with as many branches as were asked about, each would run "
            f"{format_tokens(round(offers[-1].horizon))}, over twice the {format_tokens(round(longest))} that were measured. "
            "Raise --most, or run a longer pilot."
        ]
    n, t, k = pick.n_branches, pick.horizon, pick.k
    runs = "Run one trajectory" if n == 1 else f"Run {n} branches"
    words = [
        f"{runs} of {format_tokens(round(t))} tokens, a checkpoint every {format_tokens(prices.checkpoint_every)}, and merge "
        f"the {k} best of {'it' if n == 1 else 'each'}: a loss of {pick.loss:.4f} is promised for {budget}."
    ]
    mean = _mean_of(surfaces)
    slope = mean(lambda s: s.slope(n, t, k))
    per_token = prices.flops(n, 1.0) - prices.flops(n, 0.0)
    more = -slope * 0.1 * pick.flops / per_token
    words.append(f"The next 10 % of the budget as tokens would take {more:.2g} nats off.")
    worth, star = mean(lambda s: s.worth_of_branch(n, t, k)), mean(lambda s: s.best_n(t, k))
    if math.isfinite(worth):
        words.append(f"One more branch is worth {format_tokens(round(worth))} tokens more in every branch.")
    else:
        words.append("More tokens in every branch take nothing off: only branches do.")
    if math.isfinite(star):
        words.append(f"At this t and K, tokens alone would be split best over {star:.1f} branches.")
    if pick.beyond:
        words.append(
            f"t lies outside what was measured ({format_tokens(round(longest))} at most): the law is extrapolated."
        )
    if without:
        kind = "seed" if len(theories) > 1 else "branch"
        same = sum(other == n for other in without.values())
        words.append(
            f"Leaving out one {kind} at a time, {same} of {len(without)} choose the same N ({min(without.values())} to "
            f"{max(without.values())})."
        )
    else:
        words.append("Two branches and one seed leave no interval: how far to trust this is not known.")
    return words


def _mean_of(surfaces: Sequence[Surface]) -> Callable[[Callable[[Surface], float]], float]:
    return lambda of: math.fsum(map(of, surfaces)) / len(surfaces)
