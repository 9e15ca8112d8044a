"""The formats that checkpoints come in: one module for each, behind one seam, and the one table of them.

A new format is its module and its line in `FORMATS`; one of another package calls `register`.
"""

from __future__ import annotations

from typing import Protocol

from trajsoup.errors import CheckpointError
from trajsoup.store.formats.safetensors import Safetensors
from trajsoup.store.remote import Place
from trajsoup.store.stored import Stored

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".distcp")  # never opened


class Format(Protocol):
    """One way in which a checkpoint lies on disk. Stateless, and picklable: machines that share a pass are told it."""

    name: str  # as users call it

    def recognises(self, place: Place) -> bool:
        """Whether a folder or a file is of this format: by content, without reading weights or trusting a name."""
        ...

    def open(self, place: Place) -> Stored:
        """Find every tensor's boxes, or raise a CheckpointError. Reads no weight; `Stored.require_sound` follows."""
        ...


FORMATS: dict[str, Format] = {format.name: format for format in (Safetensors(),)}  # the last is asked first


def register(format: Format) -> None:
    """Add a format. It is asked before those that are there."""
    FORMATS.pop(format.name, None)
    FORMATS[format.name] = format


def format_of(place: Place) -> Format | None:
    """The format that recognises a folder or a file."""
    return next((format for format in reversed(FORMATS.values()) if format.recognises(place)), None)


def require_format(place: Place) -> Format:
    """The same, or an error that says what to do with what is there."""
    found = format_of(place)
    if found is None:
        if place.is_file():
            raise CheckpointError(f"{place} is not a safetensors file: {_convert(place.name)}")
        if not place.is_dir():
            raise CheckpointError(f"there is no checkpoint at {place}: check the path")
        others = sorted(path.name for path in place.iterdir() if path.name.endswith(PICKLES))
        raise CheckpointError(
            f"{place} holds no safetensors file: {_convert(others[0]) if others else 'check the path'}"
        )
    return found


def _convert(name: str) -> str:
    return (
        f"{name} may be a pickle or another format, which this tool does not open. Convert it to safetensors first: "
        "load it in the training framework and save it with save_pretrained"
    )
