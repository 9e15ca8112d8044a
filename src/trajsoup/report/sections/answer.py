"""The top of the page: the answer, and the questions that matter at a glance, each with its interval and its seeds.

    answer, comparisons, seeds -> lines of (question, yes or no, places in percent) -> the page, `trajsoup status`

It is plain HTML, not a figure: it must be there before any script has run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajsoup.core.signal import Signal
from trajsoup.report.style import OURS, difference_text, interval_text
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.comparisons import ComparisonRecord, ComparisonsRecord, Evidence
from trajsoup.study.records.conditions import ConditionsRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.rows import RowRecord, RowsRecord
from trajsoup.study.records.seeds import SeedSpread, SeedsRecord

MARGIN = 6.0  # percent left free on both sides
VERDICTS = {
    Evidence.STRONG: "yes",
    Evidence.AGAINST: "no",
    Evidence.WITHIN_NOISE: "not certain",
    Evidence.TOO_FEW: "too few documents to say",
    Evidence.EXPLORATORY: "exploratory",
}


HEADLINES = (  # comparison, signal, the line's beginning
    ("soup-serial", Signal.LOSS, "Soup of the tokens of one run, against that run merged"),
    ("soup-limited", Signal.LOSS, "The same, against the best of all runs of that length, merged"),
    ("soup-extended", Signal.LOSS, "Soup of full branches, against the best of them merged"),
    ("merge", Signal.LOSS, "Merging within one run, against its best checkpoint"),
    ("soup-limited", Signal.ACCURACY, "Tasks: soup of the same tokens, against the best run merged"),
)


HEADLINE_WORDS = {
    Evidence.STRONG: "better",
    Evidence.AGAINST: "worse",
    Evidence.WITHIN_NOISE: "not certain",
    Evidence.TOO_FEW: "too few documents to say",
    Evidence.EXPLORATORY: "exploratory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One question. Places are percent of the axis, better to the left."""

    compared: ComparisonRecord
    over_seeds: SeedSpread | None
    model: RowRecord
    reference: RowRecord
    zero: float
    low: float
    middle: float
    high: float
    seeds: tuple[float, ...]

    @property
    def evidence(self) -> Evidence:
        """Over seeds and documents where several seeds ran, otherwise over the documents of one."""
        seeds = self.over_seeds
        return self.compared.evidence if seeds is None or seeds.p is None else seeds.evidence

    @property
    def difference(self) -> float | None:
        """What the evidence is of: the mean over seeds, or that of the one seed."""
        seeds = self.over_seeds
        return self.compared.difference if seeds is None or seeds.p is None else seeds.mean

    @property
    def verdict(self) -> str:
        """The answer in a word."""
        if self.compared.difference == self.compared.low == self.compared.high == 0:
            return "the same"  # as a rule because both are one checkpoint
        return VERDICTS[self.evidence]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The first thing on the page. The first line is the answer's own question."""

    record: AnswerRecord
    lines: tuple[Line, ...]
    level: float | None  # of the intervals
    seeds: int
    shipped: RowRecord | None  # the model in the answer's folder: whatever validates best

    @property
    def headline(self) -> Line:
        """The answer's own question."""
        return self.lines[0]

    @property
    def command(self) -> str | None:
        """The merge of exactly these weights, to be run in the study's folder; None of a checkpoint as it was saved, and
        of checkpoints that are gone."""
        if self.shipped is None or self.shipped.sums or len(self.shipped.weights) < 2:
            return None
        parts = [shlex.quote(f"{key}={weight!r}") for key, weight in self.shipped.weights.items()]
        return (
            f"trajsoup merge {' '.join(parts)} --output {shlex.quote((self.record.soup_folder or 'soup') + '-again')}"
        )


def why_no_answer(records: Records) -> str | None:
    """Why a study that is through has no soup to compare, where it says so."""
    record = records.read(AnswerRecord)
    return None if record is None else record.why_no_soup


def read_answer(records: Records) -> Answer | None:
    """The answer's question first, then what the other headlines ask of a soup, in loss."""
    record, rows, compared = records.read(AnswerRecord), records.read(RowsRecord), records.read(ComparisonsRecord)
    if record is None or rows is None or record.loss is None or record.loss.difference is None:
        return None
    soups = {row.name for row in rows.rows if row.strategy == OURS}  # what merging does is of another size
    asked = [record.loss] + [
        c
        for c in (() if compared is None else compared.comparisons)
        if c.signal is record.loss.signal
        and c.name != record.loss.name
        and c.name in {name for name, _, _ in HEADLINES}
        and c.model in soups
        and c.difference is not None
    ]
    seeds = records.read(SeedsRecord)
    spreads = {} if seeds is None else {s.name: s for s in seeds.comparisons if s.signal is record.loss.signal}
    return Answer(
        record=record,
        lines=_lines(asked, spreads, {row.name: row for row in rows.rows}),
        level=None if compared is None else compared.level,
        seeds=len(set(record.seeds) | set(() if seeds is None else seeds.seeds)),
        shipped=None if record.soup_folder is None else rows.best(),
    )


def _lines(
    asked: Sequence[ComparisonRecord], spreads: Mapping[str, SeedSpread], rows: Mapping[str, RowRecord]
) -> tuple[Line, ...]:
    values = [0.0]
    for c in asked:
        values += [value for value in (c.low, c.difference, c.high) if value is not None]
        values += spreads[c.name].values.values() if c.name in spreads else ()
    begin, width = min(values), max(values) - min(values)

    def place(value: float | None) -> float:
        share = 0.5 if width == 0 else ((value or 0.0) - begin) / width
        return round(MARGIN + share * (100 - 2 * MARGIN), 2)

    return tuple(
        Line(
            compared=c,
            over_seeds=spreads.get(c.name),
            model=rows[c.model],
            reference=rows[c.reference],
            zero=place(0.0),
            low=place(c.difference if c.low is None else c.low),
            middle=place(c.difference),
            high=place(c.difference if c.high is None else c.high),
            seeds=tuple(place(value) for value in spreads[c.name].values.values()) if c.name in spreads else (),
        )
        for c in asked
    )


def headlines(records: Records) -> tuple[str, ...]:
    """The answer in at most six lines for a terminal: what was compared, by how much, how sure; what was not met."""
    answer, compared = records.read(AnswerRecord), records.read(ComparisonsRecord)
    if answer is None or compared is None or answer.loss is None:
        return () if answer is None else answer.words[:6]
    seeds = records.read(SeedsRecord)
    spreads = {} if seeds is None else {(s.name, s.signal): s for s in seeds.comparisons}
    found = {(c.name, c.signal): c for c in compared.comparisons}
    lines = [
        f"{words}: {_measured(found[name, signal], spreads.get((name, signal)))}"
        for name, signal, words in HEADLINES
        if (name, signal) in found
    ]
    conditions = records.read(ConditionsRecord)
    if conditions is not None:
        missed = [f"{c.name} ({c.measured})" for c in conditions.conditions if c.met is not True]
        met = len(conditions.conditions) - len(missed)
        more = f"; not {', '.join(missed)}" if missed else ""
        lines.append(f"Conditions met: {met} of {len(conditions.conditions)}{more}.")
    return tuple(lines)


def _measured(one: ComparisonRecord, seeds: SeedSpread | None) -> str:
    spread = None if seeds is None or seeds.p is None else seeds
    value = one.difference if spread is None else spread.mean
    interval = interval_text(*((one.low, one.high) if spread is None else (spread.low, spread.high)), one.signal)
    p = one.p_holm if spread is None else spread.p_holm
    sure = HEADLINE_WORDS[one.evidence if spread is None else spread.evidence]
    sure += "" if p is None else f" (p = {p:.2g} after Holm)"
    count = "" if spread is None else f", ahead in {spread.better} of {len(spread.values)} seeds"
    return f"{difference_text(value, one.signal)}{'' if interval is None else f' [{interval}]'}, {sure}{count}."
