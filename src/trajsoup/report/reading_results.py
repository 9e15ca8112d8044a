"""Soups, the answer, comparisons and tables, from the records that hold them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.report import contents as c
from trajsoup.study.records import results as r

SINGLES = "single/"  # rows of one branch each: in the table of branches, not among the strategies


def read_soups(
    rows: r.RowsRecord | None,
    sweeps: Mapping[str, r.SweepRecord],
    *,
    train: r.TrainRecord | None,
    validation: r.ValidationRecord | None,
) -> dict[str, c.Soup]:
    """Every model that a figure may show, by name; those of the main table with their row of W."""
    hashes = {} if train is None else {k.key: k.sha256 for b in train.branches for k in b.checkpoints}
    scored = {} if validation is None else {s.key: s for s in validation.checkpoints}

    def ingredients(weights: Mapping[str, float]) -> tuple[c.Ingredient, ...]:
        return tuple(
            c.Ingredient(
                checkpoint=key,
                branch=scored[key].branch if key in scored else None,
                tokens=scored[key].tokens if key in scored else None,
                weight=weight,
                score=scored[key].loss if key in scored else None,
                sha256=hashes.get(key),
            )
            for key, weight in weights.items()
        )

    found: dict[str, c.Soup] = {}
    for sweep in sweeps.values():
        for point in sweep.points:
            found[point.row] = c.Soup(
                name=point.row,
                label=_point_label(point, sweep),
                strategy=f"{sweep.title}; {point.strategy}",
                ingredients=ingredients(point.weights),
                k=point.k,
                scores=_scores(
                    validation_loss=point.validation_loss,
                    validation_accuracy=point.validation_accuracy,
                    test_loss=None if point.test_loss is None else point.test_loss.value,
                    test_accuracy=None if point.test_accuracy is None else point.test_accuracy.value,
                ),
                members=point.branches,
                merge_size=point.merge_size,
                horizon=point.horizon,
            )
    for row in () if rows is None else rows.rows:
        found[row.name] = c.Soup(
            name=row.name,
            label=row.label,
            strategy=f"{row.strategy}, {row.select}, {row.coefficients}",
            ingredients=ingredients(row.weights),
            k=row.k,
            scores=_scores(validation_loss=row.validation_loss, validation_accuracy=row.validation_accuracy),
            members=row.branches,
            merge_size=len(row.weights),
            horizon=row.horizon,
        )
    return found


def read_checkpoints(train: r.TrainRecord | None, validation: r.ValidationRecord | None) -> dict[str, c.Checkpoint]:
    """Every raw checkpoint with its validation scores and hash."""
    hashes = {} if train is None else {k.key: k.sha256 for b in train.branches for k in b.checkpoints}
    return {
        s.key: c.Checkpoint(
            branch=s.branch, tokens=s.tokens, loss=s.loss, accuracy=s.accuracy, sha256=hashes.get(s.key)
        )
        for s in (() if validation is None else validation.checkpoints)
    }


def read_answer(
    answer: r.AnswerRecord | None,
    soups: Mapping[str, c.Soup],
    *,
    rows: r.RowsRecord | None,
    seeds: Sequence[c.SeedLine],
) -> c.Answer | None:
    """The answer, with the folder of the soup and the command that makes it; what the seeds say stands beside it."""
    if answer is None or answer.loss is None:
        return None
    written = None if rows is None or answer.soup_folder is None else rows.best_soup()
    loss = _difference(answer.loss, soups, None)
    if loss is None:
        return None
    return c.Answer(
        soup=answer.soup,
        label=_label(answer.soup, soups),
        reference=_label(answer.single, soups),
        loss=loss,
        accuracy=None if answer.accuracy is None else _difference(answer.accuracy, soups, None),
        words=answer.words,
        seeds=tuple(dict.fromkeys([*(str(seed) for seed in answer.seeds), *(s for one in seeds for s in one.values)])),
        over_seeds=next((one for one in seeds if one.name == loss.name and one.rank_by is loss.rank_by), None),
        shipped=None if written is None else written.name,
        folder=answer.soup_folder,
        command=None if written is None else _merge_command(soups.get(written.name), answer.soup_folder),
    )


def read_differences(record: r.ComparisonsRecord | None, soups: Mapping[str, c.Soup]) -> tuple[c.Difference, ...]:
    """Every paired comparison of the main table."""
    if record is None:
        return ()
    found = (_difference(one, soups, record.level) for one in record.comparisons)
    return tuple(one for one in found if one is not None)


def read_seeds(record: r.SeedsRecord | None) -> tuple[c.SeedLine, ...]:
    """Comparisons over seeds of everything."""
    return () if record is None else tuple(_seed_line(one) for one in record.comparisons)


def read_further_seeds(record: r.SeedsRecord | None) -> tuple[c.SeedLine, ...]:
    """Those of sweeps and fine-tuning."""
    further = {} if record is None else record.further
    return tuple(
        _seed_line(one, of="fine-tuned" if name == "sft" else name.removeprefix("sweeps/"))
        for name, found in further.items()
        for one in found
    )


def _seed_line(one: r.SeedSpread, *, of: str | None = None) -> c.SeedLine:
    label = one.label or one.name
    return c.SeedLine(
        name=one.name,
        label=label if of is None else f"{of}: {label}",
        rank_by=one.signal,
        values=one.values,
        mean=one.mean,
        low=one.low,
        high=one.high,
    )


def read_evaluation_tables(
    rows: r.RowsRecord | None, evaluations: r.EvaluationsRecord | None, comparisons: r.ComparisonsRecord | None
) -> tuple[c.ScoreTable, ...]:
    """The main table, for accuracy and for loss (tab:tiny-mid-train-main)."""
    if rows is None or evaluations is None or not evaluations.evaluations:
        return ()
    scored = {e.row: e for e in evaluations.evaluations}
    listed = [row for row in rows.rows if row.name in scored and not row.name.startswith(SINGLES)]
    if not listed:
        return ()
    categories = tuple(dict.fromkeys(name for row in listed for name in scored[row.name].categories))
    sources = tuple(dict.fromkeys(name for row in listed for name in scored[row.name].sources))
    accuracies = {
        row.name: (
            *(scored[row.name].categories.get(name) for name in categories),
            None if (overall := scored[row.name].overall_average) is None else overall.value,
        )
        for row in listed
    }
    losses = {
        row.name: (*(scored[row.name].sources.get(name) for name in sources), scored[row.name].loss.value)
        for row in listed
    }
    found: list[c.ScoreTable] = []
    for signal, columns, values, overall in (
        (Signal.ACCURACY, categories, accuracies, c.OVERALL),
        (Signal.LOSS, sources, losses, "Overall"),
    ):
        if any(any(v is not None for v in line) for line in values.values()):
            ties = {t.column: t for t in (() if comparisons is None else comparisons.ties) if t.signal is signal}
            found.append(
                c.ScoreTable(
                    name=signal.value,
                    title=f"{signal.value.capitalize()} by strategy",
                    rank_by=signal,
                    split=scored[listed[0].name].split.value,
                    columns=(*columns, overall),
                    rows=tuple(
                        c.ScoreRow(
                            soup=row.name,
                            label=row.label,
                            values=values[row.name],
                            group=row.strategy,
                            in_noise=tuple(row.name in ties[k].tied if k in ties else False for k in (*columns, None)),
                        )
                        for row in listed
                    ),
                )
            )
    return tuple(found)


def read_fine_tuning_tables(record: r.FineTuningRecord | None, soups: Mapping[str, c.Soup]) -> tuple[c.ScoreTable, ...]:
    """The post-training table, where SFT ran (tab:tiny-post-train-main)."""
    if record is None or not record.rows:
        return ()
    categories = tuple(dict.fromkeys(name for row in record.rows for name in row.categories))
    pairs = {frozenset((one.model, one.reference)) for one in record.comparisons if one.within_noise}
    columns = (*categories, c.OVERALL, "before SFT")
    values = {
        row.row: (*(row.categories.get(name) for name in categories), row.overall_average.value, row.before)
        for row in record.rows
    }
    table = c.ScoreTable(
        name="post-training",
        title="Accuracy after the same fine-tuning",
        rank_by=Signal.ACCURACY,
        split=record.rows[0].split.value,
        columns=columns,
        rows=tuple(
            c.ScoreRow(
                soup=row.row,
                label=_label(row.row, soups),
                values=values[row.row],
                group=row.row.partition("/")[0],
            )
            for row in record.rows
        ),
    )
    return (_marked(table, pairs, column=len(categories)),)


def _marked(table: c.ScoreTable, noise: set[frozenset[str]], *, column: int) -> c.ScoreTable:
    """Mark values of a column whose paired difference from the best one lies inside noise. Only recorded pairs count."""
    best = table.best(column)
    winner = next((row.soup for row in table.rows if row.values[column] == best), None)
    rows = tuple(
        c.ScoreRow(
            soup=row.soup,
            label=row.label,
            values=row.values,
            group=row.group,
            in_noise=tuple(
                i == column and winner is not None and row.soup is not None and frozenset((row.soup, winner)) in noise
                for i in range(len(table.columns))
            ),
        )
        for row in table.rows
    )
    return c.ScoreTable(
        name=table.name, title=table.title, rank_by=table.rank_by, split=table.split, columns=table.columns, rows=rows
    )


def _difference(one: r.ComparisonRecord, soups: Mapping[str, c.Soup], level: float | None) -> c.Difference | None:
    if one.difference is None:
        return None
    return c.Difference(
        name=one.name,
        question=one.question,
        model=one.model,
        label=_label(one.model, soups),
        reference=_label(one.reference, soups),
        rank_by=one.signal,
        split=one.split.value,
        value=one.difference,
        low=one.low,
        high=one.high,
        level=level,
        probability=one.probability_of_improvement,
        count=one.count,
        within_noise=one.within_noise,
        matched=one.matched,
    )


def _merge_command(soup: c.Soup | None, folder: str | None) -> str | None:
    """The merge of exactly these weights, to be run in the study's folder."""
    if soup is None or not soup.ingredients:
        return None
    parts = [shlex.quote(f"{i.checkpoint}={i.weight!r}") for i in soup.ingredients]
    return f"trajsoup merge {' '.join(parts)} --output {shlex.quote(folder or 'soup')}"


def _scores(**values: float | None) -> dict[str, float]:
    return {name.replace("_", " "): value for name, value in values.items() if value is not None}


def _point_label(point: r.SweepPoint, sweep: r.SweepRecord) -> str:
    """A point in words: tokens as tokens, a K as a K."""
    if isinstance(point.x, int | float):
        number = format_tokens(round(point.x)) if point.x >= 1000 else f"{point.x:g}"
        return f"{point.series}, {sweep.x_label} {number}"
    return f"{point.series}: {point.x}"


def _label(name: str, soups: Mapping[str, c.Soup]) -> str:
    return soups[name].label if name in soups else name
