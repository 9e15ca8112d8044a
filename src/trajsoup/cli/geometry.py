"""`trajsoup geometry`: directions of the branches, the angles between them, and what losses promise of more of them."""

from __future__ import annotations

from trajsoup.cli.console import say, show_json, show_notes
from trajsoup.cli.options import Address, Engine, EngineOption, Form, Json, Study, chosen_executor, study_file
from trajsoup.cli.study_output import show


def geometry(study: Study, engine: EngineOption = Engine.LOCAL, address: Address = None, as_json: Json = False) -> None:
    """Show directions and angles of the branches of a study that was run, pair gains, and what theory predicts."""
    import dataclasses

    from trajsoup.core.pair_gain import relation_words
    from trajsoup.report.sections.geometry import tables
    from trajsoup.study.cache import cache_folder
    from trajsoup.study.file.study import load_study
    from trajsoup.study.records.files import Records, writing
    from trajsoup.study.records.geometry import GeometryRecord
    from trajsoup.study.records.rows import RowsRecord
    from trajsoup.study.records.theory import TheoryRecord
    from trajsoup.study.score.scorer import silent
    from trajsoup.study.stages.geometry import geometry_stage
    from trajsoup.study.stages.theory import theory_stage
    from trajsoup.study.workbench import Workbench

    setup = load_study(study_file(study))
    Records(setup.output).require(RowsRecord)
    with writing(setup.output) as records, chosen_executor(engine, address) as executor:
        bench = Workbench(setup, cache=cache_folder(), progress=silent, records=records, executor=executor)
        theory_stage(bench)
        geometry_stage(bench)
    record, predicted = records.require(GeometryRecord), records.require(TheoryRecord)
    if as_json:
        show_json({**dataclasses.asdict(record), "theory": dataclasses.asdict(predicted)})
        return
    for table in tables(record):
        show(table, Form.TERMINAL)
    if record.relation is not None:
        say(relation_words(record.relation))
    for sentence in (*predicted.held_out_words, *predicted.words):
        say(sentence)
    if not record.directions:  # else they stand below those
        show_notes(record.notes)
