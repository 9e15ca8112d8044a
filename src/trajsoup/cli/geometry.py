"""`trajsoup geometry`: directions of the branches and the angles between them."""

from __future__ import annotations

from trajsoup.cli.console import show_json, show_table
from trajsoup.cli.plan import StudyFile
from trajsoup.cli.scan import Json


def geometry(study: StudyFile, as_json: Json = False) -> None:
    """Show the leading direction of every merged trajectory and the angles between branches, of a study that was run."""
    import dataclasses

    from trajsoup.study.data import cache_folder
    from trajsoup.study.geometry import geometry_stage
    from trajsoup.study.setup import load_setup
    from trajsoup.study.workbench import Workbench

    bench = Workbench(load_setup(study), cache=cache_folder(), progress=lambda what, done, total: None)
    bench.records.require("rows")
    geometry_stage(bench)
    record = bench.records.require("geometry")
    if as_json:
        show_json(dataclasses.asdict(record))
        return
    first, last = record.interval
    show_table(
        f"leading component of the merged trajectories, {first:,} to {last:,} tokens, window {record.window}",
        ["branch", "variance share", "net displacement", "points"],
        [[d.branch, d.variance_share, d.net_displacement, d.points] for d in record.directions],
    )
    show_table(
        "angles between branches, degrees",
        ["branch", *record.branches],
        [[name, *line] for name, line in zip(record.branches, record.angles, strict=True)],
    )
