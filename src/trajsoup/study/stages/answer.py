"""The end of a study: the chosen soup as a folder, the answer, and the spread over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.core.statistics import spread_over_seeds
from trajsoup.merge.make import make_soup, plan_row
from trajsoup.merge.provenance import RECORD
from trajsoup.store.checkpoint import load_json
from trajsoup.store.publish import remove_stale
from trajsoup.store.remote import absolute
from trajsoup.study.records.files import Records
from trajsoup.study.records.results import (
    AnswerRecord,
    ComparisonRecord,
    RowRecord,
    RowsRecord,
    SeedSpread,
    SeedsRecord,
    Split,
)
from trajsoup.study.stages.comparisons import LIMITED, QUESTIONS, SINGLE
from trajsoup.study.stages.words import over_seeds, sentences
from trajsoup.study.workbench import Workbench

SOUP = "soup"


def answer_stage(bench: Workbench) -> bool:
    """Write the soup that validation chose, and say what was seen."""
    records = bench.records
    inputs = {name: records.digest(name) for name in ("validation", "screen", "rows", "evaluations", "comparisons")}

    def make() -> AnswerRecord:
        listed: RowsRecord = records.require("rows")
        rows = {row.name: row for row in listed.rows}
        found: tuple[ComparisonRecord, ...] = records.require("comparisons").comparisons
        best = listed.best_soup() or rows[SINGLE]
        write_soup(bench, best)
        by_signal = {c.signal: c for c in found if c.name == "soup-limited"}
        words = sentences(
            found,
            rows=rows,
            evaluations=records.require("evaluations"),
            screen=records.require("screen"),
            validation=records.require("validation"),
        )
        return AnswerRecord(
            inputs=inputs,
            soup=LIMITED if LIMITED in rows else best.name,
            single=SINGLE,
            loss=by_signal.get(Signal.LOSS),
            accuracy=by_signal.get(Signal.ACCURACY),
            words=words,
            soup_folder=SOUP,
            seeds=() if bench.setup.seed is None else (bench.setup.seed,),
        )

    return records.ensure("answer", inputs, make)


def write_soup(bench: Workbench, row: RowRecord) -> Path:
    """Blend a row into <study>/soup, a Hugging Face folder with provenance. An older soup of the study gives way."""
    out = bench.setup.output / SOUP
    remove_stale(out)
    weights = {absolute(bench.place(key)): weight for key, weight in row.weights.items()}
    candidates = {}
    for pool in bench.pools():
        for c in pool.candidates:
            candidates[absolute(bench.place(c.key))] = c
    if out.exists():
        if _is_made_of(out, weights):  # a run that was killed between the soup and its record
            return out
        _put_aside(out)
    plan = plan_row(Row(name=row.name, weights=weights), candidates=candidates, fork_point=bench.fork_point)
    make_soup(plan, out, executor=bench.executor, options=bench.options)
    return out


def _is_made_of(out: Path, weights: dict[str, float]) -> bool:
    record = out / RECORD
    if not record.is_file():
        return False
    return {i["path"]: i["weight"] for i in load_json(record)["ingredients"]} == weights


def _put_aside(out: Path) -> None:
    """Existing output is never deleted: it is renamed."""
    number = 1
    while (older := out.with_name(f"{out.name}-{number}")).exists():
        number += 1
    out.rename(older)


def seeds_stage(folder: Path, folders: Sequence[Path], *, further: Sequence[str] = ()) -> bool:
    """Collect main table and comparisons over the seeds' folders, the first of which is the study's own.

    `further` names the records of sweeps and fine-tuning.
    """
    root = Records(folder)
    every = [Records(path) for path in folders]
    answers = [records.require("answer") for records in every]
    seeds = [answer.seeds[0] for answer in answers]
    inputs = {f"seed-{seed}": r.digest("comparisons") for seed, r in zip(seeds, every, strict=True)}
    for name in further:
        inputs |= {f"seed-{seed}/{name}": r.digest(name) for seed, r in zip(seeds, every, strict=True)}

    def make() -> SeedsRecord:
        tables = [{e.row: e for e in r.require("evaluations").evaluations} for r in every]
        labels = {row.name: row.label for r in every for row in r.require("rows").rows}
        rows: list[SeedSpread] = []
        for name in tables[0]:
            losses = {s: t[name].loss.value for s, t in zip(seeds, tables, strict=True) if name in t}
            rows += _spread(name, Signal.LOSS, losses, labels[name])
            averages = {
                s: t[name].overall_average.value
                for s, t in zip(seeds, tables, strict=True)
                if name in t and t[name].overall_average is not None
            }
            rows += _spread(name, Signal.ACCURACY, averages, labels[name])
        names = {q[0]: f"{labels.get(q[1], q[1])} against {labels.get(q[2], q[2])}" for q in QUESTIONS}

        def over(record: str) -> tuple[SeedSpread, ...]:
            return _differences(
                seeds,
                [r.require(record).comparisons for r in every],
                label=lambda name: names.get(name) or _without(f"{record.removeprefix('sweeps/')}/", name),
            )

        spreads = over("comparisons")
        return SeedsRecord(
            inputs=inputs,
            seeds=tuple(seeds),
            split=Split.TEST,
            rows=tuple(rows),
            comparisons=spreads,
            further={name: over(name) for name in further},
            words=over_seeds(spreads),
        )

    return root.ensure("seeds", inputs, make)


def _without(sweep: str, comparison: str) -> str:
    return " against ".join(row.removeprefix(sweep) for row in comparison.split(" against "))


def _differences(
    seeds: Sequence[int], comparisons: Sequence[Sequence[ComparisonRecord]], *, label: Callable[[str], str]
) -> tuple[SeedSpread, ...]:
    """What some seeds do not have (another branch passed the screen) is spread over those that have it."""
    found = [{(c.name, c.signal): c.difference for c in of_seed} for of_seed in comparisons]
    return tuple(
        spread
        for name, signal in dict.fromkeys(key for of_seed in found for key in of_seed)
        for spread in _spread(
            name,
            signal,
            {s: f[name, signal] for s, f in zip(seeds, found, strict=True) if (name, signal) in f},
            label(name),
        )
    )


def _spread(name: str, signal: Signal, values: dict[int, float | None], label: str) -> list[SeedSpread]:
    usable = {str(seed): value for seed, value in values.items() if value is not None}
    if not usable:
        return []
    spread = spread_over_seeds(list(usable.values()))
    return [
        SeedSpread(
            name=name,
            signal=signal,
            values=usable,
            mean=spread.mean,
            deviation=spread.deviation,
            low=spread.low,
            high=spread.high,
            label=label,
        )
    ]
