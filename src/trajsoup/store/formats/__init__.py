"""The formats that checkpoints come in: one module for each, behind one seam, and the one table of them.

A new format is its module and its line in `FORMATS`; one of another package calls `register`.
"""

from __future__ import annotations

from typing import Protocol

from trajsoup.errors import CheckpointError
from trajsoup.store.formats import safetensors, torch_save
from trajsoup.store.formats.dcp import Dcp
from trajsoup.store.formats.nanotron import Nanotron
from trajsoup.store.formats.orbax import Orbax
from trajsoup.store.formats.safetensors import Safetensors
from trajsoup.store.formats.torch_save import TorchSave
from trajsoup.store.formats.zero import Zero
from trajsoup.store.remote import Place
from trajsoup.store.stored import Stored

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".distcp")  # read as data, never run
UNREAD = (*PICKLES, ".gguf", ".h5", ".msgpack")  # weights that may be of no format read here


class Format(Protocol):
    """One way in which a checkpoint lies on disk. Stateless, and picklable: machines that share a pass are told it."""

    name: str  # as users call it

    def recognises(self, place: Place) -> bool:
        """Whether a folder or a file is of this format: by content, without reading weights or trusting a name."""
        ...

    def open(self, place: Place) -> Stored:
        """Find every tensor's boxes, or raise a CheckpointError. Reads no weight; `Stored.require_sound` follows."""
        ...


# The last is asked first.
FORMATS: dict[str, Format] = {
    format.name: format for format in (TorchSave(), Zero(), Orbax(), Nanotron(), Dcp(), Safetensors())
}


def register(format: Format) -> None:
    """Add a format. It is asked before those that are there."""
    FORMATS.pop(format.name, None)
    FORMATS[format.name] = format


def format_of(place: Place) -> Format | None:
    """The format that recognises a folder or a file."""
    return next((format for format in reversed(FORMATS.values()) if format.recognises(place)), None)


def loose_files(folder: Place) -> list[Place]:
    """The files of a folder that are a checkpoint each, not parts of one."""
    return safetensors.loose_files(folder) or torch_save.loose_files(folder)


def require_format(place: Place) -> Format:
    """The same, or an error that says what to do with what is there."""
    found = format_of(place)
    if found is None:
        if place.is_file():
            raise CheckpointError(f"{place} {unread()}")
        if not place.is_dir():
            raise CheckpointError(f"there is no checkpoint at {place}: check the path{hub_hint(place)}")
        others = sorted(path.name for path in place.iterdir() if path.name.endswith(UNREAD))
        raise CheckpointError(
            f"{place} holds no checkpoint: {f'{others[0]} {unread()}' if others else 'check the path'}"
        )
    return found


def hub_hint(place: Place, *, into: Place | None = None) -> str:
    """What to add where a path that is not there looks like the name of a model on a hub; `into`: where it is looked for."""
    parts = str(place).split("/")
    into = into or place
    if len(parts) != 2 or not all(parts) or parts[0] in (".", "..", "~") or into.parent.exists():
        return ""
    return f"; if it is a model of the Hugging Face hub, fetch it: hf download {place} --local-dir {into}"


def unread() -> str:
    """What to say of a file that may hold weights and is no checkpoint to us."""
    return (
        f"is a part of no checkpoint that is read here ({', '.join(sorted(FORMATS))}): if it holds weights, load them in "
        "the framework that wrote them and save them as safetensors (accelerate merge-weights DIR OUT for FSDP shards, "
        "zero_to_fp32.py in the folder for DeepSpeed's; from_pretrained(DIR, gguf_file=FILE) of transformers for GGUF)"
    )
