"""LoRA adapters of PEFT, merged into their base model: W + scaling B A, computed by rows when it is read.

The mean of A times the mean of B is not the mean of the updates, so adapters are averaged as full models. Opened so, an
adapter has the tensors of its base. Sums over the rank are made in fp64 in a fixed order and rounded to fp32 once: the
same bits on any machine, however the rows are cut.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.errors import CheckpointError
from trajsoup.store.json_file import load_json
from trajsoup.store.numbers import fp32
from trajsoup.store.remote import Place, absolute, place
from trajsoup.store.stored import FLOATS, Part, Rows, Stored, Tensor

CONFIG = "adapter_config.json"
_PREFIX = "base_model.model."
_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<side>[AB])(\.weight)?$")
# Fields of adapter_config.json under which W + scaling B A is not the model, and why.
_REFUSED = {
    "use_dora": "DoRA rescales the rows of every merged matrix by a learned norm",
    "use_qalora": "QALoRA acts on pooled inputs",
    "alora_invocation_tokens": "an activated LoRA acts on some tokens only",
    "arrow_config": "Arrow chooses among adapters by token",
    "layer_replication": "its layers are not those of the base",
    "target_parameters": "it adapts parameters that are no matrix of a linear layer",
    "lora_bias": "its B has a bias",
}
_CHANGED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")  # initialisations that subtract from the base


@dataclass(frozen=True, slots=True)
class Update:
    """A matrix plus the product of two thin ones (`stored.Making`)."""

    weight: Part
    a: Part  # r x in
    b: Part  # out x r
    scaling: float
    transposed: bool  # the matrix is in x out: Conv1D, embeddings

    @property
    def parts(self) -> tuple[Part, ...]:
        """The matrix first."""
        return self.weight, self.a, self.b

    def prepare(self, read: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both factors."""
        a, b = (
            fp32(read(p, 0, p.box.shape[0]), p.dtype).reshape(p.box.shape).astype(np.float64) for p in (self.a, self.b)
        )
        return (np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)) if self.transposed else (b, a)

    def rows(self, low: int, high: int, read: Rows, prepared: Any) -> NDArray[np.float32]:
        """Computed row by row."""
        left, right = prepared
        with np.errstate(over="ignore", invalid="ignore"):  # whoever averages names what is not finite
            return self._sum(left[low:high], right, read(self.weight, low, high))

    def _sum(
        self, left: NDArray[np.float64], right: NDArray[np.float64], weight: NDArray[np.uint8]
    ) -> NDArray[np.float32]:
        """Products of fp32 are exact in fp64; BLAS would add them in an order of its own."""
        total = np.zeros((len(left), right.shape[1]))
        term = np.empty_like(total)
        for k in range(len(right)):
            np.multiply(left[:, k, None], right[k], out=term)
            total += term
        total *= self.scaling
        total += fp32(weight, self.weight.dtype).reshape(total.shape)
        return total.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Lora:
    """A format that is asked for (`--lora merge`), not recognised: an adapter needs to be told its base."""

    base: str  # absolute path or URL
    name = "LoRA adapter"

    def recognises(self, place: Place) -> bool:
        """A folder with an adapter_config.json."""
        return (place / CONFIG).is_file()

    def open(self, place: Place) -> Stored:
        """The base's tensors, those that the adapter changes computed."""
        from trajsoup.store.checkpoint import open_checkpoint  # which knows all formats, this one among them
        from trajsoup.store.formats import require_format

        if not self.recognises(place):
            raise CheckpointError(
                f"{place} has no {CONFIG}, and --lora merge takes adapters only: leave it out, or use a method whose soup "
                "has no share of the fork point"
            )
        config = load_json(place / CONFIG)
        _require_mergeable(config, where=str(place))
        adapter, base = require_format(place).open(place), open_checkpoint(self.base)
        changed = _merged(adapter, base, config, where=str(place))
        return Stored(
            files=(*base.files, *adapter.files),
            sizes=(*base.sizes, *adapter.sizes),
            tensors={name: changed.get(name, tensor) for name, tensor in base.tensors.items()},
            folder=base.folder,
            metadata=base.metadata,
        )


def base_of(adapter: Place) -> str:
    """Where the base model of an adapter is, as its config says."""
    if not (adapter / CONFIG).is_file():
        raise CheckpointError(f"{adapter} has no {CONFIG}: --lora merge takes adapter folders of PEFT")
    named = load_json(adapter / CONFIG).get("base_model_name_or_path")
    if not isinstance(named, str) or not named or not place(named).is_dir():
        raise CheckpointError(
            f"{adapter} is an adapter of {named!r}, which is no folder here: name the base model's with --fork-point"
        )
    return absolute(named)


def _require_mergeable(config: Mapping[str, Any], *, where: str) -> None:
    if config.get("peft_type") != "LORA":
        raise CheckpointError(
            f"{where} is an adapter of the type {config.get('peft_type')!r}: only LORA is merged here. Merge it "
            "into its base with PEFT (merge_and_unload), then merge the models"
        )
    for field, why in _REFUSED.items():
        if config.get(field):
            raise CheckpointError(
                f"{where} has {field} in its {CONFIG}: {why}, so it is no sum that can be merged here. Merge it into its "
                "base with PEFT (merge_and_unload), then merge the models"
            )
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.startswith(_CHANGED_BASE):
        raise CheckpointError(
            f"{where} was initialised by {start}, which changes the base model: convert it to a plain LoRA with PEFT "
            "(save_pretrained with path_initial_model_for_weight_conversion), or merge it there"
        )


def _merged(adapter: Stored, base: Stored, config: Mapping[str, Any], *, where: str) -> dict[str, Tensor]:
    """The tensors of the base that an adapter changes."""
    factors: dict[str, dict[str, Part]] = {}
    found: dict[str, Tensor] = {}
    embeddings: set[str] = set()
    for name, stored in adapter.tensors.items():
        if len(stored.boxes) != 1 or stored.boxes[0].codec is not None or stored.dtype not in FLOATS - {"F64"}:
            raise CheckpointError(
                f"{where}: tensor {name!r} of {stored.dtype} cannot be merged: save it as safetensors"
            )
        (box,) = stored.boxes
        shifted = box._replace(file=box.file + len(base.files))
        plain = name.removeprefix(_PREFIX).replace(".modules_to_save.", ".").replace(".base_layer.", ".")
        match = _FACTOR.fullmatch(plain)
        if match is not None:
            factors.setdefault(match["module"], {})[match["side"]] = Part(stored.dtype, shifted)
            embeddings |= {match["module"]} if match["embedding"] else set()
        elif plain not in base.tensors or base.tensors[plain].shape != stored.shape:
            raise CheckpointError(
                f"{where}: tensor {name!r} of shape {list(stored.shape)} is no tensor of the base: is --fork-point the model "
                "that the adapter was trained on?"
            )
        else:  # modules_to_save: a whole tensor in the base's place
            found[plain] = stored._replace(boxes=(shifted,))
    for module, sides in factors.items():
        weight = f"{module}.weight"
        if weight not in base.tensors or set(sides) != {"A", "B"}:
            what = "lacks A or B" if weight in base.tensors else "is not in the base"
            raise CheckpointError(f"{where}: module {module!r} {what}: is --fork-point the model it was trained on?")
        scaling = _scaling(module, sides["A"].box.shape, config, where=where)
        transposed = module in embeddings or bool(config.get("fan_in_fan_out"))
        found[weight] = _updated(weight, base.tensors[weight], sides, scaling, transposed, where=where)
    return found


def _updated(
    name: str, tensor: Tensor, sides: Mapping[str, Part], scaling: float, transposed: bool, *, where: str
) -> Tensor:
    a, b = sides["A"], sides["B"]
    thin = len(a.box.shape) == len(b.box.shape) == 2 and a.box.shape[0] == b.box.shape[1]
    wanted = (b.box.shape[0], a.box.shape[-1]) if thin else ()
    if thin and tensor.shape != wanted[:: -1 if transposed else 1]:
        transposed = not transposed  # PEFT corrects a wrong fan_in_fan_out too
    if not thin or tensor.shape != wanted[:: -1 if transposed else 1]:
        raise CheckpointError(
            f"{where}: A {list(a.box.shape)} and B {list(b.box.shape)} do not fit {name!r} {list(tensor.shape)}: is "
            "--fork-point the model that the adapter was trained on?"
        )
    if len(tensor.boxes) != 1 or tensor.boxes[0].codec or tensor.made or tensor.dtype not in FLOATS - {"F64"}:
        raise CheckpointError(
            f"{where}: {name!r} of the base is {tensor.dtype} or lies in pieces: save it as bf16 safetensors"
        )
    made = Update(Part(tensor.dtype, tensor.boxes[0]), a, b, scaling, transposed)
    return Tensor("F32", tensor.shape, tensor.boxes, made=made)


def _scaling(module: str, shape: tuple[int, ...], config: Mapping[str, Any], *, where: str) -> float:
    """alpha / r, or alpha / sqrt(r) (rsLoRA), with the alpha of this module."""
    listed = config.get("alpha_pattern") or {}
    keys = [key for key in listed if re.match(rf"(.*\.)?({key})$", module)] if isinstance(listed, dict) else []
    alpha = listed[keys[0]] if keys else config.get("lora_alpha")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha) or not shape or not shape[0]:
        raise CheckpointError(f"{where}: lora_alpha of {module!r} is {alpha!r}: mend {CONFIG}")
    return alpha / (math.sqrt(shape[0]) if config.get("use_rslora") else shape[0])
