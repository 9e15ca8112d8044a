"""The `sweeps` field of a study file: which comparisons of the paper are made, and with what settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trajsoup.core.quantity import parse_whole
from trajsoup.errors import StudyError
from trajsoup.store.yaml_file import check_keys


class SweepKind(StrEnum):
    """The comparisons of the paper."""

    HORIZONS = "horizons"  # fig:traj-soup-performance-curves
    COEFFICIENTS = "coefficients"  # tab:tiny-coefficient-selection-ablation
    SELECTIONS = "selections"  # tab:tiny-coefficient-selection-ablation
    ALLOCATION = "allocation"  # fig:traj-soup-asym-allocation
    SAMPLING = "sampling"  # fig:traj-soup-sample-ablation
    SCALING = "scaling"  # fig:traj-soup-trajectory-scaling
    INTERPOLATION = "interpolation"  # eq:interpolation
    FRONTIER = "frontier"  # fig:trajectory-soup-compute-allocation


SWEEP_FIELDS = {
    "kind": f"One of {', '.join(SweepKind)}. Default: the sweep's own name.",
    "branches": "allocation, sampling, interpolation: the two branches. Default: the first two that are admitted; for "
    "allocation the first and the third, as in the paper.",
    "merge_size": "allocation, sampling: checkpoints in the merge. Default: 16 and 12, or what the pools allow.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One named comparison, as the study file declares it."""

    name: str
    kind: SweepKind
    branches: tuple[str, ...] = ()
    merge_size: int | None = None


def parse_sweeps(data: Any, *, where: object) -> tuple[Sweep, ...]:
    """Read `sweeps`: a list of preset names, `paper` for all of them, or name -> settings."""
    if data is None:
        return ()
    if data == "paper":
        data = [kind.value for kind in SweepKind]
    if isinstance(data, list):
        data = {str(name): {} for name in data}
    if not isinstance(data, Mapping):
        raise StudyError(f"{where} is {data!r}: use `paper`, a list of names, or name -> settings")
    return tuple(_sweep(str(name), entry or {}, f"{where}: {name}") for name, entry in data.items())


def _sweep(name: str, data: Any, where: str) -> Sweep:
    check_keys(data, tuple(SWEEP_FIELDS), where=where)
    kind = str(data.get("kind", name))
    if kind not in tuple(SweepKind):
        raise StudyError(f"{where}: there is no comparison {kind!r}: use {', '.join(SweepKind)}")
    branches = data.get("branches") or ()
    if branches and len(branches) != 2:
        raise StudyError(f"{where}: branches are {branches!r}: name two")
    size = data.get("merge_size")
    return Sweep(
        name=name,
        kind=SweepKind(kind),
        branches=tuple(str(branch) for branch in branches),
        merge_size=None if size is None else parse_whole(size, where=f"{where}: merge_size"),
    )
