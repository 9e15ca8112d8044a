"""`trajsoup demo`: the whole merge on small synthetic runs whose loss is known exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajsoup.cli.console import show_json, show_table
from trajsoup.cli.scan import Json
from trajsoup.core.soup import Strategy


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")] = Path("demo-output"),
    seed: Annotated[int, typer.Option(help="Another seed, another set of runs.")] = 0,
    as_json: Json = False,
) -> None:
    """Make three small synthetic runs, merge them every way, and compare the exact losses."""
    from trajsoup.engine.blend import blend
    from trajsoup.engine.sinks import MemorySink
    from trajsoup.store.publish import publishing
    from trajsoup.study.branches import save_branches, scan_branches
    from trajsoup.study.choice import Choice
    from trajsoup.study.merge import make_soup, plan_soup
    from trajsoup.study.synthetic import make_bowl, read_point, write_point, write_run

    bowl = make_bowl(seed)
    recipes = {"EXP1": (1234, 0.06), "EXP2": (1001, 0.06), "EXP3": (77, 0.05)}
    with publishing(output) as folder:
        write_point(folder / "fork-point", bowl.start)
        for name, (data_seed, learning_rate) in recipes.items():
            write_run(folder / name, bowl, seed=data_seed + 10_000 * seed, learning_rate=learning_rate)
        study = scan_branches([folder / name for name in recipes], fork_point=folder / "fork-point")
        save_branches(study, folder / "study.yaml")
    study = scan_branches([output / name for name in recipes], fork_point=output / "fork-point")
    best = min(c.val_loss for pool in study.pools() for c in pool.candidates if c.val_loss is not None)
    losses: dict[str, float] = {"best single checkpoint": best}
    choices = {
        "Model Soup (final checkpoints)": Choice(strategy=Strategy.MODEL_SOUP),
        "Full Soup (all checkpoints)": Choice(strategy=Strategy.FULL_SOUP),
        "Single-Trajectory Merge, K=4": Choice(strategy=Strategy.SINGLE_MERGE, k=4),
        "Trajectory Soup, K=4": Choice(k=4),
    }
    for label, choice in choices.items():
        plan = plan_soup(study, choice)
        sink = MemorySink(plan.layout)
        blend(plan.checkpoints, [plan.row], [sink], layout=plan.layout)
        losses[label] = bowl.loss(read_point(sink.tensors()))
    make_soup(plan_soup(study, choices["Trajectory Soup, K=4"]), output / "soup")
    if as_json:
        show_json({"losses": losses, "soup": output / "soup"})
        return
    rows = [[label, loss, f"{loss - best:+.4f}"] for label, loss in losses.items()]
    show_table(
        "Synthetic runs on a quadratic bowl: exact loss (lower is better)", ["model", "loss", "against best"], rows
    )
    winner = min(losses, key=lambda label: losses[label])
    typer.echo(f"lowest loss here: {winner}. A toy with a known answer, not evidence about language models.")
    typer.echo(
        f"soup written to {output / 'soup'}; look at {output / 'study.yaml'} and {output / 'soup' / 'README.md'}"
    )
    typer.echo(f"next: trajsoup doctor {output / 'study.yaml'}; trajsoup verify {output / 'soup'}")
