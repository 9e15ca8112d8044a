"""Branch-Train-Merge (Li 2022): experts on domains, averaged with the domain posterior as weights, or answering together.

The posterior is measured on validation documents; the ensemble moves it with every token of a document that it reads.
"""

from __future__ import annotations

from trajsoup.core.domain_posterior import domain_prior, ensemble_losses
from trajsoup.core.scores import DocumentLosses, TestScores, ValidationScores
from trajsoup.core.soup import Row
from trajsoup.study.file.neighbours import BranchTrainMerge
from trajsoup.study.neighbours.domains import train_experts
from trajsoup.study.neighbours.lab import Contender, Lab

NAME = "branch-train-merge"
ENSEMBLE = f"{NAME}/ensemble"


def branch_train_merge(lab: Lab, settings: BranchTrainMerge) -> tuple[Contender, ...]:
    """The parametric average and the ensemble of the same experts."""
    experts = train_experts(lab, settings.sources)
    alone = lab.scored(*(Row(name=key, weights={key: 1.0}) for key in experts.keys))
    validation = [_losses(alone[key][0]) for key in experts.keys]
    prior = domain_prior(validation)
    shares = ", ".join(f"{name} {share:.3g}" for name, share in zip(experts.sources, prior, strict=True))
    row = Row(name=NAME, weights={k: float(w) for k, w in zip(experts.keys, prior, strict=True) if w > 0})
    average = lab.scored(row)[NAME]
    test = TestScores(losses=ensemble_losses([_losses(alone[key][1]) for key in experts.keys], prior))
    together = ValidationScores(losses=ensemble_losses(validation, prior)), lab.kept(test, name=ENSEMBLE, like=row)
    return (
        Contender(
            name=NAME,
            label="Branch-Train-Merge (average)",
            made_of=f"experts by posterior: {shares}",
            tokens=experts.tokens,
            validation=average[0],
            test=average[1],
            weights=row.weights,
        ),
        Contender(
            name=ENSEMBLE,
            label="Branch-Train-Merge (ensemble)",
            made_of=f"the same experts, mixture of their probabilities from priors {shares}",
            tokens=experts.tokens,
            validation=together[0],
            test=together[1],
            weights={},
            models=len(experts.keys),
            beside=NAME,
        ),
    )


def _losses(scores: ValidationScores | TestScores) -> DocumentLosses:
    assert scores.losses is not None
    return scores.losses
