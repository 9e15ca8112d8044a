"""A Gram matrix as a record: plain JSON that comes back bit for bit.

The keys of a kept matrix should be content hashes of the checkpoints, so that a renamed folder is still known and a
checkpoint that changed is not. `named` goes from hashes to the names a study uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trajsoup.core.gram import Gram, Nonfinite, Products, subset
from trajsoup.errors import GeometryError

FORMAT = "trajsoup-gram-1"


def gram_to_json(gram: Gram) -> dict[str, Any]:
    """The matrix as JSON values; of the symmetric products only the lower triangle."""
    return {
        "format": FORMAT,
        "keys": list(gram.keys),
        "centre": gram.centre,
        "groups": {
            name: {
                "elements": products.elements,
                "centre_square": products.centre_square,
                "along_centre": products.along_centre.tolist(),
                "inner": [products.inner[i, : i + 1].tolist() for i in range(len(gram.keys))],
            }
            for name, products in gram.groups.items()
        },
        "nonfinite": [{"key": bad.key, "file": bad.file, "tensor": bad.tensor} for bad in gram.nonfinite],
    }


def gram_from_json(data: Mapping[str, Any]) -> Gram:
    """Read a record back, refusing one that is damaged or of another format."""
    if data.get("format") != FORMAT:
        raise GeometryError(f"the record has the format {data.get('format')!r}, not {FORMAT!r}: compute it anew")
    try:
        keys = tuple(str(key) for key in data["keys"])
        groups = {str(name): _products(entry, len(keys)) for name, entry in data["groups"].items()}
        bad = tuple(Nonfinite(key=b["key"], file=b["file"], tensor=b["tensor"]) for b in data["nonfinite"])
        return Gram(keys=keys, centre=data["centre"], groups=groups, nonfinite=bad)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GeometryError(f"the Gram record is damaged ({error!r}): delete it, and it is computed anew") from error


def named(gram: Gram, hashes: Mapping[str, str], *, centre: str | None) -> Gram:
    """The matrix under the names of a study, given the hash of every name. Two names of one content get equal rows."""
    found = subset(gram, list(hashes.values()))
    return replace(
        found,
        keys=tuple(hashes),
        centre=centre,
        nonfinite=tuple(
            replace(bad, key=name) for name, known in hashes.items() for bad in gram.nonfinite if bad.key == known
        ),
    )


def _products(entry: Mapping[str, Any], size: int) -> Products:
    inner, along = np.zeros((size, size)), np.asarray(entry["along_centre"], np.float64)
    lines = entry["inner"]
    if len(lines) != size or along.shape != (size,) or any(len(line) != i + 1 for i, line in enumerate(lines)):
        raise ValueError(f"products of {len(lines)} checkpoints for {size} keys")
    for i, line in enumerate(lines):
        inner[i, : i + 1] = inner[: i + 1, i] = line
    return Products(
        inner=inner, along_centre=along, centre_square=float(entry["centre_square"]), elements=int(entry["elements"])
    )
