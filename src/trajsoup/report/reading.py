"""From the records of a study to the contents of its report. Nothing is scored, merged or trained here.

    records/*.json, branches/*/metrics.jsonl -> Contents

A record that is not there yet leaves its section empty, so the same function serves a finished study and one that
still trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trajsoup import __version__
from trajsoup.errors import StudyError
from trajsoup.report import contents as c
from trajsoup.report.reading_ablations import read_ablations
from trajsoup.report.reading_branches import read_branches
from trajsoup.report.reading_curves import read_panels
from trajsoup.report.reading_geometry import read_geometry
from trajsoup.report.reading_results import (
    read_answer,
    read_checkpoints,
    read_differences,
    read_evaluation_tables,
    read_fine_tuning_tables,
    read_further_seeds,
    read_seeds,
    read_soups,
)
from trajsoup.report.reading_scaling import read_costs, read_frontier, read_spent, read_surface, read_theory
from trajsoup.study.records import results as r
from trajsoup.study.records.files import FOLDER, Records
from trajsoup.study.records.scaling import FrontierRecord, TheoryRecord

STAGES = ("plan", "train", "validation", "screen", "rows", "evaluations", "comparisons", "geometry", "answer")


class AllRecords:
    """Every record of a study, read once."""

    def __init__(self, study: Path) -> None:
        found = Records(study)
        self.plan = found.read(r.PlanRecord)
        self.train = found.read(r.TrainRecord)
        self.validation = found.read(r.ValidationRecord)
        self.screen = found.read(r.ScreenRecord)
        self.rows = found.read(r.RowsRecord)
        self.evaluations = found.read(r.EvaluationsRecord)
        self.comparisons = found.read(r.ComparisonsRecord)
        self.geometry = found.read(r.GeometryRecord)
        self.sft = found.read(r.FineTuningRecord)
        self.frontier = found.read(FrontierRecord)
        self.theory = found.read(TheoryRecord)
        self.answer = found.read(r.AnswerRecord)
        self.seeds = found.read(r.SeedsRecord)
        self.sweeps: Mapping[str, r.SweepRecord] = found.every(r.SweepRecord)
        self.by_kind = {sweep.kind: sweep for sweep in self.sweeps.values()}
        self.present = {stage for stage in STAGES if getattr(self, stage) is not None}

    def sweep(self, kind: str) -> r.SweepRecord | None:
        """The sweep of that kind, whatever its name."""
        return self.by_kind.get(kind)


def read_contents(study: Path) -> c.Contents:
    """Read everything that a study's folder holds so far."""
    if not (study / FOLDER).is_dir():
        raise StudyError(f"{study} holds no {FOLDER}/: name the folder of a study, and run `trajsoup run` on it first")
    known = AllRecords(study)
    soups = read_soups(known.rows, known.sweeps, train=known.train, validation=known.validation)
    seeds = read_seeds(known.seeds)
    answer = read_answer(known.answer, soups, rows=known.rows, seeds=seeds)
    best = None if answer is None else soups.get(answer.shipped or answer.soup)
    chosen = frozenset() if best is None else frozenset(i.checkpoint for i in best.ingredients)
    branches = read_branches(
        study, plan=known.plan, train=known.train, screen=known.screen, validation=known.validation
    )
    return c.Contents(
        study=known.plan.title if known.plan is not None and known.plan.title else study.resolve().name,
        folder=study.resolve().name,
        stages=_stages(known, branches),
        branches=branches,
        baseline=None if known.plan is None else known.plan.baseline,
        soups=soups,
        checkpoints=read_checkpoints(known.train, known.validation),
        answer=answer,
        differences=read_differences(known.comparisons, soups),
        seeds=seeds,
        further_seeds=read_further_seeds(known.seeds),
        tables=(
            *read_evaluation_tables(known.rows, known.evaluations, known.comparisons),
            *read_fine_tuning_tables(known.sft, soups),
        ),
        panels=read_panels(known.validation, known.sweep("horizons"), chosen=chosen),
        frontiers=read_frontier(known.frontier, known.sweep("frontier")),
        costs=read_costs(known.frontier),
        spent=read_spent(known.plan, known.validation, known.sweeps),
        surface=read_surface(known.sweep("scaling")),
        theory=read_theory(known.theory, known.sweep("scaling")),
        ablations=read_ablations(known.sweeps),
        geometry=read_geometry(
            known.geometry,
            interpolation=known.sweep("interpolation"),
            scaling=known.sweep("scaling"),
        ),
        provenance=_provenance(known, soups, best),
        notes=() if known.plan is None else known.plan.notes,
    )


def _stages(known: AllRecords, branches: tuple[c.Branch, ...]) -> tuple[c.Stage, ...]:
    """Done where the record exists; the first that is missing is the one at work."""
    found: list[c.Stage] = []
    reached = False
    for name in STAGES:
        done = name in known.present
        status = "done" if done else "waiting" if reached else "running"
        reached = reached or not done
        detail = ""
        if name == "train" and branches:
            share = sum(b.share for b in branches) / len(branches)
            detail = f"{share:.0%}" if not done else f"{len(branches)} branches"
        found.append(c.Stage(name=name, status=status, detail=detail))
    return tuple(found)


def _provenance(known: AllRecords, soups: Mapping[str, c.Soup], best: c.Soup | None) -> c.Provenance:
    settings: list[tuple[str, str]] = []
    plan = known.plan
    if plan is not None:
        settings += [
            ("setting", plan.setting.value),
            ("horizon", f"{plan.horizon:,} tokens per branch"),
            ("total", f"{plan.total_tokens:,} tokens"),
            ("seed", "of the foreign runs, not known" if plan.seed is None else str(plan.seed)),
        ]
        for name, value in (
            ("checkpoint every", plan.checkpoint_every),
            ("sequence length", plan.sequence_length),
            ("parameters", plan.total_params),
            ("active parameters", plan.active_params),
            ("epochs", plan.epochs),
        ):
            if value is not None:
                settings.append((name, f"{value:,}" if isinstance(value, int) else f"{value:.3g}"))
        settings += [(f"tokens of {split}", f"{count:,}") for split, count in plan.corpus.items()]
    if known.train is not None:
        settings.append(("fork point, sha256", known.train.fork_point or "not known"))
    if known.sft is not None:
        settings += [(f"fine-tuning: {name}", value) for name, value in known.sft.settings.items()]
    ingredients = best.ingredients if best is not None else ()
    commands = ("trajsoup run STUDY", "trajsoup report STUDY")
    if known.answer is not None and known.answer.soup_folder is not None:
        commands = ("trajsoup run STUDY", f"trajsoup verify {known.answer.soup_folder}", "trajsoup report STUDY")
    return c.Provenance(
        ingredients=ingredients,
        versions=(("trajsoup", __version__), ("records", "trajsoup/record/1")),
        settings=tuple(settings),
        commands=commands,
    )
