"""A soup as one GGUF file, which llama.cpp and its kin run: streamed, without torch, whole or not at all.

Checkpoint -> Model (gguf_model.py), tokenizer (gguf_tokenizer.py), tensors block by block -> one file
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from trajsoup.engine.kernels import BITS, decode
from trajsoup.errors import CheckpointError, OutputError, install
from trajsoup.merge.gguf_model import Model, read_model
from trajsoup.merge.gguf_tokenizer import describe_tokenizer
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint, side_files_here
from trajsoup.store.publish import publishing
from trajsoup.store.remote import Place
from trajsoup.store.source import read_range, reading
from trajsoup.store.stored import FLOATS, ITEM_BYTES, Tensor

BLOCK_BYTES = 8 << 20
QUANTISED = 32  # numbers of a row that share a scale
ROPE_FREQS = "rope_freqs.weight"


class GgufType(StrEnum):
    """How matrices are stored; vectors are always f32."""

    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"  # eight bits, a scale for every 32 numbers


LARGEST = {GgufType.F16: 65504.0, GgufType.BF16: math.inf, GgufType.Q8_0: 127 * 65504.0, None: math.inf}


@dataclass(frozen=True, slots=True)
class Written:
    """A GGUF file that was made."""

    path: Path
    bytes: int
    tensors: int
    type: GgufType
    architecture: str  # llama.cpp's name


def export_gguf(
    soup: Place | str,
    out: Path,
    *,
    type: GgufType | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Written:
    """Write the model folder `soup` as the GGUF file `out`; by default in the soup's own 16-bit type, else in f16.

    >>> export_gguf("soup", Path("soup.gguf"), type=GgufType.Q8_0)  # doctest: +SKIP
    """
    try:
        from gguf import GGUFWriter
    except ImportError as error:
        raise OutputError(f"writing GGUF needs the gguf package: {install('gguf')}") from error
    checkpoint = open_checkpoint(soup)
    model = read_model(checkpoint)
    names = model.names(checkpoint)
    for name, tensor in checkpoint.tensors.items():
        if (
            len(tensor.boxes) != 1
            or tensor.made is not None
            or tensor.boxes[0].codec is not None
            or tensor.dtype not in FLOATS
        ):
            raise CheckpointError(
                f"{checkpoint.path}: tensor {name!r} does not lie in one piece of floating numbers: export the Hugging Face "
                "folder that `trajsoup merge` writes"
            )
    kinds = {tensor.dtype for tensor in checkpoint.tensors.values()}
    type = type or (GgufType.BF16 if "BF16" in kinds else GgufType.F16)
    types = {name: _stored_as(tensor.shape, type) for name, tensor in checkpoint.tensors.items()}
    factors = model.rope_factors()
    sizes = {name: _stored_bytes(checkpoint.tensors[name].shape, types[name]) for name in names}
    with publishing(out, need_bytes=sum(sizes.values()), file=True) as folder:
        writer = GGUFWriter(folder / out.name, model.architecture.name)
        try:
            _describe(writer, checkpoint, model, type)
            single = np.dtype(np.float32)
            if factors is not None:
                writer.add_tensor_info(ROPE_FREQS, factors.shape, single, factors.nbytes)
            for name, other in names.items():
                shape = checkpoint.tensors[name].shape
                writer.add_tensor_info(other, shape, single, sizes[name], raw_dtype=_library_type(types[name]))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            assert writer.fout is not None
            (file,) = writer.fout
            writer.write_padding(file, file.tell())
            if factors is not None:
                file.write(factors.tobytes())
                writer.write_padding(file, factors.nbytes)
            for name in names:
                for block, nbytes in _blocks(checkpoint, name, model, types[name]):
                    file.write(block)
                    progress(nbytes)
                writer.write_padding(file, sizes[name])
        finally:
            writer.close()
        made = (folder / out.name).stat().st_size
    return Written(out, made, len(names) + (factors is not None), type, model.architecture.name)


def _describe(writer: Any, checkpoint: Checkpoint, model: Model, type: GgufType) -> None:
    from gguf import GGML_QUANT_VERSION, LlamaFileType

    files = {GgufType.F16: "MOSTLY_F16", GgufType.BF16: "MOSTLY_BF16", GgufType.Q8_0: "MOSTLY_Q8_0"}
    writer.add_type("model")
    writer.add_name(checkpoint.path.name)
    writer.add_file_type(LlamaFileType[files[type]])
    writer.add_quantization_version(GGML_QUANT_VERSION)
    model.describe(writer)
    with tempfile.TemporaryDirectory(prefix="trajsoup-") as scratch:
        describe_tokenizer(writer, side_files_here(checkpoint, Path(scratch)), vocabulary=model.vocabulary)


def _stored_as(shape: tuple[int, ...], type: GgufType) -> GgufType | None:
    """The type of a tensor; None is f32. Rows that no whole number of scales covers are f16, as in llama.cpp's own."""
    if len(shape) < 2:
        return None
    return GgufType.F16 if type is GgufType.Q8_0 and shape[-1] % QUANTISED else type


def _stored_bytes(shape: tuple[int, ...], type: GgufType | None) -> int:
    items = math.prod(shape)
    return items // QUANTISED * (QUANTISED + 2) if type is GgufType.Q8_0 else items * (4 if type is None else 2)


def _library_type(type: GgufType | None) -> Any:
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType["F32" if type is None else type.name]


def _blocks(checkpoint: Checkpoint, name: str, model: Model, type: GgufType | None) -> Iterator[tuple[memoryview, int]]:
    """The bytes of a tensor as they will lie in the file, some rows at a time, and how many were read for them."""
    from gguf.quants import quantize

    tensor = checkpoint.tensors[name]
    rows = tensor.shape[0] if tensor.shape else 1
    head = model.head_rows if model.turned(name) else 1
    if rows % head:
        raise CheckpointError(f"{checkpoint.path}: tensor {name!r} of {rows:,} rows has no heads of {head}")
    row_items = math.prod(tensor.shape[1:])
    step = max(BLOCK_BYTES // max(row_items * 4 * head, 1), 1) * head
    for low in range(0, rows, step):
        high = min(low + step, rows)
        values = _read(checkpoint, tensor, low * row_items, high * row_items).reshape(high - low, row_items)
        if head > 1:  # halves become pairs
            values = values.reshape(-1, 2, head // 2, row_items).swapaxes(1, 2).reshape(values.shape)
        largest = float(np.max(np.abs(values), initial=0))
        if not largest <= LARGEST[type] or not math.isfinite(largest):
            raise CheckpointError(
                f"{checkpoint.path}: tensor {name!r} holds {largest:g}, which {type or 'f32'} cannot: choose --type bf16"
            )
        yield (
            np.ascontiguousarray(quantize(values, _library_type(type))).data.cast("B"),
            values.size * ITEM_BYTES[tensor.dtype],
        )


def _read(checkpoint: Checkpoint, tensor: Tensor, begin: int, end: int) -> np.ndarray:
    (box,), item = tensor.boxes, ITEM_BYTES[tensor.dtype]
    path = checkpoint.files[box.file]
    with reading(path):
        raw = read_range(path, box.offset + begin * item, box.offset + end * item)
    if len(raw) != (end - begin) * item:
        raise CheckpointError(f"{path} became shorter while it was read: is something writing to it?")
    values = np.empty(end - begin, np.float32)
    decode(np.frombuffer(raw, BITS[tensor.dtype]), tensor.dtype, values)
    return values
