"""`trajsoup verify`: recompute a soup from its recorded ingredients."""

from __future__ import annotations

from typing import Annotated

import typer

from trajsoup.cli.console import progress_bar, say, show_json
from trajsoup.cli.options import Address, AllowUrl, Engine, EngineOption, Json, chosen_executor
from trajsoup.store.remote import absolute, place


def verify(
    soup: Annotated[str, typer.Argument(metavar="OUT", help="A folder or URL that merge made.", show_default=False)],
    full: Annotated[bool, typer.Option("--full", help="Recompute every value and re-hash the ingredients.")] = False,
    seed: Annotated[int, typer.Option(help="Chooses which values are sampled.")] = 0,
    relocate: Annotated[
        list[str] | None,
        typer.Option(
            help="OLD=NEW: ingredients have moved from OLD to NEW; those of a soup from the Hub lie below `.`.",
            metavar="OLD=NEW",
            show_default=False,
        ),
    ] = None,
    allow_url: AllowUrl = None,
    engine: EngineOption = Engine.LOCAL,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Check a soup: hashes, index, side files, and values recomputed from the ingredients."""
    from dataclasses import asdict

    from trajsoup.merge.verify import read_bytes, verify_soup

    moves: dict[str, str] = {}
    for old, _, new in (move.partition("=") for move in relocate or []):
        if not old or not new:
            raise typer.BadParameter("write OLD=NEW", param_hint="--relocate")
        moves[absolute(old)] = absolute(new)
        if old == "." or old.startswith("./"):  # as a published record names them
            moves[old] = absolute(new)
    total = read_bytes(place(soup), full=full)
    with chosen_executor(engine, address) as executor, progress_bar("verifying", total) as progress:
        result = verify_soup(
            place(soup),
            full=full,
            seed=seed,
            relocate=moves,
            allow_urls=allow_url or [],
            executor=executor,
            progress=progress,
        )
    if as_json:
        show_json({"soup": soup, "ok": True, **asdict(result)})
        return
    what = "every value" if full else "a random slice of every tensor"
    say(f"{soup} is as recorded: {result.files} weight files and {result.side_files} side files hashed,")
    say(f"{result.values:,} values in {result.tensors:,} tensors recomputed bit by bit ({what})")
    if result.unhashed:
        say(f"not hashed, because merge ran with --no-hash: {', '.join(result.unhashed)}")
    if result.unknown:
        say(f"not checked, because merge did not write them: {', '.join(result.unknown)}")
