"""The gradient of a row's loss with respect to its weights: one backward pass, then C inner products, streamed.

    row -> blended into the live model -> loss of one batch -> gradient g (as large as the model) -> <g, theta_c> for all c

Beside the model there is its gradient, and where a checkpoint's tensor is a strided part of a parameter a copy of that
part of the gradient: never a stack of checkpoints. So memory beyond one model is at most two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.methods.asking import Descend, Slope
from trajsoup.core.splits import Split
from trajsoup.core.tensor_groups import PARTS
from trajsoup.engine.slopes import inner_products
from trajsoup.engine.workers import Options
from trajsoup.errors import UnansweredError
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.live import load_model, stream_rows
from trajsoup.lm.placement import Placement, find_placement
from trajsoup.lm.validate import Batch, ValidationSettings, batches, logit_reader, require_fits, require_predictable
from trajsoup.store.checkpoint import Checkpoint

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = 4096
BUFFER_SHARE = 4  # of a model's bytes: what the reads of one step may hold
LEAST_BUFFER = 1 << 20
SEED = 0  # of the order of the batches


@dataclass(kw_only=True)
class Slopes:
    """Answers `Descend`. The model is loaded with the first question."""

    checkpoints: Mapping[str, Checkpoint]
    source: Checkpoint  # what the live model is built from
    tokens: Mapping[Split, TokenSet]  # validation, and training documents where there are any
    window: int
    options: Options | None = None
    progress: Callable[[int], None] = lambda answered: None
    _model: Any = None
    _known: dict[tuple[Any, ...], Slope] = field(default_factory=dict[tuple[Any, ...], Slope])
    _batches: dict[Split, list[Batch]] = field(default_factory=dict[Split, list[Batch]])

    def __call__(self, request: Descend) -> Slope:
        """One batch, forward and backward. The same question is answered once."""
        asked = (request.option.name, request.keys, request.batch, request.on, request.parts)
        if asked not in self._known:
            self._known[asked] = self._answer(request)
            self.progress(len(self._known))
        return self._known[asked]

    def _answer(self, request: Descend) -> Slope:
        if request.on not in self.tokens:
            raise UnansweredError(
                f"a method asks for gradients on {request.on.value} documents, and there are none here"
            )
        if self._model is None:
            self._model = load_model(self.source)
        model, batch = self._model, self._batch(request)
        options = replace(self.options or Options(), buffer_bytes=max(self.source.nbytes // BUFFER_SHARE, LEAST_BUFFER))
        used = {key: self.checkpoints[key] for key in request.keys}
        next(stream_rows(model, self.checkpoints, [request.option.row], memory_bytes=1, options=options))
        loss = backward(model, batch)
        flat = _flat_gradients(model, find_placement(model, list(self.source.tensors)))
        along = inner_products(
            used,
            lambda name, first, last: flat[name][first:last],
            names=list(flat),
            groups=None if request.parts is None else PARTS[request.parts],
            options=options,
        )
        return Slope(loss=loss, tokens=int(batch.lengths.sum()), along=along)

    def _batch(self, request: Descend) -> Batch:
        """Batches in an order of their own for every epoch, the same for the same number."""
        if request.on not in self._batches:
            self._batches[request.on] = whole_batches(self._model, self.tokens[request.on], window=self.window)
        return shuffled(self._batches[request.on], request.batch)


def whole_batches(model: Any, tokens: TokenSet, *, window: int) -> list[Batch]:
    """All documents, in batches that one gradient is taken of."""
    settings = ValidationSettings(window=window, batch_tokens=BATCH_TOKENS)
    require_predictable(tokens, count=tokens.n_documents)
    require_fits(model, tokens, settings=settings)
    return list(batches(tokens, count=tokens.n_documents, settings=settings))


def shuffled(found: Sequence[Batch], number: int) -> Batch:
    """One of the batches, which come in an order of their own in every epoch."""
    epoch, place = divmod(number, len(found))
    return found[np.random.default_rng([SEED, epoch]).permutation(len(found))[place]]


def backward(model: Any, batch: Batch) -> float:
    """Leave the gradient of the batch's mean loss in the parameters."""
    import torch
    from torch.nn.functional import cross_entropy

    model.zero_grad(set_to_none=True)  # the gradient of the step before goes first: there is one at a time
    wanted = torch.from_numpy(batch.targets).view(-1)
    inside = torch.from_numpy(np.arange(batch.targets.shape[1]) < batch.lengths[:, None]).view(-1)
    total = torch.zeros(())
    for start, part in logit_reader(model)(batch.inputs):
        here = slice(start, start + len(part))
        losses = cross_entropy(part, wanted[here].to(part.device), reduction="none")
        total = total + (losses * inside[here].to(part.device)).sum()
    loss = total / int(batch.lengths.sum())
    loss.backward()
    return float(loss.detach())


def _flat_gradients(model: Any, placement: Placement) -> dict[str, NDArray[np.float32]]:
    """The gradient of every tensor of a checkpoint as one run of numbers; what two names share counts once."""
    owners: dict[int, torch.Tensor] = {p.untyped_storage().data_ptr(): p for p in model.parameters()}
    found: dict[str, NDArray[np.float32]] = {}
    seen: set[tuple[Any, ...]] = set()
    for name, view in placement.views.items():
        parameter = owners.get(view.untyped_storage().data_ptr())
        place = (view.data_ptr(), tuple(view.shape), view.stride())
        if parameter is None or parameter.grad is None or place in seen:
            continue
        seen.add(place)
        offset = view.storage_offset() - parameter.storage_offset()
        gradient = parameter.grad.contiguous().as_strided(view.shape, view.stride(), offset)
        found[name] = gradient.reshape(-1).cpu().numpy()
    return found
