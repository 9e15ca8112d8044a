"""The JSON of a safetensors header, read quickly where it is written as everybody writes it.

    bytes -> decoded by type -> encoded again: the same bytes?

If so, nothing was lost on the way: no name stands twice, no number is spelt oddly, no field is unknown. Whatever is
written otherwise is left to the reader that looks at every pair and says what is wrong.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

METADATA = "__metadata__"
Natural = Annotated[int, msgspec.Meta(ge=0)]


class Described(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A tensor, as a header describes it. The fields are in the order in which they are written."""

    dtype: str
    shape: tuple[Natural, ...]
    data_offsets: tuple[Natural, Natural]


_TENSORS = msgspec.json.Decoder(dict[str, Described])
_NOTES = msgspec.json.Decoder(dict[str, str])
_LEAD = f'{{"{METADATA}":'.encode()


def quickly(raw: bytes) -> tuple[dict[str, Described], dict[str, str]] | None:
    """Tensors and metadata of a header, or None where it must be read slowly."""
    body = raw.rstrip(b" ")
    try:
        notes, rest = _parted(body)
        metadata, tensors = _NOTES.decode(notes), _TENSORS.decode(rest)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    same = msgspec.json.encode(tensors) == rest and msgspec.json.encode(metadata) == notes
    return (tensors, metadata) if same and METADATA not in tensors else None


def _parted(body: bytes) -> tuple[bytes, bytes]:
    """The metadata, which the library writes first, and the tensors, each as a JSON object."""
    if not body.startswith(_LEAD):
        return b"{}", body
    end = body.find(b'},"', len(_LEAD)) + 1  # if it stands within a note, what comes before is no JSON
    notes = body[len(_LEAD) : end] if end else body[len(_LEAD) : -1]
    return notes, b"{" + body[end + 1 :] if end else b"{}"


def weight_map(raw: bytes) -> dict[str, str] | None:
    """Which file an index gives each tensor, or None where it must be read slowly."""
    try:
        return msgspec.json.decode(raw, type=_Index).weight_map
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


class _Index(msgspec.Struct):
    weight_map: dict[str, str]
