"""`trajsoup geometry`: directions of the branches, the angles between them, and what losses promise of more of them."""

from __future__ import annotations

from trajsoup.cli.console import show_json, show_notes, show_table
from trajsoup.cli.plan import StudyFile
from trajsoup.cli.scan import Json


def geometry(study: StudyFile, as_json: Json = False) -> None:
    """Show directions and angles of the branches of a study that was run, the gain of pairs, and what theory predicts."""
    import dataclasses

    import typer

    from trajsoup.core.pair_gain import relation_words
    from trajsoup.study.cache import cache_folder
    from trajsoup.study.file.study import load_setup
    from trajsoup.study.records.files import Records, writing
    from trajsoup.study.records.results import GeometryRecord, RowsRecord
    from trajsoup.study.records.scaling import TheoryRecord
    from trajsoup.study.stages.geometry import geometry_stage
    from trajsoup.study.stages.theory import theory_stage
    from trajsoup.study.workbench import Workbench

    setup = load_setup(study)
    Records(setup.output).require(RowsRecord)
    with writing(setup.output) as records:
        bench = Workbench(setup, cache=cache_folder(), progress=lambda what, done, total: None, records=records)
        theory_stage(bench)
        geometry_stage(bench)
    record, predicted = records.require(GeometryRecord), records.require(TheoryRecord)
    if as_json:
        show_json({**dataclasses.asdict(record), "theory": dataclasses.asdict(predicted)})
        return
    interval = "no matched tokens" if record.interval is None else "{:,} to {:,} tokens".format(*record.interval)
    show_table(
        f"leading component of the merged trajectories, {interval}, window {record.window}",
        ["branch", "variance share", "net displacement", "points"],
        [[d.branch, d.variance_share, d.net_displacement, d.points] for d in record.directions],
    )
    show_table(
        "angles between branches, degrees",
        ["branch", *record.branches],
        [[name, *line] for name, line in zip(record.branches, record.angles, strict=True)],
    )
    if record.pairs:
        show_table(
            "what merging a pair gained on validation, nats below the mean of its ends",
            ["first", "second", "cosine", "gain"],
            [[p.first, p.second, p.cosine, p.gain] for p in record.pairs],
        )
    if record.relation is not None:
        typer.echo(relation_words(record.relation))
    for sentence in predicted.words:
        typer.echo(sentence)
    show_notes(record.notes)
