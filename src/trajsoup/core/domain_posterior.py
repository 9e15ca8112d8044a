"""Branch-Train-Merge's domain posterior (Li 2022): which expert a text speaks for, and what all of them say together.

    p(D = j | x) ~ p(D = j) p(x | D = j)          p(x) = sum_j p(D = j) p(x | D = j)

Inside a document the posterior moves with every token. The product of what the mixture then gives each token is exactly the
second sum, so the ensemble's loss on a document follows from the experts' losses on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.scores import DocumentLosses
from trajsoup.errors import ScoreError


def domain_prior(experts: Sequence[DocumentLosses]) -> NDArray[np.float64]:
    """The mean posterior over documents, from equal priors: weights of the parametric average, priors of the ensemble.

    Its authors keep such a mean, of a few documents. A document weighs what it is long.
    """
    nll = _aligned(experts)
    weights = experts[0].targets / experts[0].targets.sum()
    return (_posterior(nll, np.full(len(nll), 1 / len(nll))) * weights).sum(axis=1)


def ensemble_losses(experts: Sequence[DocumentLosses], prior: Sequence[float] | NDArray[np.float64]) -> DocumentLosses:
    """The losses of the mixture of the experts' probabilities, its posterior moved by every token of a document."""
    joint = np.log(np.maximum(np.asarray(prior, np.float64), np.finfo(float).tiny))[:, None] - _aligned(experts)
    first = experts[0]
    return DocumentLosses(
        nll=-np.logaddexp.reduce(joint, axis=0),
        targets=first.targets,
        document_bytes=first.document_bytes,
        source=first.source,
        source_names=first.source_names,
    )


def _posterior(nll: NDArray[np.float64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """By expert and document."""
    joint = np.log(np.maximum(prior, np.finfo(float).tiny))[:, None] - nll
    return np.exp(joint - np.logaddexp.reduce(joint, axis=0))


def _aligned(experts: Sequence[DocumentLosses]) -> NDArray[np.float64]:
    if any(not np.array_equal(e.targets, experts[0].targets) for e in experts):
        raise ScoreError("the experts were scored on different documents: score all of them on the same")
    return np.stack([e.nll for e in experts])
