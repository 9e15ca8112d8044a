"""A checkpoint: weights in whatever format, and the side files that make them a model."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from trajsoup.errors import CheckpointError, MismatchError
from trajsoup.store.formats import PICKLES, Format, format_of, require_format
from trajsoup.store.formats.safetensors import INDEX as INDEX
from trajsoup.store.fp8 import CONFIG as QUANTIZATION
from trajsoup.store.fp8 import dequantised
from trajsoup.store.json_file import load_json
from trajsoup.store.names import NameMap, renamed_tensors
from trajsoup.store.regular import SMALL_BYTES, copy_small, read_small
from trajsoup.store.remote import Place, RemotePath, place
from trajsoup.store.shown import is_plain, shown_name
from trajsoup.store.stored import EXACT, FLOATS, Stored
from trajsoup.store.unchanged import State, require_unchanged, state_of

WEIGHT_LIKE = (".safetensors", ".gguf", ".h5", ".msgpack", ".onnx", ".npz", *PICKLES)
NOT_SIDE_FILES = frozenset(
    {"trainer_state.json", "soup.json", "README.md", "metrics.csv", "metrics.jsonl", "study.yaml"}
)
NOT_MODEL_FOLDERS = (".", "checkpoint-", "global_step", "runs", "logs", "optimizer", "lr_scheduler", "random")
MOST_SIDE_BYTES = SMALL_BYTES
VOLATILE = frozenset({"transformers_version", "_name_or_path", "use_cache", "torch_dtype", "dtype", "_commit_hash"})
_SAME_KIND = "Merge only checkpoints of one architecture and dtype"
_SAME_CODE = "One soup runs one code: if both versions compute the same, put the same file into both folders"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json")


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Stored):
    """Stored weights with the name that the user gave, their format, and the side files in their folder."""

    path: Place  # as the user knows it: a folder or a file
    format: Format
    states: tuple[State, ...]  # of its files, when it was opened: a pass compares them with those after it
    name_map: NameMap | None = None  # under which it was renamed

    @property
    def names(self) -> tuple[str, ...]:
        """What records call the weight files: their paths below the folder, or below where an adapter is."""
        inside = [str(file).startswith(f"{self.folder}/") for file in self.files]
        roots = [self.folder if own else self.path for own in inside]
        return tuple(_below(file, root).as_posix() for file, root in zip(self.files, roots, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of all weight files."""
        return sum(self.sizes)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """config.json without the fields that do not shape the model; empty if there is none."""
        path = self.folder / "config.json"
        if not path.is_file():
            return {}
        return {key: value for key, value in load_json(path).items() if key not in VOLATILE}

    def require_unchanged(self) -> None:
        """Refuse what was read of it if a file is not as it was when it was opened."""
        require_unchanged(self.files, self.states)

    def code(self) -> tuple[Path, ...]:
        """Python files that a loader runs with the weights (trust_remote_code), relative to `folder`."""
        if not (self.config.get("auto_map") or _names_code(self.folder / "tokenizer_config.json")):
            return ()
        return tuple(file for file in self.side_files() if file.suffix == ".py")

    def side_files(self) -> tuple[Path, ...]:
        """Everything that travels with the weights, relative to `folder`: tokenizer, templates, code, licence.

        Regular files of the folder itself, none above MOST_SIDE_BYTES: `left_behind` says what else was there."""
        return self._beside[0]

    def left_behind(self) -> tuple[str, ...]:
        """What lies beside the weights and does not travel with them, and why."""
        return self._beside[1]

    @cached_property
    def _beside(self) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        found: list[Path] = []
        left: list[str] = []
        weights = {*self.names}
        for parent, folders, names in _walk(self.folder):
            if self.path != self.folder:
                folders.clear()  # a lone file: what lies deeper belongs to others
            folders[:] = sorted(name for name in folders if _travels(parent / name))
            left += [f"{shown_name(name)}/ is a link" for name in folders if _is_link(parent / name)]
            for name in sorted(names):
                path = parent / name
                if not _is_side_file(name) or _below(path, self.folder).as_posix() in weights:
                    continue
                if (why := _unfit(path, self.folder)) is None:
                    found.append(_below(path, self.folder))
                else:
                    left.append(f"{shown_name(name)} {why}")
        return tuple(found), tuple(left)


def open_checkpoint(path: Place | str, *, format: Format | None = None, name_map: NameMap | None = None) -> Checkpoint:
    """Open a checkpoint folder or file, here or in an object store, and check where every tensor lies. Reads no weight.

    `format` is what somebody else has recognised it as; with a `name_map` its tensors have other names.

    >>> open_checkpoint("s3://bucket/model").tensors  # doctest: +SKIP
    """
    path = place(path)
    format = format or require_format(path)
    if not is_plain(str(path)):
        raise CheckpointError(
            f"{shown_name(str(path))} has control characters or no UTF-8 in its name, which records could not keep: rename it"
        )
    stored = format.open(path)
    states = tuple(state_of(file) for file in stored.files)
    checkpoint = Checkpoint(path=path, format=format, states=states, **vars(stored))
    checkpoint = replace(
        checkpoint, tensors=dequantised(checkpoint.signature, checkpoint.config, where=str(checkpoint.path))
    )
    if not checkpoint.tensors:
        raise CheckpointError(f"{path} holds no tensor: save the checkpoint again")
    _require_averageable(checkpoint)
    checkpoint.require_sound(path)
    return renamed(checkpoint, name_map)


def renamed(checkpoint: Checkpoint, name_map: NameMap | None) -> Checkpoint:
    """The same checkpoint under the names of a map."""
    if name_map is None:
        return checkpoint
    return replace(checkpoint, tensors=renamed_tensors(checkpoint, name_map), name_map=name_map)


def side_files_here(checkpoint: Checkpoint, folder: Path) -> Path:
    """A local folder with the checkpoint's config, tokenizer and code: its own, or `folder` with copies from a store."""
    if isinstance(checkpoint.folder, Path):
        return checkpoint.folder
    for name in checkpoint.side_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy_small(checkpoint.folder / name, folder / name)
    return folder


def is_checkpoint(path: Place) -> bool:
    """Whether a folder holds weights of its own."""
    return path.is_dir() and format_of(path) is not None


def missing_code(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Python files that config.json says hold the model's classes, and that are not in the folder."""
    listed = checkpoint.config.get("auto_map")
    names = [name for name in listed.values() if isinstance(name, str)] if isinstance(listed, dict) else []
    own = sorted(
        {f"{name.split('.')[0]}.py" for name in names if "--" not in name}
    )  # repository--module.Class is elsewhere
    return tuple(file for file in own if not (checkpoint.folder / file).is_file())


def require_same(first: Checkpoint, other: Checkpoint, *, dtypes: bool = True) -> None:
    """Refuse two ingredients that differ in names, shapes, dtypes, config, tokenizer or code; name the first difference.

    Without `dtypes`, for a fork point: it is no ingredient, and training often goes on in another float type.
    """
    a, b = first.tensors, other.tensors
    for name, tensor in a.items() if a is not b else ():
        if name not in b:
            raise _mismatch(first, other, f"tensor {name!r} is in the first only")
        twin = b[name]
        if tensor.shape != twin.shape:
            raise _mismatch(first, other, f"tensor {name!r} has shape {list(tensor.shape)} and {list(twin.shape)}")
        if tensor.dtype != twin.dtype and (dtypes or not {tensor.dtype, twin.dtype} <= FLOATS):
            raise _mismatch(first, other, f"tensor {name!r} has dtype {tensor.dtype} and {twin.dtype}")
    if len(a) < len(b):
        extra = next(name for name in b if name not in a)
        raise _mismatch(first, other, f"tensor {extra!r} is in the second only")
    ignored = () if dtypes else (QUANTIZATION,)
    mine, theirs = ({k: v for k, v in c.config.items() if k not in ignored} for c in (first, other))
    if mine and theirs and mine != theirs:
        raise _mismatch(first, other, _config_difference(mine, theirs))
    for file in (*TOKENIZER_FILES, *first.code()):
        mine, theirs = first.folder / file, other.folder / file
        if mine.is_file() and theirs.is_file() and read_small(mine) != read_small(theirs):
            raise _mismatch(
                first, other, f"{file} differs", cure=_SAME_CODE if str(file).endswith(".py") else _SAME_KIND
            )


def same_dtypes(first: Checkpoint, other: Checkpoint) -> bool:
    """Whether the tensors that both have are stored in the same types."""
    return first.tensors is other.tensors or all(
        tensor.dtype == other.tensors[name].dtype for name, tensor in first.tensors.items() if name in other.tensors
    )


def files_below(folder: Place) -> Iterator[str]:
    """Every file below a folder, links and pipes too, by its path in it."""
    for parent, folders, names in _walk(folder):
        linked = [name for name in folders if _is_link(parent / name)]
        yield from (_below(parent / name, folder).as_posix() for name in (*names, *linked))


def _walk(folder: Place) -> Iterator[tuple[Place, list[str], list[str]]]:
    if isinstance(folder, RemotePath):
        yield from folder.walk()
        return
    for parent, folders, names in os.walk(folder):
        yield Path(parent), folders, names


def _below(path: Place, folder: Place) -> Path:
    return Path(str(path)[len(str(folder)) + 1 :]) if isinstance(path, RemotePath) else path.relative_to(str(folder))


def _require_averageable(checkpoint: Checkpoint) -> None:
    quantization = checkpoint.config.get(QUANTIZATION)
    if quantization and all(tensor.made is None for tensor in checkpoint.tensors.values()):
        method = quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else quantization
        raise CheckpointError(
            f"{checkpoint.path} is quantised ({method}): averages of quantised codes mean nothing. "
            "Dequantise it to bf16 first, merge, then quantise the soup"
        )
    if (adapter := checkpoint.signature.adapter) is not None:
        raise CheckpointError(
            f"{checkpoint.path} is a LoRA adapter ({adapter}): the mean of A times the mean of B is not the mean of the "
            "updates. `merge --lora merge --fork-point BASE` merges each into its base and averages there"
        )
    if unknown := checkpoint.signature.dtypes - FLOATS - EXACT:
        name, tensor = next((n, t) for n, t in checkpoint.tensors.items() if t.dtype in unknown)
        raise CheckpointError(
            f"{checkpoint.path}: tensor {name!r} is {tensor.dtype}, which cannot be averaged: convert the "
            "checkpoint to bf16 first, merge, then quantise the soup (FP8 needs block scales, NAME_scale_inv)"
        )


def _is_link(path: Place) -> bool:
    return isinstance(path, Path) and path.is_symlink()


def _unfit(path: Place, folder: Place) -> str | None:
    """Why a file does not travel with the weights; None: it does. The cache of the Hugging Face hub is made of links."""
    if not is_plain(path.name):
        return "has control characters or no UTF-8 in its name"
    if not isinstance(path, Path) or not isinstance(folder, Path):
        return None
    try:
        target, home = path.resolve(strict=True), folder.resolve()
        found = target.stat()
    except (OSError, RuntimeError):
        return "is a link to nothing"
    of_hub = home.parent.name == "snapshots" and target.parent == home.parent.parent / "blobs"
    if home not in target.parents and not of_hub:
        return f"is a link to {shown_name(str(target))}, outside the folder"
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    return f"has more than {MOST_SIDE_BYTES:,} bytes" if found.st_size > MOST_SIDE_BYTES else None


def _names_code(path: Place) -> bool:
    return path.is_file() and bool(load_json(path).get("auto_map"))


def _config_difference(first: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    for key in sorted(first.keys() | other.keys()):
        if key not in first or key not in other:  # absent means the architecture's default, which null need not be
            return f"config.json has {key} in the {'first' if key in first else 'second'} only"
        if first[key] != other[key]:
            return f"config.json has {key} = {first[key]!r} and {other[key]!r}"
    raise AssertionError("the configs are equal")


def _mismatch(first: Checkpoint, other: Checkpoint, what: str, *, cure: str = _SAME_KIND) -> MismatchError:
    return MismatchError(f"{first.path} and {other.path} cannot be averaged: {what}. {cure}")


def _travels(folder: Place) -> bool:
    return not folder.name.startswith(NOT_MODEL_FOLDERS) and not is_checkpoint(folder)


def _is_side_file(name: str) -> bool:
    return name not in NOT_SIDE_FILES and not name.endswith((*WEIGHT_LIKE, ".index.json"))
