"""Where each tensor of a checkpoint lives in a live model.

transformers renames and fuses tensors on loading (the experts of a mixture become one tensor per layer). How, it knows
itself: it undoes it on saving. So each parameter's element numbers are sent through that undoing, and what comes out
under a checkpoint's name says where its elements are. Every place found is a strided view of a parameter; writing to it
writes to the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trajsoup.errors import ScoreError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Views of a model's parameters and buffers by the names of a checkpoint."""

    views: Mapping[str, torch.Tensor]
    tensors: Sequence[torch.Tensor]  # the parameters and buffers that these are views of

    def copy(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write tensors into the model; those it has no use for are passed over."""
        import torch

        with torch.no_grad():
            for name, tensor in tensors.items():
                if name in self.views:
                    self.views[name].copy_(tensor)


def find_placement(model: Any, names: Sequence[str]) -> Placement:
    """Find every tensor of a checkpoint in the model. Refuses a checkpoint that would leave a parameter as it was."""
    kept = model.state_dict(keep_vars=True)
    state = {name: tensor.detach() for name, tensor in kept.items()}
    wanted = set(names)
    views = {name: tensor for name, tensor in state.items() if name in wanted}
    if wanted - views.keys():
        for name, tensor in state.items():
            if name not in wanted:
                views |= {n: view for n, view in _parts(model, name, tensor).items() if n in wanted and n not in views}
    ignored = [re.compile(pattern) for pattern in getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()]
    strangers = [n for n in names if n not in views and not any(pattern.search(n) for pattern in ignored)]
    if strangers:
        raise ScoreError(
            f"the model {type(model).__name__} has no place for {len(strangers)} tensors of the checkpoint "
            f"({strangers[0]!r}, ...): score it with the model class that wrote it"
        )
    covered: dict[int, int] = {}
    for view in views.values():
        covered[view.untyped_storage().data_ptr()] = covered.get(view.untyped_storage().data_ptr(), 0) + view.numel()
    for name, tensor in state.items():
        if covered.get(tensor.untyped_storage().data_ptr(), 0) < tensor.numel():
            raise ScoreError(
                f"the checkpoint does not set {name!r} of the model {type(model).__name__}: its weights would be left "
                "over from another checkpoint; score it with the model class that wrote it"
            )
    return Placement(views=views, tensors=list({id(tensor): tensor for tensor in kept.values()}.values()))


def _parts(model: Any, name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The tensors of the saved format that one parameter holds, as views of it."""
    import torch
    from transformers.core_model_loading import revert_weight_conversion

    kind = torch.int32 if tensor.numel() < 1 << 31 else torch.int64
    numbers = torch.arange(tensor.numel(), dtype=kind).view(tensor.shape)
    found: dict[str, torch.Tensor] = {}
    for saved_name, places in revert_weight_conversion(model, {name: numbers}).items():
        flat = places.reshape(-1)
        first = int(flat[0]) if len(flat) else 0
        strides = [
            int(places.select(d, 1).reshape(-1)[0]) - first if size > 1 else 1 for d, size in enumerate(places.shape)
        ]
        if min(strides, default=0) >= 0 and torch.equal(numbers.as_strided(places.shape, strides, first), places):
            found[saved_name] = tensor.as_strided(places.shape, strides, tensor.storage_offset() + first)
    return found
