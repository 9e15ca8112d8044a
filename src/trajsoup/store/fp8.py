"""FP8 weights with block scales, as DeepSeek stores them: `weight` in e4m3 and `weight_scale_inv`, one for each block of
128 x 128 numbers. A number is its code times the scale of its block.

    stored codes and scales -> dequantised: a tensor of fp32, computed by rows when it is read
    rows of a soup -> quantised: new codes and new scales

Averages of codes mean nothing, since each checkpoint has scales of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.errors import CheckpointError
from trajsoup.store.numbers import fp32
from trajsoup.store.stored import Box, Part, Rows, Signature, Tensor

CODES = "F8_E4M3"
SUFFIX = "_scale_inv"
LARGEST = np.float32(448)  # of e4m3
SMALLEST_NORMAL = np.float32(2**-6)
CONFIG = "quantization_config"  # in config.json
_BLOCK = (128, 128)
_SCALES = ("F32", "BF16")  # DeepSeek's, Qwen's


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """How the scales of a tensor lie."""

    rows: int  # of a block
    columns: int
    dtype: str  # of the scales
    power_of_two: bool = False  # scales are (`scale_fmt: ue8m0`)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the scales of a tensor."""
        rows, columns = shape
        return -(-rows // self.rows), -(-columns // self.columns)


@dataclass(frozen=True, slots=True)
class Scaled:
    """A tensor of codes times scales (`stored.Making`)."""

    codes: Part
    scales: Part
    blocks: Blocks

    @property
    def parts(self) -> tuple[Part, ...]:
        """Codes first."""
        return self.codes, self.scales

    def prepare(self, read: Rows) -> NDArray[np.float32]:
        """All scales: one number in 16,384."""
        shape = self.scales.box.shape
        return fp32(read(self.scales, 0, shape[0]), self.scales.dtype).reshape(shape)

    def rows(self, low: int, high: int, read: Rows, prepared: NDArray[np.float32]) -> NDArray[np.float32]:
        """Codes times scales, in fp32, as DeepSeek's own kernel does it."""
        columns = self.codes.box.shape[1]
        values = DECODED[read(self.codes, low, high)].reshape(high - low, columns)
        for band in range(low // self.blocks.rows, -(-high // self.blocks.rows)):
            begin, end = max(band * self.blocks.rows, low) - low, min((band + 1) * self.blocks.rows, high) - low
            with np.errstate(over="ignore", invalid="ignore"):  # whoever averages names what is not finite
                values[begin:end] *= np.repeat(prepared[band], self.blocks.columns)[:columns]
        return values


def dequantised(tensors: Signature, config: Mapping[str, Any], *, where: str) -> Signature:
    """The tensors with codes and scales as one: fp32. What has no scales stays as it is."""
    if CODES not in tensors.dtypes:
        return tensors
    quantization = config.get(CONFIG)
    quantization = quantization if isinstance(quantization, dict) else {}
    power_of_two = quantization.get("scale_fmt") == "ue8m0"
    block = quantization.get("weight_block_size") or _BLOCK
    found = Signature(tensors)
    for name, tensor in tensors.items():
        if tensor.dtype != CODES or name + SUFFIX not in tensors:
            continue
        if not (isinstance(block, list | tuple) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)):
            raise CheckpointError(f"{where}: weight_block_size is {block!r} in config.json: two numbers are needed")
        scales = found.pop(name + SUFFIX)
        blocks = Blocks(rows=block[0], columns=block[1], dtype=scales.dtype, power_of_two=power_of_two)
        if len(tensor.shape) != 2 or scales.shape != blocks.shape(tensor.shape) or scales.dtype not in _SCALES:
            raise CheckpointError(
                f"{where}: tensor {name!r} of shape {list(tensor.shape)} has scales of {scales.dtype} "
                f"{list(scales.shape)}, which is not one for each {block[0]} x {block[1]} numbers: dequantise it first"
            )
        made = Scaled(_part(name, tensor, where), _part(name + SUFFIX, scales, where), blocks)
        found[name] = Tensor("F32", tensor.shape, tensor.boxes, made=made)
    return found


@dataclass(frozen=True, slots=True)
class Quantised:
    """Some rows as codes and scales, and what was lost."""

    codes: NDArray[np.uint8]
    scales: NDArray[Any]  # their bits
    error: float  # sum of magnitudes
    magnitude: float  # sum, of the numbers themselves
    largest: float  # relative error of a number in the normal range of e4m3


def quantised(values: NDArray[np.float32], blocks: Blocks) -> Quantised:
    """Codes and scales of some rows that begin where a block does.

    A scale is the block's largest magnitude over 448, so that this one is the largest code; a block of zeros has 1.
    """
    rows, columns = values.shape
    size = np.abs(values)
    padded = np.pad(size, ((0, -rows % blocks.rows), (0, -columns % blocks.columns)))
    largest = padded.reshape(-1, blocks.rows, padded.shape[1] // blocks.columns, blocks.columns).max(axis=(1, 3))
    scales, bits = rounded_scales(largest, blocks)
    wide = np.repeat(np.repeat(scales, blocks.rows, axis=0)[:rows], blocks.columns, axis=1)[:, :columns]
    scaled = values / wide
    codes = encoded(scaled)
    lost = np.abs(DECODED[codes] * wide - values)
    normal = np.abs(scaled) >= SMALLEST_NORMAL
    worst = float((lost[normal] / size[normal]).max(initial=0))
    return Quantised(codes, bits, float(lost.sum(dtype=np.float64)), float(size.sum(dtype=np.float64)), worst)


def rounded_scales(largest: NDArray[np.float32], blocks: Blocks) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """The scales of blocks with these largest magnitudes, as numbers and as the bits that are stored."""
    scales = largest / LARGEST
    if blocks.power_of_two:
        fraction, exponent = np.frexp(scales)
        scales = np.ldexp(np.float32(1), exponent - (fraction == 0.5))  # up, so that no code is beyond the largest
    scales = np.where(scales < np.finfo(np.float32).tiny, np.float32(1), scales)  # zeros, and what counts as zero
    if blocks.dtype == "F32":
        return scales, scales.view(np.uint32)
    bits = scales.view(np.uint32)
    bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return (bits.astype(np.uint32) << 16).view(np.float32), bits


def encoded(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The nearest codes of e4m3, ties to even, the largest for what is larger."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    magnitude = np.minimum(np.abs(values), LARGEST)
    normal = magnitude.view(np.uint32)
    normal = ((normal + (0x7FFFF + ((normal >> 20) & 1))) >> 20) - ((127 - 7) << 3)
    small = np.rint(magnitude * np.float32(2**9)).astype(np.uint32)
    codes = np.where(magnitude < SMALLEST_NORMAL, small, normal)
    return (codes | ((bits >> 24) & 0x80)).astype(np.uint8)


def _decoded() -> NDArray[np.float32]:
    """The number of each code: sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinity, and NaN is all ones."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    size[[0x7F, 0xFF]] = np.nan
    return np.where(code & 128, -size, size).astype(np.float32)


DECODED = _decoded()


def _part(name: str, tensor: Tensor, where: str) -> Part:
    box: Box | None = tensor.boxes[0] if len(tensor.boxes) == 1 else None
    if box is None or box.codec is not None:
        raise CheckpointError(f"{where}: tensor {name!r} of an FP8 checkpoint lies in pieces: save it as safetensors")
    return Part(tensor.dtype, box)
