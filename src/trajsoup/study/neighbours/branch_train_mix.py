"""Branch-Train-MiX (Sukhbaatar 2024): feed-forward parts of domain experts as experts of a mixture, whose router is trained.

Everything else is the experts' mean. The plain mean of the same experts stands beside it: is the mixture worth more?
"""

from __future__ import annotations

import shutil
from dataclasses import replace

from trajsoup.core.soup import Row
from trajsoup.lm.job import fork_point_digest
from trajsoup.lm.upcycling import ROUTER, stack_branches
from trajsoup.store.publish import publishing
from trajsoup.study.file.neighbours import BranchTrainMix
from trajsoup.study.neighbours.domains import train_experts
from trajsoup.study.neighbours.lab import Contender, Lab

NAME = "branch-train-mix"
MEAN = f"{NAME}/mean"


def branch_train_mix(lab: Lab, settings: BranchTrainMix) -> tuple[Contender, ...]:
    """Train the experts, stack them, train the router; the mixture and the plain mean of the experts."""
    experts = train_experts(lab, settings.sources)
    mean = Row(name=MEAN, weights=dict.fromkeys(experts.keys, 1 / len(experts.keys)))
    folder = lab.folder(NAME, [experts.keys, settings.router_tokens, settings.per_token])
    average = lab.blend(mean, folder / "mean")
    stacked = folder / "stacked"
    if not stacked.is_dir():
        with publishing(stacked) as unfinished:
            places = [lab.study.output / key for key in experts.keys]
            stack_branches(average, places, unfinished, per_token=settings.per_token, seed=lab.like.recipe.seed)
            if (average / "tokenizer.json").is_file():
                shutil.copyfile(average / "tokenizer.json", unfinished / "tokenizer.json")
    steps = max(settings.router_tokens // lab.like.step_tokens, 1)
    job = lab.job(
        folder / "router",
        fork_point=stacked,
        fork_point_digest=fork_point_digest(stacked),
        recipe=replace(lab.like.recipe, sources=()),
        mixture=(),
        horizon=steps * lab.like.step_tokens,
        checkpoint_every=steps * lab.like.step_tokens,
        only=ROUTER,
    )
    lab.train(job)
    row = Row(name=NAME, weights={lab.key(job.folder / f"checkpoint-{steps}"): 1.0})
    scores = {**lab.scored(mean), **lab.scored(row, alone=True)}
    return (
        Contender(
            name=MEAN,
            label="Plain mean of the experts",
            made_of="the mean of the same domain experts",
            tokens=experts.tokens,
            validation=scores[MEAN][0],
            test=scores[MEAN][1],
            weights=mean.weights,
        ),
        Contender(
            name=NAME,
            label="Branch-Train-MiX",
            made_of=f"{len(experts.keys)} experts ({', '.join(experts.sources)}), "
            f"{min(settings.per_token, len(experts.keys))} for each token, router trained on {job.horizon:,} tokens",
            tokens=experts.tokens + job.horizon,
            validation=scores[NAME][0],
            test=scores[NAME][1],
            weights=row.weights,
            beside=MEAN,
        ),
    )
