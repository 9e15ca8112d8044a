"""A soup file: checkpoints and weights in YAML, for people who know exactly what they want.

fork_point: base              # optional: layout and side files come from here
normalize: false              # optional: divide the weights by their sum
ingredients:
  - {path: runs/a/checkpoint-100, weight: 0.5}
  - {path: s3://bucket/b/checkpoint-100, weight: 0.5}    # with --allow-url s3://bucket; no weights at all: a plain mean
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from trajsoup.core.quantity import Score
from trajsoup.core.soup import Row
from trajsoup.errors import StudyError
from trajsoup.merge.plan import explicit_row
from trajsoup.store.fields import At, PlaceBeside, read
from trajsoup.store.remote import Place, require_allowed
from trajsoup.store.yaml_file import load_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """One ingredient as the file lists it."""

    path: Annotated[PlaceBeside, "Folder or file of the checkpoint, or a URL."]
    weight: Annotated[Score | None, "Default: the same for all."] = None

    @staticmethod
    def spelled_out(value: Any) -> Any:
        """A path alone."""
        return {"path": value} if isinstance(value, str) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class SoupFile:
    """What a soup file says."""

    fork_point: Annotated[PlaceBeside | None, "Layout and side files come from here."] = None
    normalize: Annotated[bool, "Divide the weights by their sum."] = False
    ingredients: Annotated[tuple[Weighted, ...], "Add `- {path: ..., weight: ...}` lines."]

    def __post_init__(self) -> None:
        weighted = [item for item in self.ingredients if item.weight is not None]
        if not self.ingredients:
            raise StudyError("lists no ingredients: add `- {path: ..., weight: ...}` lines")
        if weighted and len(weighted) < len(self.ingredients):
            raise StudyError(
                f"{len(weighted)} of {len(self.ingredients)} ingredients have a weight: give all of them one, or none"
            )


def is_soup_file(path: Path | str) -> bool:
    """Whether a YAML file lists ingredients (and is not a study), in our words or in mergekit's."""
    data = load_yaml(Path(path))
    return "ingredients" in data or "merge_method" in data


def _from_mergekit(data: Mapping[str, Any], *, where: Path) -> dict[str, Any]:
    """What a linear merge of mergekit says, in our words. `dtype` is what it computes in there, and no field here."""
    method, models = data.get("merge_method"), data.get("models")
    if (
        method != "linear"
        or not isinstance(models, list)
        or not all(isinstance(m, dict) and "model" in m for m in models)
    ):
        raise StudyError(
            f"{where} is a file of mergekit with merge_method {method!r}: only `linear` with a list of `models` is an "
            "average of checkpoints; name the checkpoints themselves"
        )
    parameters = data.get("parameters") or {}
    normalize = bool(parameters.get("normalize", True)) if isinstance(parameters, dict) else True

    def weighted(model: dict[str, Any]) -> dict[str, Any]:
        weight = (model.get("parameters") or parameters or {}).get("weight", 1.0)
        return {"path": model["model"], "weight": weight}

    base = data.get("base_model")
    return {
        "ingredients": [weighted(m) for m in models],
        "normalize": normalize,
        **({} if base is None else {"fork_point": base}),
    }


def load_soup_file(
    path: Path | str, *, normalize: bool = False, allow_urls: Sequence[str] = ()
) -> tuple[Row, Place | None]:
    """Return the row and the fork point, if it names one. Paths are relative to the file; URLs must be below one of
    `allow_urls`."""
    path = Path(path)
    data = load_yaml(path)
    file = read(
        SoupFile, _from_mergekit(data, where=path) if "merge_method" in data else data, where=At(path, path.parent)
    )
    for named in (*(item.path for item in file.ingredients), file.fork_point):
        require_allowed(str(named), named_in=path, allowed=allow_urls)
    share = 1 / len(file.ingredients)
    pairs = [(str(item.path), share if item.weight is None else item.weight) for item in file.ingredients]
    return explicit_row(pairs, normalize=normalize or file.normalize), file.fork_point
