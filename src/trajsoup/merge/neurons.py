"""The neurons of two checkpoints, matched: whether runs share a fork point, without any text and without torch.

    names -> blocks (MLP, expert, attention) -> a few of them -> their units, one block at a time -> core/matching

A block is known by the names of its tensors (`IN_OUT`); heads of an attention layer count as its units where config.json
says how many there are. At most `BLOCKS` blocks of a kind are read, and no tensor above `TENSOR_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.matching import Matching, matched_units, sampled_units
from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.kernels import BITS, decode
from trajsoup.engine.layout import SHARD_BYTES, make_layout
from trajsoup.engine.sinks import MemorySink
from trajsoup.engine.workers import Options
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.stored import FLOATS, Tensor

BLOCKS = 3  # the first, the middle and the last of a kind
TENSOR_BYTES = 1 << 28  # of a larger tensor nothing is read
IN_OUT = (  # tensors into hidden units, and the one out of them
    (("gate_proj.weight", "up_proj.weight"), "down_proj.weight"),
    (("w1.weight", "w3.weight"), "w2.weight"),
    (("dense_h_to_4h.weight",), "dense_4h_to_h.weight"),
    (("c_fc.weight",), "c_proj.weight"),
    (("fc_in.weight",), "fc_out.weight"),
    (("fc1.weight",), "fc2.weight"),  # and linear_fc1, with gate and up in one
)
HEADS = ("q_proj.weight", "o_proj.weight")  # rows and columns of each head


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Tensors that share hidden units."""

    into: tuple[str, ...]  # units are rows; of several matrices in one, every so many
    out: str  # units are columns
    units: int


def match_neurons(first: Checkpoint, second: Checkpoint, *, options: Options | None = None) -> Matching | None:
    """Match the units of two checkpoints of one signature; None where no block is known by its names."""
    matched = units = 0
    blocks = [*_spread(_mlps(first.tensors)), *_spread(_attentions(first))]
    for block in blocks:
        chosen = sampled_units(block.units)
        mine, theirs = (_vectors(of, block, chosen, options) for of in (first, second))
        matched += matched_units(mine, theirs)
        units += len(chosen)
    return Matching(matched=matched, units=units, blocks=len(blocks)) if blocks else None


def _mlps(tensors: Mapping[str, Tensor]) -> Iterator[Block]:
    for name, tensor in tensors.items():
        for into, out in IN_OUT:
            if not name.endswith(out) or not _is_read(tensor):
                continue
            found = tuple(name.removesuffix(out) + end for end in into)
            units = tensor.shape[1]
            if all(n in tensors and _is_read(tensors[n]) and tensors[n].shape[0] % units == 0 for n in found):
                yield Block(into=found, out=name, units=units)


def _attentions(checkpoint: Checkpoint) -> Iterator[Block]:
    heads, (into, out) = checkpoint.config.get("num_attention_heads"), HEADS
    for name, tensor in checkpoint.tensors.items():
        if isinstance(heads, int) and name.endswith(out) and _is_read(tensor) and tensor.shape[1] % heads == 0:
            query = name.removesuffix(out) + into
            rows = checkpoint.tensors.get(query)
            also = rows is not None and _is_read(rows) and rows.shape[0] % heads == 0
            yield Block(into=(query,) * also, out=name, units=heads)


def _is_read(tensor: Tensor) -> bool:
    return len(tensor.shape) == 2 and tensor.dtype in FLOATS and 0 < tensor.nbytes <= TENSOR_BYTES


def _spread(blocks: Iterator[Block]) -> Sequence[Block]:
    found = list(blocks)
    return [found[i] for i in sorted({0, len(found) // 2, len(found) - 1})][:BLOCKS] if found else []


def _vectors(
    checkpoint: Checkpoint, block: Block, chosen: NDArray[np.int64], options: Options | None
) -> NDArray[np.float32]:
    """A row for each chosen unit: what leads into it, and what leads out."""
    parts: list[NDArray[np.float32]] = []
    for name in (*block.into, block.out):
        values = _read(checkpoint, name, options)
        if name == block.out:
            units = values.T.reshape(block.units, -1)  # a head has several columns, which lie together
        elif name.endswith(HEADS[0]):
            units = values.reshape(block.units, -1)  # and several rows
        else:  # gate and up in one matrix lie one after the other
            units = np.concatenate(np.split(values, len(values) // block.units), axis=1)
        parts.append(units[chosen])
    return np.concatenate(parts, axis=1)


def _read(checkpoint: Checkpoint, name: str, options: Options | None) -> NDArray[np.float32]:
    """One tensor, whatever boxes and format it lies in."""
    alone = replace(checkpoint, tensors={name: checkpoint.tensors[name]})
    layout = make_layout(alone, shard_bytes=SHARD_BYTES)
    sink = MemorySink(layout)
    blend({"it": alone}, [Row(name=name, weights={"it": 1.0})], [sink], layout=layout, options=options)
    (stored,) = sink.tensors().values()
    dtype = checkpoint.tensors[name].dtype
    values = np.empty(stored.shape, np.float32)
    decode(stored.view(BITS[dtype]), dtype, values)
    return values
