"""The Gram matrix of displacements: all that geometry needs to know of the weights.

    one pass (engine/gram.py) -> Gram -> combined with rows of W -> geometry.py

With x0 the centre (the fork point, or the mean), G = (X - x0)(X - x0)^T holds the inner products of all displacements.
The inner products with the centre itself come along, so that raw weights are recoverable too:
<x_i, x_j> = |x0|^2 + <d_i, x0> + <d_j, x0> + <d_i, d_j>.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.soup import Row
from trajsoup.errors import GeometryError

WHOLE = "all"  # the group of every floating tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonfinite:
    """A tensor that holds NaN or Inf."""

    key: str
    file: str
    tensor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Products:
    """Inner products over the elements of one group of tensors. d_i = x_i - x0."""

    inner: NDArray[np.float64]  # M x M: <d_i, d_j>
    along_centre: NDArray[np.float64]  # M: <d_i, x0>
    centre_square: float  # |x0|^2
    elements: int

    def raw(self) -> NDArray[np.float64]:
        """<x_i, x_j>: the inner products of the weights themselves."""
        return self.centre_square + self.along_centre[:, None] + self.along_centre[None, :] + self.inner


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gram:
    """The Gram matrix of checkpoints, whole and by group of tensors. Rows are in the order of `keys`."""

    keys: tuple[str, ...]
    centre: str | None  # the key of the fork point, whose row is zero; None: no row of these (then it is their mean)
    groups: Mapping[str, Products]  # `WHOLE` is always there
    nonfinite: tuple[Nonfinite, ...] = ()  # a checkpoint counts as equal to the centre where it is not finite

    @property
    def whole(self) -> Products:
        """The products over every floating tensor."""
        return self.groups[WHOLE]

    def group(self, name: str) -> Products:
        """The products over one group."""
        if name not in self.groups:
            raise GeometryError(f"there is no tensor group {name!r}: choose one of {', '.join(self.groups)}")
        return self.groups[name]

    def position(self, key: str) -> int:
        """The row of a checkpoint."""
        try:
            return self.keys.index(key)
        except ValueError:
            raise GeometryError(
                f"checkpoint {key} is not in the Gram matrix ({len(self.keys)} checkpoints): add it first"
            ) from None

    def bad_keys(self) -> frozenset[str]:
        """Checkpoints with NaN or Inf somewhere: their distances count only what is finite."""
        return frozenset(found.key for found in self.nonfinite)


def subset(gram: Gram, keys: Sequence[str]) -> Gram:
    """The same matrix with only these checkpoints, in this order. The centre stays where it was."""
    at = [gram.position(key) for key in keys]
    return Gram(
        keys=tuple(keys),
        centre=gram.centre if gram.centre in keys else None,
        groups={
            name: Products(
                inner=products.inner[np.ix_(at, at)],
                along_centre=products.along_centre[at],
                centre_square=products.centre_square,
                elements=products.elements,
            )
            for name, products in gram.groups.items()
        },
        nonfinite=tuple(found for found in gram.nonfinite if found.key in keys),
    )


def weights_matrix(gram: Gram, rows: Sequence[Row], *, part: str | None = None) -> NDArray[np.float64]:
    """W: one line per row, one column per checkpoint of the Gram matrix; for rows by group of tensors, W of one part."""
    matrix = np.zeros((len(rows), len(gram.keys)))
    for i, row in enumerate(rows):
        if row.groups and part is None:
            raise GeometryError(f"soup {row.name!r} has weights by group of tensors: it is no single point of W")
        for key, weight in (row.groups or {}).get(part or "", row.weights).items():
            matrix[i, gram.position(key)] = weight
    return matrix


def combined(gram: Gram, rows: Sequence[Row]) -> Gram:
    """The Gram matrix W G W^T of soups: from here on a soup is a checkpoint like any other. No weight is read.

    A row whose weights sum to s lies at x0 + sum_c w_c d_c + (s - 1) x0, so one that scales the model is exact too.
    """
    if any(row.groups for row in rows):
        groups = _by_part(gram, rows)
    else:
        w = weights_matrix(gram, rows)
        groups = {name: _combined(products, w) for name, products in gram.groups.items()}
    bad = gram.bad_keys()
    touched = [(row.name, key) for row in rows for key in row.weights if key in bad]
    return Gram(
        keys=tuple(row.name for row in rows),
        centre=None,
        groups=groups,
        nonfinite=tuple(
            Nonfinite(key=name, file=found.file, tensor=found.tensor)
            for name, key in touched
            for found in gram.nonfinite
            if found.key == key
        ),
    )


def _by_part(gram: Gram, rows: Sequence[Row]) -> dict[str, Products]:
    """Soups by group of tensors: every part with its own W, and the whole as their sum. The parts must make up the whole."""
    parts = {name: products for name, products in gram.groups.items() if name != WHOLE}
    missing = [name for row in rows for name in row.groups or {} if name not in parts]
    if missing or sum(products.elements for products in parts.values()) != gram.whole.elements:
        raise GeometryError(
            "soups with weights by group of tensors need a Gram matrix by those groups, which make up the whole"
            + (f", and this one has no {missing[0]!r}" if missing else "")
            + ": compute it with `groups=` of the same parts"
        )
    found = {name: _combined(products, weights_matrix(gram, rows, part=name)) for name, products in parts.items()}
    whole = Products(
        inner=np.array([products.inner for products in found.values()]).sum(axis=0),
        along_centre=np.array([products.along_centre for products in found.values()]).sum(axis=0),
        centre_square=gram.whole.centre_square,
        elements=gram.whole.elements,
    )
    return {WHOLE: whole, **found}


def _combined(products: Products, w: NDArray[np.float64]) -> Products:
    extra = w.sum(axis=1) - 1
    along = w @ products.along_centre
    square = products.centre_square
    mixed = along[:, None] * extra
    return Products(
        inner=w @ products.inner @ w.T + mixed + mixed.T + extra[:, None] * extra * square,
        along_centre=along + extra * square,
        centre_square=square,
        elements=products.elements,
    )
