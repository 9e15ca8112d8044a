"""The end of a study: the model that validates best as a folder, and the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trajsoup.core.budget import Setting
from trajsoup.core.signal import Signal
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import plan_row
from trajsoup.merge.provenance import RECORD
from trajsoup.merge.verify import read_record
from trajsoup.store.publish import remove_stale
from trajsoup.store.remote import absolute
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.comparisons import ComparisonsRecord
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.rows import RowRecord, RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.score.scorer import FORK_POINT
from trajsoup.study.stages.comparisons import LIMITED, SINGLE
from trajsoup.study.stages.estimates import row_of
from trajsoup.study.stages.words import sentences
from trajsoup.study.workbench import Workbench

SOUP = "soup"


def answer_stage(bench: Workbench) -> bool:
    """Write the model that validation chose, and say what was seen."""
    records = bench.records
    inputs = records.digests(ValidationRecord, ScreenRecord, RowsRecord, EvaluationsRecord, ComparisonsRecord)

    def make() -> AnswerRecord:
        listed: RowsRecord = records.require(RowsRecord)
        rows = {row.name: row for row in listed.rows}
        found = records.require(ComparisonsRecord).comparisons
        best = listed.best() or rows[SINGLE]
        write_soup(bench, best)
        by_name = {(c.name, c.signal): c for c in found}
        asked = "soup-serial" if ("soup-serial", Signal.LOSS) in by_name else "soup-limited"
        loss, accuracy = (by_name.get((asked, signal)) for signal in (Signal.LOSS, Signal.ACCURACY))
        why = None if asked in {name for name, _ in by_name} else bench.field().why_no_soup(Setting.LIMITED)
        words = sentences(
            found,
            rows=rows,
            evaluations=records.require(EvaluationsRecord),
            screen=records.require(ScreenRecord),
            validation=records.require(ValidationRecord),
            optimism=records.require(ComparisonsRecord).optimism,
            why_no_soup=why,
        )
        return AnswerRecord(
            inputs=inputs,
            soup=LIMITED if LIMITED in rows else (listed.best_soup() or rows[SINGLE]).name,
            single=SINGLE if loss is None else loss.reference,
            loss=loss,
            why_no_soup=why,
            accuracy=accuracy,
            words=words,
            soup_folder=SOUP,
            seeds=() if bench.setup.seed is None else (bench.setup.seed,),
        )

    return records.ensure(AnswerRecord, inputs, make)


def write_soup(bench: Workbench, row: RowRecord) -> Path:
    """Blend a row into <study>/soup, a Hugging Face folder with provenance. An older soup of the study gives way."""
    out = bench.setup.output / SOUP
    remove_stale(out)
    fork_point = {} if bench.fork_point is None else {FORK_POINT: absolute(bench.fork_point)}
    made_of = bench.present(row_of(row))
    paths = {key: absolute(bench.place(key)) for key in made_of.weights} | fork_point
    weights = {paths[key]: weight for key, weight in made_of.weights.items()}
    own = {g: {paths[key]: weight for key, weight in of.items()} for g, of in (row.groups or {}).items()}
    candidates = {}
    for pool in bench.pools():
        for c in pool.candidates:
            candidates[absolute(bench.place(c.key))] = c
    if out.exists():
        if _is_made_of(out, weights, own):  # a run that was killed between the soup and its record
            return out
        _put_aside(out)
    plan = plan_row(
        replace(made_of, weights=weights, groups=own or None), candidates=candidates, fork_point=bench.fork_point
    )
    make_soup(plan, out, executor=bench.executor, options=bench.options)
    return out


def _is_made_of(out: Path, weights: dict[str, float], groups: dict[str, dict[str, float]]) -> bool:
    if not (out / RECORD).is_file():
        return False
    record = read_record(out)
    return ({i.path: i.weight for i in record.ingredients}, dict(record.groups or {})) == (weights, groups)


def _put_aside(out: Path) -> None:
    """Existing output is never deleted: it is renamed."""
    number = 1
    while (older := out.with_name(f"{out.name}-{number}")).exists():
        number += 1
    out.rename(older)
