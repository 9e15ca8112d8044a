"""How many models a study scores, before it does: its methods and sweeps are asked what they would compare.

    Plan -> the pools it will have -> every entry chooses among made-up scores -> rows that were asked for

What a method asks after its first round depends on scores, so such a method (greedy-soup) may ask more or less; what it
measures or learns from is no pass over validation, and is made up too. What it learns from is counted in tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trajsoup.core.gram import WHOLE, Gram, Products
from trajsoup.core.methods.asking import Answers, Descend, Measure, Slope
from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.scores import DocumentLosses, TaskResult, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.lm.slopes import BATCH_TOKENS
from trajsoup.study.choosing.entries import Chosen, Entry, choose_entries
from trajsoup.study.choosing.field import Field
from trajsoup.study.choosing.main_table import main_entries
from trajsoup.study.stages.pair_gains import gain_rows, middle_k
from trajsoup.study.stages.sweeps import reported_rows
from trajsoup.study.stages.theory import soups_at
from trajsoup.study.sweeps.table import sweep_entries
from trajsoup.study.train.plan import Plan

Weights = tuple[tuple[str, float], ...]  # of a row, sorted: what makes two rows the same model


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Forward passes of whole models over a set of documents, of one seed."""

    validation: int  # every checkpoint and the fork point, and every row that is compared
    answered: int  # of those: models that answer items too
    probe: int  # every checkpoint, for the screen
    test: int  # the main table
    swept: int  # on test too: what sweeps report
    ingredients: int  # checkpoints that all these models are averaged from, counted once for each
    gradient_tokens: int = 0  # forward and backward, of methods that learn

    @property
    def total(self) -> int:
        """Of all sets."""
        return self.validation + self.probe + self.test + self.swept

    def tokens(self, plan: Plan) -> int:
        """Tokens that go through a model."""
        said = plan.study.evaluation
        on_validation = said.validation_tokens if plan.validation_tokens is None else plan.validation_tokens
        on_test = (self.test + self.swept) * said.test_tokens
        return self.validation * on_validation + self.probe * said.probe_tokens + on_test


def count_passes(plan: Plan) -> Passes:
    """Count what a study that admits every branch scores. A row that two methods ask for is scored once."""
    evaluation, sweeps = plan.study.evaluation, plan.study.sweeps
    pools = _pools(plan)
    field = Field(
        pools=pools,
        admitted=tuple(pool.branch for pool in pools),
        baseline=evaluation.baseline or next((b.name for b in plan.branches if not b.changed), plan.branches[0].name),
        ks=evaluation.ks,
        n_horizons=evaluation.horizons,
        rank_by=evaluation.rank_by,
        methods=evaluation.methods,
    )
    runs = [run for pool in pools for run in pool.runs]
    checkpoints = {_weights(Row(name=c.key, weights={c.key: 1.0})) for run in runs for c in run.candidates}
    asked = set(checkpoints)  # rows, by their weights
    learned: list[Descend] = []

    def scoring(rows: Sequence[Row]) -> Answers:
        asked.update(map(_weights, rows))
        return {row.name: _made_up(row) for row in rows}

    def descending(request: Descend) -> Slope:
        learned.append(request)
        return Slope(loss=3.0, tokens=BATCH_TOKENS, along={WHOLE: np.zeros(len(request.keys))})

    def choose(entries: Sequence[Entry]) -> Sequence[Chosen]:
        return choose_entries(entries, scoring, measuring=_made_up_products, descending=descending)

    chosen = choose(main_entries(field))
    later = {sweep.name: choose(sweep_entries(field, sweep)) for sweep in sweeps}
    reported = {_weights(c.row) for c in chosen}
    swept = {_weights(row) for row in reported_rows(sweeps, later, rank_by=evaluation.rank_by)}
    if evaluation.sweep_items is None:
        swept -= reported  # one kind of score, so none twice
    for horizon in field.horizons:  # theory
        asked.update(_weights(row) for row in soups_at(field, horizon)[1])
    k = middle_k(field, pools)
    gains = {} if k is None or len(pools) < 2 else gain_rows(field, field.admitted, k=k)
    pairs = {_weights(row) for row in gains.values()}
    if not evaluation.items or evaluation.rank_by is Signal.ACCURACY:
        pairs, asked = set[Weights](), asked | pairs  # one kind of score, so none twice
    return Passes(
        validation=len(asked) + len(pairs) + 1,
        answered=len(checkpoints | pairs) + 1,
        probe=len(checkpoints),
        test=len(reported),
        swept=len(swept),
        # a gradient is of a row, and taken along each of its checkpoints
        ingredients=1
        + len(checkpoints)
        + sum(map(len, [*asked, *pairs, *reported, *swept]))
        + sum(2 * len(request.keys) for request in learned),
        gradient_tokens=BATCH_TOKENS * len(learned),
    )


def _pools(plan: Plan) -> tuple[Pool, ...]:
    drawn = random.Random(0)
    found: dict[str, dict[int, tuple[Candidate, ...]]] = {}
    for run in plan.runs:
        found.setdefault(run.branch, {})[run.positions.horizon] = tuple(
            Candidate(
                key=f"{run.name}/{tokens}",
                branch=run.branch,
                tokens=tokens,
                val_loss=3 + drawn.random(),
                accuracy=drawn.random(),
            )
            for tokens in run.positions.all()
        )
    full = plan.positions.horizon
    return tuple(Pool(branch=name, candidates=runs.pop(full), apart=runs) for name, runs in found.items())


def _weights(row: Row) -> Weights:
    return tuple(sorted(row.weights.items()))


def _made_up(row: Row) -> ValidationScores:
    drawn = random.Random(str(_weights(row)))
    return ValidationScores(
        losses=DocumentLosses(nll=np.array([3 + drawn.random()]), targets=np.array([1])),
        tasks=(TaskResult(name="it", category="it", correct=np.array([drawn.random()])),),
    )


def _made_up_products(request: Measure) -> Gram:
    """Checkpoints that went unrelated ways: enough for a method to go on asking."""
    count = len(request.keys)
    whole = Products(inner=np.eye(count), along_centre=np.zeros(count), centre_square=1.0, elements=count)
    return Gram(keys=request.keys, centre=request.centre, groups={WHOLE: whole})
