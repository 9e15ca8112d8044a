"""nanotron's checkpoints: `model/` with a safetensors file for each parameter and tensor-parallel rank.

    model/decoder/0/attn/qkv_proj/model_weight_pp-rank-0-of-1_tp-rank-1-of-2.safetensors

A file holds one tensor, `data`, and its header says which slices of it are which slices of the whole parameter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from trajsoup.errors import CheckpointError
from trajsoup.store.formats.safetensors import SUFFIX, Entry, Header, read_header
from trajsoup.store.json_file import load_json
from trajsoup.store.remote import Place
from trajsoup.store.stored import ITEM_BYTES, Box, Stored, Tensor

METADATA = "checkpoint_metadata.json"
FOLDER = "model"
DATA = "data"
_FILE = re.compile(r"model_(?P<name>.+?)(?:_pp-rank-\d+-of-\d+_tp-rank-\d+-of-\d+)?\.safetensors")
_DEPTH = 12  # folders below `model`

Range = tuple[int, int]  # from, to
Region = tuple[Range, ...]


class Nanotron:
    """The format of the table in formats/__init__.py."""

    name = "nanotron"

    def recognises(self, place: Place) -> bool:
        """A folder whose metadata counts ranks, with a folder of weights."""
        if not (place.is_dir() and (place / METADATA).is_file() and (place / FOLDER).is_dir()):
            return False
        return {"version", "tp", "dp"} <= load_json(place / METADATA).keys()

    def open(self, place: Place) -> Stored:
        """Read every header."""
        found = list(_parameter_files(place / FOLDER))
        if not found:
            raise CheckpointError(f"{place / FOLDER} holds no weights of nanotron any more: is something pruning it?")
        headers = [read_header(file) for _, file in found]
        tensors: dict[str, Tensor] = {}
        for number, ((name, file), header) in enumerate(zip(found, headers, strict=True), start=1):
            dtype, whole, boxes = _boxes(header, file, number)
            before = tensors.get(name, Tensor(dtype, whole, ()))
            if (before.dtype, before.shape) != (dtype, whole):
                raise CheckpointError(
                    f"{file} is damaged: it is of {dtype} {list(whole)}, other shards of {name!r} of {before.dtype} "
                    f"{list(before.shape)}. Copy or save it again"
                )
            tensors[name] = before._replace(boxes=(*before.boxes, *boxes))
        files = (place / METADATA, *(file for _, file in found))
        return Stored(
            files=files,
            sizes=(files[0].stat().st_size, *(header.file_bytes for header in headers)),
            tensors=tensors,
            folder=place,
            left_out=tuple(name for name in ("lr_scheduler", "optimizer", "random") if (place / name).is_dir()),
        )


def _parameter_files(folder: Place, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Place]]:
    """Parameters and their files: folders are the parts of the name."""
    if len(names) > _DEPTH:
        raise CheckpointError(f"{folder} is deeper than any model: it is refused")
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            yield from _parameter_files(path, (*names, path.name))
        elif path.name.endswith(SUFFIX):
            match = _FILE.fullmatch(path.name)
            if match is None:
                raise CheckpointError(f"{path} is not named as nanotron names a parameter: move it away")
            yield ".".join((*names, match["name"])), path


def _boxes(header: Header, path: Place, number: int) -> tuple[str, tuple[int, ...], list[Box]]:
    """The dtype and shape of a parameter, and the boxes that a file has of it."""
    entry = header.tensors.get(DATA)
    if entry is None:
        raise CheckpointError(f"{path} is damaged: it holds no tensor {DATA!r}. Copy or save it again")
    said = header.metadata
    if "local_global_slices_pairs" not in said:
        if said.keys() - {"format"}:
            raise CheckpointError(
                f"{path} was written by a nanotron before its version 1.2 of checkpoints ({', '.join(sorted(said))}): save "
                "it again with a newer one"
            )
        return entry.dtype, entry.shape, [Box(number, entry.offset, entry.nbytes, (0,) * len(entry.shape), entry.shape)]
    try:
        whole = _shape(said["unsharded_shape"])
        pairs = [_pair(text, entry.shape, whole) for text in said["local_global_slices_pairs"].split(";")]
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged: its slices cannot be read ({error}). Copy or save it again"
        ) from error
    return entry.dtype, whole, [_box(entry, number, *pair, path=path) for pair in pairs]


def _box(entry: Entry, number: int, local: Region, whole: Region, *, path: Place) -> Box:
    sizes = tuple(end - begin for begin, end in local)
    axis = max((k for k, size in enumerate(sizes) if size != entry.shape[k]), default=0)
    if any(size != 1 for size in sizes[:axis]):
        raise CheckpointError(f"{path}: a slice of its tensor does not lie together: save it with one rank")
    strides = [math.prod(entry.shape[k + 1 :]) for k in range(len(sizes))]
    first = sum(begin * stride for (begin, _), stride in zip(local, strides, strict=True))
    item = ITEM_BYTES[entry.dtype]
    return Box(number, entry.offset + first * item, math.prod(sizes) * item, tuple(b for b, _ in whole), sizes)


def _pair(text: str, local: Sequence[int], whole: Sequence[int]) -> tuple[Region, Region]:
    """`0,10,None|None,None,None#10,20,None|None,None,None`: slices of the tensor in the file, and of the parameter."""
    ours, theirs = text.split("#")
    pair = _region(ours, local), _region(theirs, whole)
    if len(local) != len(whole) or any(b - a != d - c for (a, b), (c, d) in zip(*pair, strict=True)):
        raise ValueError(f"{text[:100]!r} pairs slices of different sizes")
    return pair


def _region(text: str, shape: Sequence[int]) -> Region:
    found: list[Range] = []
    parts = text.split("|")
    if len(parts) != len(shape):
        raise ValueError(f"{text[:100]!r} has {len(parts)} axes, not {len(shape)}")
    for part, size in zip(parts, shape, strict=True):
        begin, end, step = (None if word == "None" else int(word) for word in part.split(","))
        begin, end = begin or 0, size if end is None else end
        if step not in (None, 1) or not 0 <= begin <= end <= size:
            raise ValueError(f"{part[:100]!r} is no slice of {size}")
        found.append((begin, end))
    return tuple(found)


def _shape(text: str) -> tuple[int, ...]:
    """`(8, 4)`, as Python prints a tuple."""
    found = tuple(int(part) for part in text.strip("()").split(",") if part.strip())
    if not all(0 <= n < 2**62 for n in found):
        raise ValueError(f"the shape {text[:100]!r}")
    return found
