"""DiLoCo (Douillard 2023): workers train H steps apart, an outer step moves the model they share, they go on from it.

    round r: workers -> endpoints -> outer iterate, a row over the fork point and all endpoints so far -> round r + 1

A worker keeps its inner optimizer, its place in the schedule and in the data over the rounds; its weights alone are
replaced. A round that is finished is never trained again, so a killed study goes on where it was.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from trajsoup.core.outer_steps import outer_iterate
from trajsoup.core.soup import Row
from trajsoup.lm.job import Restart
from trajsoup.study.file.neighbours import Diloco
from trajsoup.study.neighbours.lab import Contender, Lab
from trajsoup.study.score.scorer import FORK_POINT

NAME = "diloco"
BEST = f"{NAME}/best"


def diloco(lab: Lab, settings: Diloco) -> tuple[Contender, ...]:
    """Train all rounds; the last outer iterate is the model, and beside it the one that validates best."""
    sizes = {"checkpoint_every": lab.checkpoint_every, "step_tokens": lab.like.step_tokens}
    rounds, length = settings.rounds(horizon=lab.horizon, **sizes), settings.round_tokens(**sizes)
    folder = lab.folder(NAME, asdict(settings))
    iterates, weights = [_iterate(lab, settings, [])], Path()
    endpoints: list[list[str]] = []
    for r in range(rounds):
        if r:
            weights = lab.blend(iterates[-1], folder / f"outer-{r}")
        workers = [
            lab.job(
                folder / f"worker-{n + 1}",
                recipe=replace(lab.like.recipe, seed=lab.like.recipe.seed + n),
                horizon=rounds * length,
                checkpoint_every=length,
                stop_at=(r + 1) * length,
                restart=Restart(tokens=r * length, weights=weights) if r else None,
            )
            for n in range(settings.workers)
        ]
        lab.train(*workers)
        step = (r + 1) * length // lab.like.step_tokens
        endpoints.append([lab.key(job.folder / f"checkpoint-{step}") for job in workers])
        iterates.append(_iterate(lab, settings, endpoints))
    validated, rank_by = lab.validated(*iterates[1:]), lab.study.evaluation.rank_by
    best = min(iterates[1:], key=lambda row: (validated[row.name].cost(rank_by), len(row.weights)))
    each = f"after {length // lab.like.step_tokens} steps each"
    ends = {
        NAME: ("DiLoCo", f"{settings.workers} workers, {rounds} outer steps {each}", iterates[-1]),
        BEST: (
            "DiLoCo, best outer step",
            f"the same run after {iterates.index(best)} of its {rounds} outer steps, chosen on validation",
            best,
        ),
    }
    scores = lab.scored(*{row.name: row for _, _, row in ends.values()}.values())
    return tuple(
        Contender(
            name=name,
            label=label,
            made_of=made_of,
            tokens=lab.horizon,
            validation=scores[row.name][0],
            test=scores[row.name][1],
            weights=row.weights,
        )
        for name, (label, made_of, row) in ends.items()
    )


def _iterate(lab: Lab, settings: Diloco, endpoints: list[list[str]]) -> Row:
    optimizer = {"lr": settings.outer_lr, "momentum": settings.outer_momentum}
    return outer_iterate(FORK_POINT, endpoints, **optimizer, name=f"{NAME} after {len(endpoints)} outer steps")
