"""A checkpoint: one safetensors file, or a folder of them with an index, and the side files that make it a model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trajsoup.errors import CheckpointError, MismatchError
from trajsoup.store.remote import Place, RemotePath, place
from trajsoup.store.safetensors import EXACT, FLOATS, Header, Tensor, read_header

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".distcp")
WEIGHT_LIKE = (".safetensors", ".gguf", ".h5", ".msgpack", ".onnx", ".npz", *PICKLES)
NOT_SIDE_FILES = frozenset(
    {"trainer_state.json", "soup.json", "README.md", "metrics.csv", "metrics.jsonl", "study.yaml"}
)
NOT_MODEL_FOLDERS = (".", "checkpoint-", "global_step", "runs", "logs")
VOLATILE = frozenset({"transformers_version", "_name_or_path", "use_cache", "torch_dtype", "dtype", "_commit_hash"})
_SAME_KIND = "Merge only checkpoints of one architecture and dtype"
_SAME_CODE = "One soup runs one code: if both versions compute the same, put the same file into both folders"
HEADER_REQUESTS = 16  # at once, to an object store
_SHARD = re.compile(r"-of-(?P<count>\d+)\.safetensors$")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json")


@dataclass(frozen=True)
class Checkpoint:
    """Weight files in order, their headers, and the folder that holds the side files."""

    path: Place  # as the user knows it: a folder or a file
    files: tuple[Place, ...]
    headers: tuple[Header, ...]
    folder: Place

    @cached_property
    def tensors(self) -> Mapping[str, tuple[int, Tensor]]:
        """Name -> (which file, where in it), in file order."""
        found: dict[str, tuple[int, Tensor]] = {}
        for i, header in enumerate(self.headers):
            for name, tensor in header.tensors.items():
                if name in found:
                    raise CheckpointError(
                        f"{self.path}: tensor {name!r} is in both {self.files[found[name][0]].name} and "
                        f"{self.files[i].name}: remove the stale file"
                    )
                found[name] = (i, tensor)
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of all weight files."""
        return sum(header.file_bytes for header in self.headers)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """config.json without the fields that do not shape the model; empty if there is none."""
        path = self.folder / "config.json"
        if not path.is_file():
            return {}
        return {key: value for key, value in load_json(path).items() if key not in VOLATILE}

    def code(self) -> tuple[Path, ...]:
        """Python files that a loader runs with the weights (trust_remote_code), relative to `folder`."""
        if not (self.config.get("auto_map") or _names_code(self.folder / "tokenizer_config.json")):
            return ()
        return tuple(file for file in self.side_files() if file.suffix == ".py")

    def side_files(self) -> tuple[Path, ...]:
        """Everything that travels with the weights, relative to `folder`: tokenizer, templates, code, licence."""
        found: list[Path] = []
        for parent, folders, names in _walk(self.folder):
            if self.path != self.folder:
                folders.clear()  # a lone file: what lies deeper belongs to others
            folders[:] = sorted(name for name in folders if _travels(parent / name))
            found += [_below(parent / name, self.folder) for name in sorted(names) if _is_side_file(name)]
        return tuple(found)


def open_checkpoint(path: Place | str) -> Checkpoint:
    """Open a checkpoint folder or file, here or in an object store, and check every header. Reads no weight."""
    path = place(path)
    if path.is_file():
        if path.suffix != ".safetensors":
            raise CheckpointError(f"{path} is not a safetensors file: {_convert(path.name)}")
        files, folder = (path,), path.parent
    elif path.is_dir():
        files, folder = _weight_files(path), path
    else:
        raise CheckpointError(f"there is no checkpoint at {path}: check the path")
    checkpoint = Checkpoint(path, files, _headers(files), folder)
    if not checkpoint.tensors:
        raise CheckpointError(f"{path} holds no tensor: save the checkpoint again")
    _require_averageable(checkpoint)
    if path.is_dir() and (path / INDEX).is_file():
        _check_index(checkpoint)
    return checkpoint


def is_checkpoint(path: Place) -> bool:
    """Whether a folder holds weights of its own."""
    return path.is_dir() and ((path / INDEX).is_file() or any(path.glob("*.safetensors")))


def load_json(path: Place) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}): copy or save it again") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}: check the path and its permissions") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} is not a JSON object: copy or save it again")
    return data


def missing_code(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Python files that config.json says hold the model's classes, and that are not in the folder."""
    listed = checkpoint.config.get("auto_map")
    names = [name for name in listed.values() if isinstance(name, str)] if isinstance(listed, dict) else []
    own = sorted(
        {f"{name.split('.')[0]}.py" for name in names if "--" not in name}
    )  # repository--module.Class is elsewhere
    return tuple(file for file in own if not (checkpoint.folder / file).is_file())


def require_same(first: Checkpoint, other: Checkpoint) -> None:
    """Refuse two ingredients that differ in names, shapes, dtypes, config, tokenizer or code; name the first difference."""
    a, b = first.tensors, other.tensors
    for name, (_, tensor) in a.items():
        if name not in b:
            raise _mismatch(first, other, f"tensor {name!r} is in the first only")
        twin = b[name][1]
        if tensor.shape != twin.shape:
            raise _mismatch(first, other, f"tensor {name!r} has shape {list(tensor.shape)} and {list(twin.shape)}")
        if tensor.dtype != twin.dtype:
            raise _mismatch(first, other, f"tensor {name!r} has dtype {tensor.dtype} and {twin.dtype}")
    if (extra := next((name for name in b if name not in a), None)) is not None:
        raise _mismatch(first, other, f"tensor {extra!r} is in the second only")
    if first.config and other.config and first.config != other.config:
        raise _mismatch(first, other, _config_difference(first.config, other.config))
    for file in (*TOKENIZER_FILES, *first.code()):
        mine, theirs = first.folder / file, other.folder / file
        if mine.is_file() and theirs.is_file() and mine.read_bytes() != theirs.read_bytes():
            raise _mismatch(
                first, other, f"{file} differs", cure=_SAME_CODE if str(file).endswith(".py") else _SAME_KIND
            )


def _headers(files: Sequence[Place]) -> tuple[Header, ...]:
    if len(files) > 1 and isinstance(files[0], RemotePath):  # each is a round trip or two
        with ThreadPoolExecutor(HEADER_REQUESTS) as pool:
            return tuple(pool.map(read_header, files))
    return tuple(read_header(file) for file in files)


def _walk(folder: Place) -> Iterator[tuple[Place, list[str], list[str]]]:
    if isinstance(folder, RemotePath):
        yield from folder.walk()
        return
    for parent, folders, names in os.walk(folder):
        yield Path(parent), folders, names


def _below(path: Place, folder: Place) -> Path:
    return Path(str(path)[len(str(folder)) + 1 :]) if isinstance(path, RemotePath) else path.relative_to(str(folder))


def _weight_files(folder: Place) -> tuple[Place, ...]:
    index = folder / INDEX
    found = sorted(folder.glob("*.safetensors"))
    if index.is_file():
        names = tuple(dict.fromkeys(_weight_map(index).values()))
        if (folder / SINGLE) in found and SINGLE not in names:  # transformers would load the one, we the others
            raise CheckpointError(
                f"{folder} holds both {SINGLE} and {INDEX}, which does not name it: one of them is stale; remove it, "
                f"or name {folder / SINGLE} itself"
            )
        return tuple(folder / name for name in names)
    if (folder / SINGLE) in found:
        return (folder / SINGLE,)
    if not found:
        others = sorted(p.name for p in folder.iterdir() if p.name.endswith(PICKLES))
        raise CheckpointError(
            f"{folder} holds no safetensors file: {_convert(others[0]) if others else 'check the path'}"
        )
    if len(found) > 1 and not all("-of-" in file.name for file in found):
        raise CheckpointError(
            f"{folder} holds {len(found)} safetensors files and no {INDEX}: name one file, or add the index"
        )
    _require_all_shards(folder, found)
    return tuple(found)


def _require_all_shards(folder: Place, found: Sequence[Place]) -> None:
    """Without an index the names must tell: model-00001-of-00003 has two brothers."""
    named = [match for file in found if (match := _SHARD.search(file.name))]
    for match in named:
        have = sum(other["count"] == match["count"] for other in named)
        if have < int(match["count"]):
            raise CheckpointError(
                f"{folder} holds {have} of {int(match['count'])} shards and no {INDEX}: it is incomplete; copy or save "
                "the checkpoint again"
            )


def _weight_map(index: Place) -> dict[str, str]:
    weight_map = load_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise CheckpointError(f"{index} has no weight_map of strings: save the checkpoint again")
    for file in set(weight_map.values()):
        if Path(file).name != file:
            raise CheckpointError(f"{index} names {file!r}, which is outside its folder: it must not be trusted")
        if not (index.parent / file).is_file():
            raise CheckpointError(f"{index} names {file!r}, which is missing: copy the checkpoint again")
    return dict(sorted(weight_map.items(), key=lambda item: item[1]))


def _check_index(checkpoint: Checkpoint) -> None:
    index = checkpoint.folder / INDEX
    weight_map = _weight_map(index)
    for name, (i, _) in checkpoint.tensors.items():
        listed = weight_map.pop(name, None)
        if listed != checkpoint.files[i].name:
            raise CheckpointError(
                f"{index} puts tensor {name!r} into {listed!r}, but it is in {checkpoint.files[i].name!r}: the index "
                "is stale; save the checkpoint again"
            )
    if weight_map:
        raise CheckpointError(f"{index} names tensor {next(iter(weight_map))!r}, which no file holds: it is stale")


def _require_averageable(checkpoint: Checkpoint) -> None:
    quantization = checkpoint.config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else quantization
        raise CheckpointError(
            f"{checkpoint.path} is quantised ({method}): averages of quantised codes mean nothing. "
            "Dequantise it to bf16 first, merge, then quantise the soup"
        )
    for name, (_, tensor) in checkpoint.tensors.items():
        if tensor.dtype not in FLOATS | EXACT:
            raise CheckpointError(
                f"{checkpoint.path}: tensor {name!r} is {tensor.dtype}, which cannot be averaged: convert the "
                "checkpoint to bf16 first (for FP8, apply its scales), merge, then quantise the soup"
            )


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


def _convert(name: str) -> str:
    return (
        f"{name} may be a pickle or another format, which this tool does not open. Convert it to safetensors first: "
        "load it in the training framework and save it with save_pretrained"
    )


def _travels(folder: Place) -> bool:
    return not folder.name.startswith(NOT_MODEL_FOLDERS) and not is_checkpoint(folder)


def _is_side_file(name: str) -> bool:
    return name not in NOT_SIDE_FILES and not name.endswith((*WEIGHT_LIKE, ".index.json"))
