"""A soup as the world may see it: its record without the paths of the machine that made it.

    soup.json, config.json -> published -> what goes to the Hub instead, and where "." was

Ingredients are named below the folder that they have in common, so a run and a step still tell them apart, and `verify
--relocate .=THAT_FOLDER` finds them again. The new names sort as the old ones did, since the order of names is that of sums.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

from trajsoup.merge.provenance import RECORD
from trajsoup.store.hub import push_folder
from trajsoup.store.json_file import json_text, load_json
from trajsoup.store.remote import is_url

CONFIG = "config.json"
FROM = "_name_or_path"  # of config.json: where the model was loaded from
FEW_PARTS = 3  # of a folder: /home, the user, and what lies below; one with fewer tells who or where somebody is


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Files whose content on the Hub is another, and where the ingredients lie on this machine."""

    files: Mapping[str, bytes]
    places: Mapping[str, str]  # beginning of a published name -> the same on this machine


def push_soup(folder: Path, repository: str, *, private: bool = False, update: bool = False) -> tuple[str, Published]:
    """Put a soup on the Hub; return its address, and what was named otherwise."""
    shown = published(folder)
    return push_folder(folder, repository, private=private, update=update, instead=shown.files), shown


def published(folder: Path) -> Published:
    """What a soup's folder says of this machine, said without it."""
    record = copy.deepcopy(load_json(folder / RECORD))
    files: dict[str, bytes] = {}
    config = load_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if _is_local(config.get(FROM)):
        files[CONFIG] = (json.dumps({**config, FROM: _name(config[FROM])}, indent=2) + "\n").encode()
        if record["output"]["side_files"].get(CONFIG) is not None:
            record["output"]["side_files"][CONFIG] = hashlib.sha256(files[CONFIG]).hexdigest()
    local = sorted({i["path"] for i in record["ingredients"] if _is_local(i["path"])})
    names, places = _names(local)
    others: list[Any] = [record.get("template"), record.get("lora_base"), record["output"].get("optimizer_state")]
    for text in others:
        if _is_local(text) and text not in names:
            names[text] = _name(text)
            places.setdefault(names[text], text)
    _replace(record, names)
    files[RECORD] = (json_text(record) + "\n").encode()
    return Published(files=files, places=places)


def _names(paths: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Names for ingredients of this machine, in the same order, and where the beginnings of these names lie."""
    if not paths:
        return {}, {}
    common = os.path.commonpath([os.path.dirname(path) for path in paths])
    if len(Path(common).parts) >= FEW_PARTS:
        return {path: f"./{PurePosixPath(os.path.relpath(path, common))}" for path in paths}, {".": common}
    digits = len(str(len(paths)))
    names = {path: f"./{number:0{digits}}/{'/'.join(Path(path).parts[-2:])}" for number, path in enumerate(paths, 1)}
    return names, {name: path for path, name in names.items()}


def _name(path: str) -> str:
    return f"./{Path(path).name}"


def _is_local(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and os.path.isabs(text) and not is_url(text)


def _replace(record: dict[str, Any], names: Mapping[str, str]) -> None:
    """Rename in place, wherever soup.json names a checkpoint."""
    for ingredient in record["ingredients"]:
        ingredient["path"] = names.get(ingredient["path"], ingredient["path"])
    fields = [(record, field) for field in ("template", "lora_base", "exact_from")]
    for holder, field in (*fields, (record["output"], "optimizer_state")):
        if holder.get(field) in names:
            holder[field] = names[holder[field]]
    if record.get("groups"):
        record["groups"] = {
            g: {names.get(key, key): w for key, w in row.items()} for g, row in record["groups"].items()
        }
