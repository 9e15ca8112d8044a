"""Which entries of a training checkpoint are the model's weights, and under which names.

A trainer saves a nest of dicts: {"model": {...}, "optimizer": {...}, "step": 3}. An entry is known by its path in it. What
lies under a trainer's own words is state and left out; of the rest, the dict that holds the model is taken off the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trajsoup.errors import CheckpointError

STATE = frozenset(
    {
        *("optim", "optims", "optimizer", "optimizers", "optimizer_state", "optimizer_states", "optimizer_state_dict"),
        *(
            "optim_state",
            "opt_state",
            "lr_scheduler",
            "lr_schedulers",
            "lr_scheduler_state_dict",
            "scheduler",
            "schedulers",
        ),
        *("opt_param_scheduler", "train_state", "trainer_state", "trainer", "dataloader", "data_loader", "dataloaders"),
        *(
            "sampler",
            "rng",
            "rng_state",
            "rng_states",
            "random_states",
            "cuda_rng_state",
            "scaler",
            "grad_scaler",
            "amp",
        ),
        *("callbacks", "loops", "hyper_parameters", "rerun_state_machine_state", "common_state", "args", "config"),
    }
)
MODEL = frozenset({"model", "module", "state_dict", "model_state_dict", "model_state", "weights", "params", "net"})
MAX_DEPTH = 12
MAX_ENTRIES = 5_000_000
_CHAINED = re.compile(r"chained_\d+")  # one of several optimizers of Megatron

Path = tuple[Any, ...]  # keys, from the outermost dict to the entry


def entries(tree: Any) -> Iterable[tuple[Path, Any]]:
    """Every entry of a nest of dicts and lists. What shares parts may be endless: depth and number are bounded."""
    pending: list[tuple[Path, Any]] = [((), tree)]
    met = 0
    while pending:
        path, value = pending.pop()
        met += 1
        if met > MAX_ENTRIES or len(path) > MAX_DEPTH:
            raise CheckpointError("its nest of dicts is deeper or larger than any checkpoint's: it is refused")
        if isinstance(value, dict):
            pending += [((*path, key), inner) for key, inner in reversed(value.items())]
        elif isinstance(value, list | tuple) and path:
            pending += [((*path, number), inner) for number, inner in reversed(list(enumerate(value)))]
        else:
            yield path, value


def is_state(path: Path) -> bool:
    """Whether an entry is the trainer's own: of an optimizer, a scheduler, a random generator."""
    outer = [part for part in path[:-1] if isinstance(part, str)]
    dotted = str(path[-1]).split(".")[:-1] if len(path) == 1 else []
    words = [*outer, *dotted[:2]]
    return bool(words) and (bool(STATE & {*words}) or _CHAINED.fullmatch(words[0]) is not None)


def weight_names(found: Mapping[Path, bool]) -> tuple[dict[Path, str], list[Path]]:
    """Names of the weights by path, and the paths left out. `found` says of each tensor whether it could be a weight:
    floating, with an axis.

    One dict holds the model in all checkpoints we know, and its keys are the names. Where weights lie in several dicts
    nothing says which is meant: all are kept, under their whole paths.
    """
    ours = {path: weighty for path, weighty in found.items() if path and not is_state(path)}
    holders = {path[:-1] for path, weighty in ours.items() if weighty}
    if len(holders) == 1:
        (holder,) = holders
    else:
        named = [holder for holder in holders if holder and holder[-1] in MODEL]
        rest = [path for path, weighty in ours.items() if weighty and path[:-1] not in named]
        holder = named[0] if len(named) == 1 and not rest else None
    if holder is None:
        return {path: ".".join(map(str, path)) for path in ours}, [path for path in found if path not in ours]
    # beside the model's dict: step counters and the like. A model at the top has everything there.
    names = {path: ".".join(map(str, path[len(holder) :])) for path in ours if path[: len(holder)] == holder}
    return names, [path for path in found if path not in names]
