"""The few things scipy does for us, loaded when first needed: the merge path must start fast and run without it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.errors import MissingExtraError, install

Array = NDArray[np.float64]


def ranks(values: Array) -> Array:
    """1 for the smallest; equal values share the mean of theirs. The correlation of ranks is Spearman's."""
    if np.isnan(values).any():
        return np.full(np.shape(values), np.nan)
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count - 1) / 2  # scipy has this in a module that takes half a second to load
    return middle[place]


def t_quantile(probability: float, *, degrees: float) -> float:
    """The quantile of Student's t distribution."""
    return float(_scipy("special").stdtrit(degrees, probability))


def t_probability(value: float, *, degrees: float) -> float:
    """The probability that Student's t is below this value."""
    return float(_scipy("special").stdtr(degrees, value))


def best_assignment(worth: NDArray[Any]) -> NDArray[np.int64]:
    """The column of each row in the one-to-one assignment of largest total worth."""
    return np.asarray(_scipy("optimize").linear_sum_assignment(worth, maximize=True)[1], np.int64)


def bounded_least_squares(
    residuals: Callable[[Array], Array], start: Sequence[float], *, low: Sequence[float], high: Sequence[float]
) -> tuple[Array, float]:
    """Minimise the sum of squares of `residuals` between bounds; return the parameters and that sum."""
    found = _scipy("optimize").least_squares(
        residuals, np.asarray(start, np.float64), bounds=(low, high), x_scale="jac", xtol=1e-12, ftol=1e-12, gtol=1e-12
    )
    return np.asarray(found.x, np.float64), float(2 * found.cost)


def nonnegative_least_squares(rows: Array, wanted: Array) -> Array:
    """argmin |rows x - wanted|^2 over x >= 0."""
    found, _ = _scipy("optimize").nnls(rows, wanted, maxiter=100 * rows.shape[1])
    return np.asarray(found, np.float64)


def _scipy(name: str) -> Any:
    try:
        return importlib.import_module(f"scipy.{name}")
    except ImportError as error:
        raise MissingExtraError(f"this analysis needs scipy, which is not installed: {install('analysis')}") from error
