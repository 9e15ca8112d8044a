"""torch's distributed checkpoints (DCP): `.metadata`, and chunks of tensors in `__<rank>_<n>.distcp`.

torchtitan, OLMo-core and FSDP2 scripts write them, and Megatron-Core's `torch_dist` is the same with a `metadata.json`
beside. `.metadata` is a pickle that maps (name, offset) to (file, offset, length); every chunk is an archive of torch.save.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from trajsoup.errors import CheckpointError
from trajsoup.store.formats.torch_archive import BESIDE, DTYPES, Archive
from trajsoup.store.formats.training_state import weight_names
from trajsoup.store.pickles import MAX_BYTES, Record, unpickle
from trajsoup.store.remote import Place, RemotePath
from trajsoup.store.source import read_range, reading
from trajsoup.store.stored import FLOATS, Box, Stored, Tensor

METADATA = ".metadata"
MEGATRON = "metadata.json"  # of Megatron-Core: which backend wrote the folder
INSIDE = ("model_and_optim", "pytorch_model_fsdp_0")  # where OLMo-core and accelerate put the folder in theirs
REQUESTS = 16  # at once, to an object store
MODULE = "torch.distributed.checkpoint.metadata."
STORAGE_INFO = "torch.distributed.checkpoint.filesystem._StorageInfo"
_PLAN = "torch.distributed.checkpoint.planner."
KNOWN = frozenset(
    {
        *DTYPES,
        *BESIDE,
        *(
            MODULE + name
            for name in (
                "BytesStorageMetadata",
                "ChunkStorageMetadata",
                "Metadata",
                "MetadataIndex",
                "StorageMeta",
                "TensorProperties",
                "TensorStorageMetadata",
                "_MEM_FORMAT_ENCODING",
            )
        ),
        *(_PLAN + name for name in ("SavePlan", "TensorWriteData", "WriteItem", "WriteItemType", "BytesIOWriteData")),
        STORAGE_INFO,
        "olmo_core.distributed.checkpoint.filesystem._StorageInfo",  # its own writer's, with the same fields
        "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
        "megatron.core.dist_checkpointing.strategies.torch.MCoreSavePlan",
    }
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a tensor as `.metadata` has it."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor as `.metadata` has it, or an object that is none."""

    key: str  # in `.metadata`
    path: tuple[Any, ...]  # in what the trainer saved
    dtype: str | None  # None: an object, pickled in its one chunk
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


class Dcp:
    """The format of the table in formats/__init__.py."""

    name = "torch DCP"

    def recognises(self, place: Place) -> bool:
        """A folder whose `.metadata` begins as a pickle does, or OLMo-core's and accelerate's folder around one."""
        return place.is_dir() and _folder(place) is not None

    def open(self, place: Place) -> Stored:
        """Read `.metadata`, and the ends of every chunk of a weight."""
        folder = _folder(place)
        if folder is None:
            raise CheckpointError(f"{place} holds no {METADATA} any more: is something pruning it?")
        every = read_metadata(folder)
        found, left_out = split_weights(every)
        beside = [METADATA, *([MEGATRON] if (folder / MEGATRON).is_file() else [])]
        files = [*beside, *sorted({chunk.file for entry in found.values() for chunk in entry.chunks})]
        numbers = {name: number for number, name in enumerate(files)}
        for name in files:
            if not (folder / name).is_file():
                raise CheckpointError(f"{folder} lacks {name}, which its {METADATA} names: copy or save it again")
        pieces = [(name, entry, chunk) for name, entry in found.items() for chunk in entry.chunks]

        def box(piece: tuple[str, Entry, Chunk]) -> Box:
            return _box(folder, *piece, file=numbers[piece[2].file])

        boxes: dict[str, list[Box]] = {name: [] for name in found}
        for (name, _, _), made in zip(pieces, _mapped(box, pieces, remote=isinstance(folder, RemotePath)), strict=True):
            boxes[name].append(made)
        return Stored(
            files=tuple(folder / name for name in files),
            sizes=tuple((folder / name).stat().st_size for name in files),
            tensors={name: Tensor(e.dtype or "", e.shape, tuple(boxes[name])) for name, e in found.items()},
            folder=folder,
            left_out=tuple(sorted(e.key if e.dtype is None else ".".join(map(str, e.path)) for e in left_out)),
        )


def split_weights(every: Sequence[Entry]) -> tuple[dict[str, Entry], list[Entry]]:
    """The weights by name, and all the rest: state of the trainer, objects."""
    tensors = {entry.path: entry for entry in every if entry.dtype is not None}
    names, _ = weight_names({path: e.dtype in FLOATS and bool(e.shape) for path, e in tensors.items()})
    found = {name: tensors[path] for path, name in names.items()}
    weights = {entry.key for entry in found.values()}
    return found, [entry for entry in every if entry.key not in weights]


def read_metadata(folder: Place) -> list[Entry]:
    """What a folder holds, in its order."""
    path = folder / METADATA
    with reading(path):
        size = path.stat().st_size
        raw = read_range(path, 0, min(size, MAX_BYTES + 1))
    root = unpickle(raw, known=KNOWN, where=str(path))
    try:
        return _entries(path, root)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: it does not describe a checkpoint. Copy or save it again") from error


def _entries(path: Place, root: Any) -> list[Entry]:
    paths = root.get("planner_data")
    paths = paths if isinstance(paths, dict) else {}
    places: dict[tuple[str, tuple[int, ...]], Record] = {}
    for index, info in root.state["storage_data"].items():
        key = (index.state["fqn"], _numbers(index.get("offset") or ()))
        if key in places and places[key].state != info.state:
            raise CheckpointError(f"{path} is damaged: it has two places for {key[0]!r}. Copy or save it again")
        places[key] = info
    found: list[Entry] = []
    for key, what in root.state["state_dict_metadata"].items():
        if what.kind != MODULE + "TensorStorageMetadata":
            chunk = _chunk(path, key, (), (), places)
            found.append(Entry(str(key), _path(paths.get(key), key), None, (), (chunk,)))
            continue
        dtype = DTYPES.get(_dtype(what.state["properties"]))
        if dtype is None:
            raise CheckpointError(
                f"{path}: tensor {key!r} has the dtype {_dtype(what.state['properties'])!r}, which is not known here: "
                "save it in another"
            )
        pieces = [(_numbers(c.state["offsets"]), _numbers(c.state["sizes"])) for c in what.state["chunks"]]
        chunks = [_chunk(path, key, *piece, places) for piece in pieces]
        shape = _numbers(what.state["size"])
        found.append(Entry(str(key), _path(paths.get(key), key), dtype, shape, tuple(chunks)))
    return found


def _path(path: Any, key: Any) -> tuple[Any, ...]:
    return path if isinstance(path, tuple) and path and all(isinstance(p, str | int) for p in path) else (str(key),)


def _dtype(properties: Record) -> str:
    state = properties.state
    return str(state["dtype"] if isinstance(state, dict) else state[0])


def _numbers(values: Any) -> tuple[int, ...]:
    found = tuple(values)
    if not all(type(n) is int and 0 <= n < 2**62 for n in found):
        raise ValueError
    return found


def _chunk(
    path: Place,
    key: Any,
    start: tuple[int, ...],
    shape: tuple[int, ...],
    places: Mapping[tuple[str, tuple[int, ...]], Record],
) -> Chunk:
    info = places.get((key, start))
    if info is None:
        raise CheckpointError(f"{path} is damaged: it has no place for {key!r} at {list(start)}. Copy or save it again")
    if info.get("transform_descriptors"):
        raise CheckpointError(
            f"{path}: {key!r} is stored through {', '.join(map(str, info.get('transform_descriptors')))}, which is not read "
            "here: save the checkpoint without extensions"
        )
    file = info.state["relative_path"]
    if not isinstance(file, str) or "/" in file or "\\" in file or file in ("", ".", ".."):
        raise CheckpointError(f"{path} names {str(file)[:200]!r}, which is outside its folder: it must not be trusted")
    offset, length = _numbers((info.state["offset"], info.state["length"]))
    return Chunk(start, shape, file, offset, length)


def _box(folder: Place, name: str, entry: Entry, chunk: Chunk, *, file: int) -> Box:
    archive = Archive(folder / chunk.file, start=chunk.offset, length=chunk.length)
    place = archive.place_of(archive.tree)
    if place is None:
        raise archive.damaged(f"it holds no tensor, where {name!r} should be")
    if place.dtype != entry.dtype or place.shape != chunk.shape:
        raise archive.damaged(
            f"it holds {place.dtype} {list(place.shape)}, where {entry.dtype} {list(chunk.shape)} of {name!r} should be"
        )
    return Box(file, place.offset, place.nbytes, chunk.start, chunk.shape, place.codec)


def _mapped(function: Callable[[Any], Box], items: list[Any], *, remote: bool) -> list[Box]:
    if not remote:
        return [function(item) for item in items]
    with ThreadPoolExecutor(REQUESTS) as pool:
        return list(pool.map(function, items))


def _folder(place: Place) -> Place | None:
    for folder in (place, *(place / name for name in INSIDE)):
        path = folder / METADATA
        if path.is_file():
            with reading(path):
                if read_range(path, 0, 1) == b"\x80":
                    return folder
    return None
