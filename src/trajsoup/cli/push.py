"""`trajsoup push`: a soup goes to the Hugging Face Hub."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from trajsoup.cli.console import say, show_json
from trajsoup.cli.options import Json


def push(
    soup: Annotated[Path, typer.Argument(metavar="SOUP", help="A folder that merge or run made.", show_default=False)],
    repository: Annotated[
        str, typer.Argument(metavar="USER/NAME", help="Of the model on the Hub.", show_default=False)
    ],
    private: Annotated[
        bool, typer.Option("--private", help="Only you and those you name may see a new model.")
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="Commit on top of a model that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Put a soup on the Hugging Face Hub with its model card and soup.json, in one commit (extra `cloud`)."""
    from trajsoup.merge.published import push_soup
    from trajsoup.merge.verify import read_record
    from trajsoup.store.hub import SCHEME, repository_of

    read_record(soup)
    name = repository_of(repository)
    address, shown = push_soup(soup, name, private=private, update=update)
    if as_json:
        show_json({"soup": soup, "repository": name, "address": address, "places": shown.places})
        return
    say(address)
    if shown.places:
        moves = " ".join(f"--relocate {shlex.quote(f'{old}={new}')}" for old, new in shown.places.items())
        say("no path of this machine is in what was published; who has the ingredients checks it with")
        say(f"  trajsoup verify {SCHEME}{name} {moves}")
