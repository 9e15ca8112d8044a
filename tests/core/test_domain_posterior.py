import numpy as np
import pytest

from trajsoup.core.domain_posterior import domain_prior, ensemble_losses
from trajsoup.core.scores import DocumentLosses
from trajsoup.errors import ScoreError


def losses(nll, targets=None):
    nll = np.asarray(nll, float)
    return DocumentLosses(nll=nll, targets=np.full(len(nll), 10) if targets is None else np.asarray(targets))


def test_the_ensemble_is_the_mixture_of_probabilities_with_a_posterior_that_every_token_moves():
    random = np.random.default_rng(0)
    prior = np.array([0.2, 0.5, 0.3])
    tokens = random.uniform(0.05, 0.9, size=(3, 4, 10))  # what each expert gives each token of four documents
    posterior, by_token = np.repeat(prior[:, None], 4, axis=1), 0.0
    for t in range(10):
        mixed = (posterior * tokens[:, :, t]).sum(axis=0)
        by_token -= np.log(mixed)
        posterior = posterior * tokens[:, :, t] / mixed
    found = ensemble_losses([losses(-np.log(expert).sum(axis=1)) for expert in tokens], prior)
    np.testing.assert_allclose(found.nll, by_token)


def test_the_ensemble_loses_no_more_than_the_log_of_its_prior_against_the_best_expert_of_each_document():
    random = np.random.default_rng(1)
    experts = [losses(random.uniform(10, 40, size=50)) for _ in range(3)]
    found = ensemble_losses(experts, [1 / 3] * 3)
    best = np.min([e.nll for e in experts], axis=0)
    assert (found.nll <= best + np.log(3) + 1e-12).all()


def test_the_prior_counts_the_documents_that_speak_for_each_expert_by_their_length():
    first, second = losses([0, 0, 90], [10, 10, 20]), losses([90, 90, 0], [10, 10, 20])
    np.testing.assert_allclose(domain_prior([first, second]), [0.5, 0.5])
    first, second = losses([0, 0, 0, 90]), losses([90, 90, 90, 0])
    np.testing.assert_allclose(domain_prior([first, second]), [0.75, 0.25])
    np.testing.assert_allclose(domain_prior([first, first]), [0.5, 0.5])


def test_an_expert_that_is_a_little_behind_on_every_document_keeps_its_share():
    first, second = losses(np.full(50, 20.0)), losses(np.full(50, 21.0))
    np.testing.assert_allclose(domain_prior([first, second]), [1 / (1 + np.exp(-1)), 1 / (1 + np.e)])


def test_experts_of_different_documents_have_no_ensemble():
    with pytest.raises(ScoreError, match="different documents"):
        ensemble_losses([losses([1, 2]), losses([1, 2], [10, 11])], [0.5, 0.5])
