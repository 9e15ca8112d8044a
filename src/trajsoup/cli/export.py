"""`trajsoup export`: a soup in the form that other programs run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trajsoup.cli.console import progress_bar, say, show_json
from trajsoup.cli.options import Json
from trajsoup.core.quantity import format_bytes
from trajsoup.store.remote import place

if TYPE_CHECKING:
    from trajsoup.merge.gguf import GgufType

TYPES = ("f16", "bf16", "q8_0")


def _known(value: str | None) -> str | None:
    if value not in (None, *TYPES):
        raise typer.BadParameter(f"{value!r} is not {', '.join(TYPES)}")
    return value


def export(
    soup: Annotated[
        str, typer.Argument(metavar="SOUP", help="A model folder or URL, as merge makes it.", show_default=False)
    ],
    gguf: Annotated[
        Path,
        typer.Option(help="The GGUF file to write, for llama.cpp and its kin.", metavar="FILE", show_default=False),
    ],
    type: Annotated[
        str | None,
        typer.Option(
            help="How matrices are stored: f16, bf16 or q8_0; default: the soup's own 16-bit type, else f16.",
            callback=_known,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a soup as a GGUF file, with its tokenizer: Llama, Mistral, Qwen2 and Qwen3."""
    from dataclasses import asdict

    from trajsoup.merge.gguf import GgufType, export_gguf
    from trajsoup.store.checkpoint import open_checkpoint

    chosen: GgufType | None = None if type is None else GgufType(type)
    total = open_checkpoint(place(soup)).nbytes
    with progress_bar("writing", total) as progress:
        written = export_gguf(place(soup), gguf, type=chosen, progress=progress)
    if as_json:
        show_json({"soup": soup, **asdict(written)})
        return
    say(
        f"{gguf} written: {written.architecture}, {written.tensors:,} tensors, {written.type}, {format_bytes(written.bytes)}"
    )
