"""A soup file: checkpoints and weights in YAML, for people who know exactly what they want.

fork_point: base              # optional: layout and side files come from here
normalize: false              # optional: divide the weights by their sum
ingredients:
  - {path: runs/a/checkpoint-100, weight: 0.5}
  - {path: s3://bucket/b/checkpoint-100, weight: 0.5}    # no weights at all: a plain mean
"""

from __future__ import annotations

from pathlib import Path

from trajsoup.core.soup import Row
from trajsoup.errors import StudyError
from trajsoup.merge.plan import explicit_row
from trajsoup.store.remote import Place, is_url, place
from trajsoup.store.yaml_file import check_keys, load_yaml


def is_soup_file(path: Path | str) -> bool:
    """Whether a YAML file lists ingredients (and is not a study)."""
    return "ingredients" in load_yaml(Path(path))


def load_soup_file(path: Path | str, *, normalize: bool = False) -> tuple[Row, Place | None]:
    """Return the row and the fork point, if it names one. Paths are relative to the file."""
    path = Path(path)
    data = load_yaml(path)
    check_keys(data, ("fork_point", "normalize", "ingredients"), where=str(path))
    listed = data.get("ingredients")
    if not isinstance(listed, list) or not listed:
        raise StudyError(f"{path}: lists no ingredients: add `- {{path: ..., weight: ...}}` lines")
    items = [{"path": item} if isinstance(item, str) else item for item in listed]
    for number, item in enumerate(items, start=1):
        check_keys(item, ("path", "weight"), where=f"{path}: ingredient {number}")
        if "path" not in item:
            raise StudyError(f"{path}: ingredient {number} has no path")
        weight = item.get("weight")
        if not isinstance(weight, int | float | None) or isinstance(weight, bool):
            raise StudyError(f"{path}: ingredient {number} has the weight {weight!r}, which is not a number")
    weighted = [item for item in items if item.get("weight") is not None]
    if weighted and len(weighted) < len(items):
        raise StudyError(
            f"{path}: {len(weighted)} of {len(items)} ingredients have a weight: give all of them one, or none"
        )
    share = 1 / len(items)
    pairs = [
        (str(_beside(path, item["path"])), share if item.get("weight") is None else float(item["weight"]))
        for item in items
    ]
    row = explicit_row(pairs, normalize=normalize or bool(data.get("normalize", False)))
    fork_point = _beside(path, data["fork_point"]) if data.get("fork_point") else None
    return row, fork_point


def _beside(path: Path, text: object) -> Place:
    return place(str(text)) if is_url(text) else path.parent / str(text)
