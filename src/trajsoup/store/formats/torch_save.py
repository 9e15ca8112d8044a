"""Files of torch.save: `pytorch_model.bin`, alone or in shards with an index, litgpt's `lit_model.pth`, a script's own.

What torch.load would hand out is read as data (pickles.py); the weights in it are found by where they lie in the nest of
dicts (training_state.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trajsoup.errors import CheckpointError
from trajsoup.store.formats.safetensors import weight_map_of
from trajsoup.store.formats.torch_archive import Archive, TensorPlace, begins_as_archive
from trajsoup.store.formats.training_state import entries, weight_names
from trajsoup.store.remote import Place
from trajsoup.store.stored import FLOATS, Box, Stored, Tensor

INDEX = "pytorch_model.bin.index.json"
SINGLE = "pytorch_model.bin"
SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
# What trainers keep beside the weights, and parts of a model that only its own trainer can put together.
_BESIDE = re.compile(
    r"optim|sched|rng_state|random_states|training_args|scaler|sampler|common\.pt|mp_rank_|_states\.pt|^rank\d+\.pt$"
)
_PART = re.compile(r"consolidated\.\d+\.pth$|-of-\d+\.(bin|pth?|ckpt)$")


class TorchSave:
    """The format of the table in formats/__init__.py."""

    name = "torch.save"

    def recognises(self, place: Place) -> bool:
        """A file that begins as torch.save's do, whatever its name; a folder with an index of such files, or with one."""
        if place.is_file():
            return begins_as_archive(place)
        return place.is_dir() and bool(_chosen(place))

    def open(self, place: Place) -> Stored:
        """Read the list of files and the pickle of every archive."""
        if place.is_file():
            return _stored((place,), folder=place.parent)
        names = _chosen(place)
        if not names:
            raise CheckpointError(f"{place} holds no file of torch.save any more: is something pruning it?")
        stored = _stored(tuple(place / name for name in names), folder=place)
        if INDEX in (path.name for path in place.glob("*.json")):
            listed = weight_map_of(place / INDEX, [])
            for name, tensor in stored.tensors.items():
                if listed.get(name) != stored.files[tensor.boxes[0].file].name:
                    raise CheckpointError(
                        f"{place / INDEX} puts tensor {name!r} into {listed.get(name)!r}: it is stale"
                    )
            if lost := next((name for name in listed if name not in stored.tensors), None):
                raise CheckpointError(f"{place / INDEX} names tensor {lost!r}, which no file holds: it is stale")
        return stored


def loose_files(folder: Place) -> list[Place]:
    """The files of a folder that are a checkpoint each."""
    found = _candidates(folder)
    return [folder / name for name in found] if len(found) > 1 and SINGLE not in found else []


def _chosen(folder: Place) -> list[str]:
    """The files that are the checkpoint of a folder."""
    if (folder / INDEX).is_file():
        return sorted({*weight_map_of(folder / INDEX, []).values()})
    found = _candidates(folder)
    return [SINGLE] if SINGLE in found else found if len(found) == 1 else []


def _candidates(folder: Place) -> list[str]:
    if _BESIDE.search(folder.name):
        return []
    named = [p for p in folder.glob("*") if p.name.endswith(SUFFIXES) and not _BESIDE.search(p.name)]
    parts = [p for p in named if _PART.search(p.name)]
    named = [p for p in named if len(parts) < 2 or p not in parts]
    return sorted(p.name for p in named if p.is_file() and begins_as_archive(p))


def _stored(files: Sequence[Place], *, folder: Place) -> Stored:
    tensors: dict[str, Tensor] = {}
    left_out: list[str] = []
    for number, file in enumerate(files):
        archive = Archive(file)
        places = _places(archive)
        names, beside = weight_names({path: p.dtype in FLOATS and bool(p.shape) for path, p in places.items()})
        left_out += [".".join(map(str, path)) for path in beside]
        for path, name in names.items():
            dtype, shape, offset, nbytes, codec = places[path]
            if name in tensors:
                raise CheckpointError(f"{file}: tensor {name!r} is in another file too: remove the stale file")
            tensors[name] = Tensor(dtype, shape, (Box(number, offset, nbytes, (0,) * len(shape), shape, codec),))
    sizes = tuple(file.stat().st_size for file in files)
    return Stored(files=tuple(files), sizes=sizes, tensors=tensors, folder=folder, left_out=tuple(sorted(left_out)))


def _places(archive: Archive) -> dict[tuple[Any, ...], TensorPlace]:
    try:
        found = ((path, archive.place_of(value)) for path, value in entries(archive.tree))
        return {path: place for path, place in found if place is not None}
    except CheckpointError as error:
        if str(archive.path) in str(error):
            raise
        raise CheckpointError(f"{archive.where}: {error}") from error
