"""`trajsoup design`: train the probes, score them and their midpoints, pick the recipes, say how far to trust the pick.

    probes (probes.py) -> validation of ends and midpoints, J on the probe of training documents, one Gram pass
                       -> core/design.py -> DesignRecord -> a study file (study_file.py)

The gain is promised at the length of the probe. That gaps early rank gaps late is what the design rests on; a finished
study tells how far that held (core/ahead.py, docs/generate_wishes.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trajsoup.core.ahead import spearman
from trajsoup.core.design import (
    BASELINE,
    REPLICATE,
    Gaps,
    Pick,
    ProbeScores,
    Sureness,
    best_set,
    drawn_gaps,
    gaps_of,
    pool_of,
    sureness,
)
from trajsoup.core.drift import Drift, drift
from trajsoup.core.geometry import cosines
from trajsoup.core.recipe import Recipe
from trajsoup.core.scores import FEWEST, ValidationScores
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.engine.executor import Executor
from trajsoup.errors import StudyError
from trajsoup.study.cache import cache_folder
from trajsoup.study.design.probes import baseline_name, candidates_of, order_name, probe_study, rounded_words
from trajsoup.study.design.study_file import changes_of, picked_branches, write_designed
from trajsoup.study.file.study import Study
from trajsoup.study.records.design import DesignRecord, ProbedRecipe
from trajsoup.study.records.files import Records, digest_of, writing
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.score.scorer import FORK_POINT, OnScore, silent, single
from trajsoup.study.stages.plan import plan_stage
from trajsoup.study.stages.train import train_stage
from trajsoup.study.stages.validation import validation_stage
from trajsoup.study.train.branches import OnProgress
from trajsoup.study.workbench import Workbench

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus

TOO_FAR = 0.95  # P(J_T > epsilon) from which a recipe is left out
SAME_PICK = 0.5  # share of draws below which the pick is called unsure


@dataclass(frozen=True, slots=True, kw_only=True)
class Designed:
    """What a design leaves."""

    record: DesignRecord
    study_file: Path  # ready to run
    made: bool  # now; False: nothing had changed


def design_study(
    study: Study,
    *,
    n_branches: int | None = None,
    share: float,
    propose: bool = True,
    jobs: int | None = None,
    cache: Path | None = None,
    corpus: Corpus | None = None,
    on_train: OnProgress | None = None,
    on_score: OnScore = silent,
    on_length: Callable[[str], None] = lambda words: None,
    executor: Executor | None = None,
) -> Designed:
    """Probe the candidates, pick N of them (default: as many as the study has branches, or three) and write the study."""
    n = n_branches or (len(study.recipes) if len(study.recipes) > 1 else 3)
    if n < 2:
        raise StudyError(
            "a design picks recipes that are averaged, so it needs two branches at least: use --branches 2"
        )
    candidates = candidates_of(study, propose=propose)
    probes = probe_study(study, candidates, share=share)
    if (words := rounded_words(study, probes, share=share)) is not None:
        on_length(words)
    options = {"progress": on_score, "executor": executor, "jobs": jobs, "on_train": on_train}
    with writing(study.output) as records, writing(probes.output) as own:
        bench = Workbench(probes, cache=cache or cache_folder(), corpus=corpus, records=own, **options)
        for stage in (plan_stage, train_stage, validation_stage):
            stage(bench)
        inputs = {"study": study.digest, "probes": own.digest(ValidationRecord), "branches": digest_of(n)}
        made = records.ensure(DesignRecord, inputs, lambda: _design(study, candidates, bench, n=n, inputs=inputs))
    record = Records(study.output).require(DesignRecord)
    return Designed(record=record, study_file=write_designed(study, record), made=made)


def _design(
    study: Study, candidates: Mapping[str, Recipe], bench: Workbench, *, n: int, inputs: Mapping[str, str]
) -> DesignRecord:
    assert isinstance(bench.setup, Study)
    recipes, horizon = bench.setup.recipes, bench.setup.horizon
    last = {run.branch: c.key for run in bench.train.branches for c in run.checkpoints if c.tokens == horizon}
    first = [baseline_name(study), order_name(study)]
    if missing := [name for name in first if name not in last]:
        raise StudyError(
            f"the probe of {missing[0]!r}, the baseline's own recipe, did not reach {horizon:,} tokens: mend the baseline"
        )
    names = tuple(name for name in recipes if name in last)
    scores = bench.scorer.validate(_rows(last, names), what="probes and midpoints", tasks=False)
    names = tuple(name for name in names if math.isfinite(_loss(scores[last[name]])))
    if missing := [name for name in first if name not in names]:
        raise StudyError(f"the probe of {missing[0]!r}, the baseline's own recipe, diverged: mend the baseline")
    table = _table(scores, last, names)
    gaps, draws = gaps_of(table), drawn_gaps(table)
    paths = _paths(bench, names[BASELINE])
    drifts = {name: drift(paths[name], horizon=study.horizon) for name in names[REPLICATE + 1 :]}
    tolerance = study.evaluation.tolerance
    left_out = {name: "diverged in the probe" for name in recipes if name not in names}
    for name, found in drifts.items():
        if found is not None and found.above(tolerance) > TOO_FAR:
            left_out[name] = f"would end outside the tolerance: P(J > {tolerance:.1%}) = {found.above(tolerance):.2f}"
    allowed = tuple(i for i, name in enumerate(names) if i > REPLICATE and name not in left_out)
    pool = pool_of(gaps, n_branches=n, allowed=allowed)
    pick = best_set(pool, n_branches=n)
    sure = sureness(pick, gaps, draws, n_branches=n, allowed=allowed)
    angles = _cosines(bench, [last[name] for name in names])
    chosen = [names[pool.places[i]] for i in pick.members]
    pairs = list(itertools.combinations(range(len(names)), 2))
    agreed = spearman([gaps.same[p] for p in pairs], [1 - angles[p] for p in pairs])
    effective = next(s.losses for s in scores.values() if s.losses is not None).effective_documents
    errors = np.std([one.same[:, BASELINE] for one in draws], axis=0)
    doubts = _doubts(
        sure, documents=effective, apart=(float(gaps.other[BASELINE]), float(errors[REPLICATE])), pool=len(allowed)
    )
    branches = picked_branches(study, chosen, candidates)
    found = [
        _probed(
            name,
            changes_of(candidates.get(name, study.baseline), baseline=study.baseline),
            place=names.index(name) if name in names else None,
            gaps=gaps,
            errors=errors,
            angles=angles,
            path=paths.get(name, []),
            expected=drifts.get(name),
            tolerance=tolerance,
            left_out=left_out.get(name),
            picked=chosen.count(name),
        )
        for name in recipes
    ]
    return DesignRecord(
        inputs=inputs,
        split=Split.VALIDATION,
        probe_tokens=horizon,
        horizon=study.horizon,
        documents=effective,
        recipes=tuple(found),
        branches=branches,
        gain=pick.gain,
        gain_low=sure.gain_low,
        gain_high=sure.gain_high,
        over_orders=sure.over_orders,
        over_orders_low=sure.over_orders_low,
        over_orders_high=sure.over_orders_high,
        same_pick=sure.same,
        gap_and_cosine=agreed,
        doubts=doubts,
        words=tuple(_words(pick, sure, branches, probes=len(recipes), share=horizon / study.horizon)),
    )


def _rows(last: Mapping[str, str], names: Sequence[str]) -> list[Row]:
    """The last checkpoint of every probe, and the midpoint of every pair."""
    ends = [single(last[name]) for name in names]
    return ends + [_midpoint(last[a], last[b]) for a, b in itertools.combinations(names, 2)]


def _midpoint(a: str, b: str) -> Row:
    return Row(name=f"{a} ~ {b}", weights={a: 0.5, b: 0.5})


def _table(scores: Mapping[str, ValidationScores], last: Mapping[str, str], names: tuple[str, ...]) -> ProbeScores:
    pairs = itertools.combinations(range(len(names)), 2)
    ends = [scores[last[name]].losses for name in names]
    assert ends[0] is not None
    return ProbeScores(
        names=names,
        ends=np.array([found.nll for found in ends if found is not None]),
        midpoints={(i, j): _nll(scores[_midpoint(last[names[i]], last[names[j]]).name]) for i, j in pairs},
        targets=ends[0].targets.astype(np.float64),
    )


def _nll(scores: ValidationScores) -> Any:
    assert scores.losses is not None
    return scores.losses.nll


def _loss(scores: ValidationScores) -> float:
    return math.nan if scores.losses is None else scores.losses.loss()


def _paths(bench: Workbench, baseline: str) -> dict[str, list[tuple[int, float]]]:
    """J against tokens for every probe, on the probe of training documents."""
    scored = bench.records.require(ValidationRecord).checkpoints
    own = {c.tokens: c.probe_loss for c in scored if c.branch == baseline}
    found: dict[str, list[tuple[int, float]]] = {}
    for c in scored:
        reference = own.get(c.tokens)
        if c.probe_loss is not None and reference:
            found.setdefault(c.branch, []).append((c.tokens, c.probe_loss / reference - 1))
    return found


def _cosines(bench: Workbench, keys: Sequence[str]) -> Any:
    measured = bench.gram([FORK_POINT, *keys], centre=FORK_POINT)
    places = [measured.position(key) for key in keys]
    return cosines(measured)[np.ix_(places, places)]


def _probed(
    name: str,
    changes: Mapping[str, Any],
    *,
    place: int | None,
    gaps: Gaps,
    errors: Any,
    angles: Any,
    path: Sequence[tuple[int, float]],
    expected: Drift | None,
    tolerance: float,
    left_out: str | None,
    picked: int,
) -> ProbedRecipe:
    def of(values: Any) -> float | None:
        value = math.nan if place is None else float(values[place])
        return value if math.isfinite(value) else None

    return ProbedRecipe(
        name=name,
        changes=changes,
        loss=of(gaps.losses),
        gap=of(gaps.same[:, BASELINE]),
        gap_error=of(errors),
        gap_other=of(gaps.other),
        decorrelation=of(gaps.decorrelation),
        usefulness=of(gaps.usefulness),
        cosine=of(angles[:, BASELINE]),
        loss_gap=path[-1][1] if path else None,
        expected_loss_gap=None if expected is None else expected.expected,
        expected_error=None if expected is None else expected.error,
        too_far=None if expected is None else expected.above(tolerance),
        left_out=left_out,
        picked=picked,
    )


def _doubts(sure: Sureness, *, documents: float, apart: tuple[float, float], pool: int) -> tuple[str, ...]:
    """What speaks against trusting the pick."""
    found: list[str] = []
    if documents < FEWEST:
        found.append(
            f"the validation documents say as much as {documents:.0f} of one size, of {FEWEST} at least: raise "
            "evaluate.validation_tokens"
        )
    gap, error = apart
    if gap <= 2 * error:
        found.append(
            f"two orders of the baseline are not yet apart (gap {gap:.2g}, standard error {error:.2g}): use a longer "
            "--length, or more documents"
        )
    if sure.same < SAME_PICK:
        found.append("draws of the documents pick other recipes more often than not: those would do about as well")
    if sure.gain_low <= 0:
        found.append("averaging the picked recipes is not sure to gain over the best of them at this length")
    if not pool:
        found.append("no candidate is left: all diverged or leave the tolerance")
    return tuple(found)


def _words(
    pick: Pick,
    sure: Sureness,
    branches: Mapping[str, Any],
    *,
    probes: int,
    share: float,
) -> list[str]:
    change = f"{-pick.gain:+.2g} nats [{-sure.gain_high:+.2g} to {-sure.gain_low:+.2g}]"
    words = [
        f"Branch with {', '.join(branches)}: at the length of the probes their average is promised {change} from the loss of "
        f"the best of them{', so it loses there' if pick.gain < 0 else ''}."
    ]
    between = f"{sure.over_orders:+.2g} [{sure.over_orders_low:+.2g} to {sure.over_orders_high:+.2g}]"
    if sure.over_orders_low > 0:
        words.append(f"That is {between} nats beyond {len(branches)} orders of the baseline: the recipes pay.")
    else:
        words.append(
            f"Beyond {len(branches)} orders of the baseline it promises {between} nats: within the noise of the documents, "
            "so plain orders of the data would do."
        )
    words.append(f"The {probes} probes took {probes * share:.0%} of the tokens of one branch.")
    return words
