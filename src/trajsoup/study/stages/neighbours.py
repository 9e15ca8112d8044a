"""The neighbours stage: methods of others that train, on the tokens of the Limited setting, scored as every row is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from trajsoup.core.scores import TestScores
from trajsoup.study.file.primary import LIMITED, SINGLE
from trajsoup.study.file.study import Setup, Study
from trajsoup.study.neighbours import TRAINED
from trajsoup.study.neighbours.lab import Contender, Lab
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.neighbours import NeighboursRecord, TrainedNeighbour
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.stages.estimates import Question, accuracy_estimate, compared, finite, loss_estimate, row_of
from trajsoup.study.workbench import Workbench


def has_neighbours(setup: Setup) -> bool:
    """Whether a study asks for any."""
    return isinstance(setup, Study) and setup.neighbours is not None


def neighbours_stage(bench: Workbench) -> bool:
    """Train what the study asks for, and compare it with the Trajectory Soup of the same tokens."""
    study = bench.setup
    assert isinstance(study, Study)
    assert study.neighbours is not None
    asked = study.neighbours
    inputs = {**bench.records.digests(TrainRecord, RowsRecord), "settings": digest_of(asdict(asked))}

    def make() -> NeighboursRecord:
        lab = Lab(bench)
        wanted = {name: settings for name in TRAINED if (settings := getattr(asked, name)) is not None}
        trained = [model for name, settings in wanted.items() for model in TRAINED[name](lab, settings)]
        models = [*_own(lab), *trained]
        resamples = study.evaluation.resamples
        return NeighboursRecord(
            inputs=inputs,
            models=tuple(_record(model, resamples) for model in models),
            comparisons=tuple(_compared({model.name: model for model in models}, resamples)),
        )

    return bench.records.ensure(NeighboursRecord, inputs, make)


def _own(lab: Lab) -> list[Contender]:
    """The Trajectory Soup and the single merge of the same tokens, as the main table has them."""
    rows = {row.name: row for row in lab.bench.records.require(RowsRecord).rows}
    found = [rows[name] for name in (LIMITED, SINGLE) if name in rows]
    scores = lab.scored(*map(row_of, found))
    return [
        Contender(
            name=row.name,
            label=row.label,
            made_of=row.made_of,
            tokens=row.budget_tokens,
            validation=scores[row.name][0],
            test=scores[row.name][1],
            weights=row.weights,
        )
        for row in found
    ]


def _record(model: Contender, resamples: int) -> TrainedNeighbour:
    losses = model.validation.losses
    return TrainedNeighbour(
        name=model.name,
        label=model.label,
        made_of=model.made_of,
        tokens=model.tokens,
        models=model.models,
        weights=dict(model.weights),
        validation_loss=None if losses is None else finite(losses.loss()),
        test_loss=loss_estimate(model.test, resamples=resamples),
        test_accuracy=accuracy_estimate(model.test, resamples=resamples),
    )


def _compared(models: Mapping[str, Contender], resamples: int) -> list[ComparisonRecord]:
    """Every model against Trajectory Soup, and against what else it names."""
    found: list[ComparisonRecord] = []
    for model in models.values():
        if model.name == LIMITED:
            continue
        for reference in (models.get(LIMITED), models.get(model.beside or "")):
            if reference is not None:
                found += _pair(model, reference, resamples)
    return found


def _pair(model: Contender, reference: Contender, resamples: int) -> list[ComparisonRecord]:
    name = f"{model.name} against {reference.name}"
    asked = Question(
        name=name,
        model=model.name,
        reference=reference.name,
        question=name,
        matched=f"budget: {model.tokens:,} and {reference.tokens:,} tokens",
    )
    sides: tuple[TestScores, TestScores] = (model.test, reference.test)
    return compared(asked, *sides, label=f"{model.label} against {reference.label}", resamples=resamples)
