"""A decayed run of the same tokens: the baseline's recipe, its learning rate decayed within T (warmup, stable, decay)."""

from __future__ import annotations

from dataclasses import asdict, replace

from trajsoup.core.schedule import Schedule, Shape
from trajsoup.core.soup import Row
from trajsoup.study.file.neighbours import Wsd
from trajsoup.study.neighbours.lab import Contender, Lab

NAME = "wsd"


def wsd(lab: Lab, settings: Wsd) -> tuple[Contender, ...]:
    """Train it; its last checkpoint is the model."""
    recipe = lab.like.recipe
    floor = recipe.peak_lr / 10 if settings.decay_to is None else settings.decay_to
    schedule = Schedule(shape=Shape.WSD, decay_to=floor, decay_share=settings.decay_share)
    job = lab.job(
        lab.folder(NAME, asdict(settings)) / "run",
        recipe=replace(recipe, schedule=schedule),
        horizon=lab.horizon,
        checkpoint_every=lab.checkpoint_every,
    )
    lab.train(job)
    row = Row(name=NAME, weights={lab.key(job.folder / f"checkpoint-{lab.horizon // job.step_tokens}"): 1.0})
    validation, test = lab.scored(row)[row.name]
    found = Contender(
        name=NAME,
        label="Decayed run (WSD)",
        made_of=f"one run, {schedule.describe()}",
        tokens=lab.horizon,
        validation=validation,
        test=test,
        weights=row.weights,
    )
    return (found,)
