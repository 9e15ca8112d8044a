"""A Gram matrix as a record: plain JSON that comes back bit for bit.

The keys of a kept matrix should be content hashes of the checkpoints, so that a renamed folder is still known and a
checkpoint that changed is not. `named` goes from hashes to the names a study uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trajsoup.core.gram import Gram, Nonfinite, Products, subset
from trajsoup.errors import GeometryError

FORMAT = "trajsoup-gram-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductsRecord:
    """The products of one group of tensors; of the symmetric ones only the lower triangle."""

    elements: int
    centre_square: float
    along_centre: list[float]
    inner: list[list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GramRecord:
    """A Gram matrix as JSON values."""

    format: str = FORMAT
    keys: tuple[str, ...]
    centre: str | None
    groups: Mapping[str, ProductsRecord]
    nonfinite: tuple[Nonfinite, ...]


def record_of(gram: Gram) -> GramRecord:
    """The matrix as a record."""
    return GramRecord(
        keys=gram.keys,
        centre=gram.centre,
        groups={
            name: ProductsRecord(
                elements=products.elements,
                centre_square=products.centre_square,
                along_centre=products.along_centre.tolist(),
                inner=[products.inner[i, : i + 1].tolist() for i in range(len(gram.keys))],
            )
            for name, products in gram.groups.items()
        },
        nonfinite=gram.nonfinite,
    )


def gram_of(record: GramRecord) -> Gram:
    """The matrix of a record; one of another format or size is refused."""
    if record.format != FORMAT:
        raise GeometryError(f"the record has the format {record.format!r}, not {FORMAT!r}: compute it anew")
    groups = {name: _products(entry, len(record.keys)) for name, entry in record.groups.items()}
    return Gram(keys=record.keys, centre=record.centre, groups=groups, nonfinite=record.nonfinite)


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


def _products(entry: ProductsRecord, size: int) -> Products:
    inner, along, lines = np.zeros((size, size)), np.asarray(entry.along_centre, np.float64), entry.inner
    if len(lines) != size or along.shape != (size,) or any(len(line) != i + 1 for i, line in enumerate(lines)):
        raise GeometryError(
            f"the Gram record is damaged (products of {len(lines)} checkpoints for {size} keys): delete it, and it is "
            "computed anew"
        )
    for i, line in enumerate(lines):
        inner[i, : i + 1] = inner[: i + 1, i] = line
    return Products(inner=inner, along_centre=along, centre_square=entry.centre_square, elements=entry.elements)
