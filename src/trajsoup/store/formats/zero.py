"""DeepSpeed's ZeRO checkpoints: `global_stepN/` with `*_model_states.pt` and, from each rank, `*_optim_states.pt`.

The weights that training goes on from are fp32 and lie in the optimizers' files, flattened and cut among the ranks without
regard to tensors; `param_shapes` of the model states say what follows what. So a tensor is a range of numbers, and a range is
a few boxes. Stages 1 and 2 cut the whole group of tensors into one piece a rank; stage 3 cuts every tensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trajsoup.errors import CheckpointError
from trajsoup.store.formats.torch_archive import KNOWN, Archive, TensorPlace, begins_as_archive
from trajsoup.store.pickles import Record
from trajsoup.store.remote import Place
from trajsoup.store.stored import ITEM_BYTES, Box, Stored, Tensor

LATEST = "latest"  # beside the folders: the name of the last one
_MODEL, _OPTIMIZER = "_model_states.pt", "_optim_states.pt"
_PARALLEL = re.compile(r"mp_rank_(?P<rank>\d+)|(?:^|_)expert_\d+|layer_\d+-model")
_CURE = "convert it with the zero_to_fp32.py that DeepSpeed put beside it"
# What DeepSpeed keeps beside the layout: read as inert records.
NAMES = KNOWN | {
    "builtins.getattr",
    "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.utils.tensor_fragment.fragment_address",
}

Piece = tuple[int, int, int, int]  # first number in the tensor, count, file, byte in it


class Zero:
    """The format of the table in formats/__init__.py."""

    name = "DeepSpeed ZeRO"

    def recognises(self, place: Place) -> bool:
        """A folder with both kinds of files, or the folder of one checkpoint around it (the Trainer's checkpoint-N)."""
        return place.is_dir() and _folder(place) is not None

    def open(self, place: Place) -> Stored:
        """Read the pickles of all files, and no number."""
        folder = _folder(place)
        if folder is None:
            raise CheckpointError(f"{place} holds no ZeRO states any more: is something pruning it?")
        models, optimizers = _files(folder, _MODEL), _files(folder, _OPTIMIZER)
        _require_whole_models([*models, *optimizers], folder)
        files = (*models, *optimizers)
        archives = [Archive(file, known=frozenset(NAMES)) for file in files]
        try:
            tensors = _Layout(folder, archives[: len(models)], archives[len(models) :]).tensors()
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{folder} does not record how its parts make tensors ({type(error).__name__}: {error}): {_CURE}"
            ) from error
        outer = folder if (folder / "config.json").is_file() else folder.parent
        return Stored(
            files=files,
            sizes=tuple(file.stat().st_size for file in files),
            tensors=tensors,
            folder=outer if (outer / "config.json").is_file() else folder,
            left_out=("optimizer",),
        )


class _Layout:
    """What the files of one checkpoint say together."""

    def __init__(self, folder: Place, models: Sequence[Archive], optimizers: Sequence[Archive]) -> None:
        self.folder, self.models = folder, models
        states = [archive.tree["optimizer_state_dict"] for archive in optimizers]
        self.stage = _number(states[0]["zero_stage"])
        partitions = states[0]["partition_count"]
        self.ranks = max(map(_number, partitions)) if isinstance(partitions, list) else _number(partitions)
        if self.stage not in (1, 2, 3):
            raise ValueError(f"ZeRO stage {self.stage}")
        if self.ranks != len(optimizers) or (self.stage == 3 and self.ranks != len(models)):
            raise CheckpointError(
                f"{folder} was saved by {self.ranks} ranks and holds files of {len(optimizers)}: it is incomplete, or two "
                "are mixed; copy or save it again"
            )
        key = "fp32_flat_groups" if self.stage == 3 else "single_partition_of_fp32_groups"
        self.groups = [
            [self._place(archive, value) for value in _list(state[key])]
            for archive, state in zip(optimizers, states, strict=True)
        ]  # by rank
        self.first_file = len(models)
        self.paddings = states[0].get("param_alignment_paddings")

    def tensors(self) -> dict[str, Tensor]:
        """Buffers, frozen and trained parameters, and those that share another's numbers."""
        state = self.models[0].tree
        if any("autoep" in str(key).lower() for key in state):
            raise CheckpointError(
                f"{self.folder} splits experts over ranks (AutoEP): use DeepSpeed's ds_to_universal.py"
            )
        found: dict[str, Tensor] = {}
        module = state["module"] or {}
        for name in _list(state["buffer_names"]):
            if name in module:
                found[name] = self._whole(self.models[0], 0, module[name])
        for name, shape in (state.get("frozen_param_shapes") or {}).items():
            found[name] = self._frozen(name, _shape(shape))
        for name, tensor in self._trained([_shapes(group) for group in _list(state["param_shapes"])]):
            if name in found:
                raise ValueError(f"{name!r} is there twice")
            found[name] = tensor
        for name, other in (state.get("shared_params") or {}).items():
            if other in found:
                found.setdefault(name, found[other])
        for name, value in module.items() if self.stage != 3 else ():  # frozen, of which stage 1 keeps no other record
            if name not in found and self.models[0].place_of(value) is not None:
                found[name] = self._whole(self.models[0], 0, value)
        return found

    def _trained(self, groups: Sequence[Mapping[str, tuple[int, ...]]]) -> Iterator[tuple[str, Tensor]]:
        if self.stage == 3:
            shapes = {name: shape for group in groups for name, shape in group.items()}
            ends = [_Flat(self, rank, range(len(self.groups[rank]))) for rank in range(self.ranks)]
            first = 0
            for name, shape in shapes.items():
                items = math.prod(shape)
                each = -(-items // self.ranks)  # the last rank's is padded
                pieces: list[Piece] = []
                for rank, flat in enumerate(ends):
                    begin = rank * each
                    pieces += flat.pieces(first, min(each, items - begin), begin) if begin < items else []
                yield name, _tensor(shape, pieces)
                first += each
            self._require_used(first * self.ranks, sum(flat.items for flat in ends), exact=True)
            return
        if len({*map(len, self.groups), len(groups)}) != 1:
            raise ValueError("groups of parameters and of numbers differ")
        for number, group in enumerate(groups):
            flat = _Flat(self, None, [number])
            first = 0
            for index, (name, shape) in enumerate(group.items()):
                items = math.prod(shape)
                yield name, _tensor(shape, flat.pieces(first, items, 0))
                first += items + (_number(self.paddings[number][index]) if self.paddings is not None else 0)
            self._require_used(first, flat.items, exact=False)

    def _require_used(self, used: int, held: int, *, exact: bool) -> None:
        """Numbers that no tensor claims mean that the layout is not understood. Stages 1 and 2 pad to twice the ranks."""
        align = 1 if exact else 2 * self.ranks
        if -(-used // align) != -(-held // align):
            raise ValueError(f"its tensors use {used:,} of {held:,} numbers")

    def _frozen(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if self.stage != 3:
            return self._whole(self.models[0], 0, self.models[0].tree["frozen_param_fragments"][name])
        items = math.prod(shape)
        each, pieces, dtype = -(-items // self.ranks), list[Piece](), ""
        for rank, archive in enumerate(self.models):
            place = self._place(archive, archive.tree["frozen_param_fragments"][name])
            dtype, begin = place.dtype, rank * each
            if math.prod(place.shape) < min(each, items - begin):
                raise ValueError(f"a fragment of {name!r} is too short")
            if begin < items:
                pieces.append((begin, min(each, items - begin), rank, place.offset))
        return _tensor(shape, pieces, dtype=dtype)

    def _whole(self, archive: Archive, file: int, value: Any) -> Tensor:
        place = self._place(archive, value)
        box = Box(file, place.offset, place.nbytes, (0,) * len(place.shape), place.shape, place.codec)
        return Tensor(place.dtype, place.shape, (box,))

    def _place(self, archive: Archive, value: Any) -> TensorPlace:
        place = archive.place_of(value)
        if place is None:
            raise archive.damaged("it holds something else where a tensor should be")
        return place


class _Flat:
    """Flat tensors of one rank or, one after another, of all, as one run of numbers."""

    def __init__(self, layout: _Layout, rank: int | None, groups: Sequence[int]) -> None:
        ranks = range(layout.ranks) if rank is None else [rank]
        self.held: list[tuple[int, int, int, int]] = []  # first number, count, file, byte
        self.items = 0
        for one in ranks:
            for group in groups:
                place = layout.groups[one][group]
                if place.dtype != "F32" or len(place.shape) != 1 or place.codec is not None:
                    raise ValueError(f"a flat group is {place.dtype} {list(place.shape)}")
                self.held.append((self.items, place.shape[0], layout.first_file + one, place.offset))
                self.items += place.shape[0]

    def pieces(self, first: int, count: int, begin: int) -> list[Piece]:
        """Where `count` numbers from `first` on lie; they are those of a tensor from its number `begin` on."""
        if first + count > self.items:
            raise ValueError("its tensors need more numbers than there are")
        found: list[Piece] = []
        for at, size, file, offset in self.held:
            low, high = max(first, at), min(first + count, at + size)
            if low < high:
                found.append((begin + low - first, high - low, file, offset + (low - at) * ITEM_BYTES["F32"]))
        return found


def flat_boxes(shape: tuple[int, ...], low: int, high: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """The numbers from `low` to `high` of a tensor as boxes: (start, shape, first number)."""
    if not shape:
        yield (), (), low
        return
    inner = math.prod(shape[1:])
    while low < high:
        row, within = divmod(low, inner)
        if not within and (rows := (high - low) // inner):
            yield (row, *(0,) * (len(shape) - 1)), (rows, *shape[1:]), low
            low += rows * inner
            continue
        end = min(high, (row + 1) * inner)
        for start, size, first in flat_boxes(shape[1:], within, end - row * inner):
            yield (row, *start), (1, *size), row * inner + first
        low = end


def _tensor(shape: tuple[int, ...], pieces: Sequence[Piece], *, dtype: str = "F32") -> Tensor:
    boxes: list[Box] = []
    item = ITEM_BYTES[dtype]
    for begin, count, file, offset in pieces:
        for start, size, first in flat_boxes(shape, begin, begin + count):
            boxes.append(Box(file, offset + (first - begin) * item, math.prod(size) * item, start, size))
    return Tensor(dtype, shape, tuple(boxes) or (Box(0, 0, 0, (0,) * len(shape), shape),))


def _folder(place: Place) -> Place | None:
    if _files(place, _MODEL) and _files(place, _OPTIMIZER):
        both = (_files(place, _MODEL)[0], _files(place, _OPTIMIZER)[0])
        return place if all(begins_as_archive(file) for file in both) else None
    inner = [child for child in place.glob("global_step*") if child.is_dir()]
    if len(inner) != 1 or not (place / LATEST).is_file() or not (place / "config.json").is_file():
        return None
    return _folder(inner[0])


def _files(folder: Place, ending: str) -> list[Place]:
    """In the order of ranks."""
    found = [path for path in folder.glob(f"*{ending}") if path.is_file()]
    return sorted(
        found, key=lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]
    )


def _require_whole_models(files: Sequence[Place], folder: Place) -> None:
    for file in files:
        found = _PARALLEL.search(file.name)
        if found and (found["rank"] is None or int(found["rank"])):
            raise CheckpointError(
                f"{folder} holds {file.name}, a part of a model split by tensors, stages or experts, and how is not "
                "recorded: use DeepSpeed's ds_to_universal.py, or its trainer's own conversion"
            )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{type(value).__name__} where a list should be")
    return list(value)


def _shapes(group: Any) -> dict[str, tuple[int, ...]]:
    return {str(name): _shape(shape) for name, shape in group.items()}


def _shape(value: Any) -> tuple[int, ...]:
    found = tuple(value)
    if not all(type(n) is int and 0 <= n < 2**62 for n in found) or math.prod(found) >= 2**62:
        raise ValueError(f"a shape {found!r:.80}")
    return found


def _number(value: Any) -> int:
    """A number, or an enumeration's."""
    value = value.args[0] if isinstance(value, Record) and value.args else value
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{value!r:.80} where a number should be")
    return value
