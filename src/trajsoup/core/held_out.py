"""How good were the predictions? Fit on some soups, predict the losses of others, compare (sec:theory).

    losses of subsets of branches -> predictions for soups that were left out -> agreement with what they scored

Two questions a team has before it merges. From anchors and pairs: what will a soup of three and more branches score?
From soups of the other branches and the new branch's own anchors: what will a soup with the new branch score?
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from trajsoup.core.estimators import SoupLosses, fit_branches
from trajsoup.core.prediction import Agreement, agreement, predicted_loss
from trajsoup.errors import TheoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSoup:
    """One soup that its prediction did not see."""

    branches: tuple[str, ...]
    k: int
    predicted: float
    measured: float
    anchors: float  # mean loss of its anchors: what is expected if averaging gains nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Predictions for soups that were not used to make them."""

    soups: tuple[PredictedSoup, ...]
    agreement: Agreement
    gain: float  # root mean square of what averaging took off the mean loss of the anchors: the size of the effect

    @property
    def share_of_gain(self) -> float | None:
        """Root mean square error over the gain: 0 is perfect, 1 no better than expecting no gain at all."""
        return self.agreement.root_mean_square / self.gain if self.gain > 0 else None


def larger_soups(losses: SoupLosses, *, ks: Sequence[int]) -> HeldOut | None:
    """Predict every soup of three and more branches from anchors and pairs alone; None where there is none to predict."""
    found: list[PredictedSoup] = []
    for k in ks:
        anchors = _anchors(losses, k)
        pairs = {names: loss for (names, count), loss in losses.soups.items() if count == k and len(names) == 2}
        for names, measured in _soups(losses, k, at_least=3):
            needed = [frozenset(pair) for pair in itertools.combinations(sorted(names), 2)]
            if names <= anchors.keys() and all(pair in pairs for pair in needed):
                weights = dict.fromkeys(sorted(names), 1 / len(names))
                predicted = predicted_loss(weights, anchors=anchors, pairs=pairs)
                found.append(_soup(names, k, predicted, measured, _mean_of(anchors, names)))
    return _held_out(found)


def new_branches(losses: SoupLosses, *, ks: Sequence[int]) -> HeldOut | None:
    """Leave each branch out in turn: predict its soups from its anchor and the spread between the other branches."""
    found: list[PredictedSoup] = []
    for k in ks:
        anchors = _anchors(losses, k)
        for branch in anchors:
            try:
                spread = fit_branches(losses.only(anchors.keys() - {branch}), k=k).spread
            except TheoryError:
                continue  # fewer than two others: nothing to learn from
            for names, measured in _soups(losses, k, at_least=2):
                if branch in names and names <= anchors.keys():
                    mean = _mean_of(anchors, names)
                    found.append(_soup(names, k, mean - spread * (1 - 1 / len(names)), measured, mean))
    return _held_out(found)


def _anchors(losses: SoupLosses, k: int) -> dict[str, float]:
    return {branch: losses.soups[frozenset([branch]), k] for branch in losses.branches(k)}


def _soups(losses: SoupLosses, k: int, *, at_least: int) -> list[tuple[frozenset[str], float]]:
    return [(names, loss) for (names, count), loss in losses.soups.items() if count == k and len(names) >= at_least]


def _mean_of(anchors: dict[str, float], names: frozenset[str]) -> float:
    return math.fsum(anchors[name] for name in names) / len(names)


def _soup(names: frozenset[str], k: int, predicted: float, measured: float, anchors: float) -> PredictedSoup:
    return PredictedSoup(branches=tuple(sorted(names)), k=k, predicted=predicted, measured=measured, anchors=anchors)


def _held_out(found: Sequence[PredictedSoup]) -> HeldOut | None:
    if not found:
        return None
    square = math.fsum((soup.anchors - soup.measured) ** 2 for soup in found) / len(found)
    agreed = agreement([soup.predicted for soup in found], [soup.measured for soup in found])
    return HeldOut(soups=tuple(found), agreement=agreed, gain=math.sqrt(square))
