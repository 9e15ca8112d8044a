"""The `sweeps` field of a study file: which comparisons are made, and with what settings. study/sweeps has the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajsoup.core.quantity import parse_whole
from trajsoup.errors import StudyError
from trajsoup.store.confined import PLAIN
from trajsoup.store.yaml_file import check_keys
from trajsoup.study.sweeps.table import SWEEPS, Sweep


def _takers(setting: str) -> str:
    return ", ".join(kind.name for kind in SWEEPS.values() if setting in kind.settings)


SWEEP_FIELDS = {
    "kind": f"One of {', '.join(SWEEPS)}. Default: the sweep's own name.",
    "branches": f"{_takers('branches')}: the two branches. Default: the first two that are admitted; for "
    "allocation the first and the third, as in the paper.",
    "merge_size": f"{_takers('merge_size')}: checkpoints in the merge. Default: 16 and 12, or what the pools allow.",
}


DEFAULT = (Sweep(name="crossing", kind="crossing"),)  # what every study compares unless it says otherwise


def parse_sweeps(data: Any, *, where: object) -> tuple[Sweep, ...]:
    """Read `sweeps`: a list of names, `paper` for all of the paper, or name -> settings; `[]` for none."""
    if data is None:
        return DEFAULT
    if data == "paper":
        data = [name for name, kind in SWEEPS.items() if kind.default]
    if isinstance(data, list):
        data = {str(name): {} for name in data}
    if not isinstance(data, Mapping):
        raise StudyError(f"{where} is {data!r}: use `paper`, a list of names, or name -> settings")
    return tuple(_sweep(str(name), entry or {}, f"{where}: {name}") for name, entry in data.items())


def _sweep(name: str, data: Any, where: str) -> Sweep:
    if not PLAIN.fullmatch(name):
        raise StudyError(
            f"{where}: the name of a sweep is that of a file: use letters, digits, dots, dashes, underscores"
        )
    check_keys(data, tuple(SWEEP_FIELDS), where=where)
    kind = str(data.get("kind", name))
    if kind not in SWEEPS:
        raise StudyError(f"{where}: there is no comparison {kind!r}: use {', '.join(SWEEPS)}")
    if idle := [field for field in data if field not in ("kind", *SWEEPS[kind].settings)]:
        raise StudyError(f"{where}: {idle[0]} means nothing to {kind}: it belongs to {_takers(idle[0])}; leave it out")
    branches = data.get("branches") or ()
    if branches and len(branches) != 2:
        raise StudyError(f"{where}: branches are {branches!r}: name two")
    size = data.get("merge_size")
    return Sweep(
        name=name,
        kind=kind,
        branches=tuple(str(branch) for branch in branches),
        merge_size=None if size is None else parse_whole(size, where=f"{where}: merge_size"),
    )
