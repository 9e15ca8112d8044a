"""Sequences that begin alike are read once: options of one item share its prompt, items of one document its text.

    sequences -> sorted, so that neighbours share their beginnings -> trees of tokens -> forests of about one size

A node is one input token; it sees its ancestors and itself, and its position is its depth. So the logits at a node are
those that the sequence alone would have, and the sequences of a suite cost about a fifth of the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FOREST_TOKENS = 256  # of one forest, unless one sequence is longer: attention is quadratic in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Trees of input tokens, parents before their children."""

    tokens: NDArray[np.int64]
    parent: NDArray[np.int64]  # a root is its own
    depth: NDArray[np.int64]  # 0 at a root

    def sees(self) -> NDArray[np.bool_]:
        """By node: which nodes it attends to, its ancestors and itself."""
        found = np.eye(len(self.tokens), dtype=np.bool_)
        for node, parent in enumerate(self.parent):
            found[node] |= found[parent]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """All sequences: the forests that hold them, and where each of them runs."""

    forests: tuple[Forest, ...]
    forest_of: NDArray[np.int64]  # by sequence
    paths: tuple[NDArray[np.int64], ...]  # by sequence: the nodes of its inputs, all its tokens but the last


def planted(sequences: Sequence[Sequence[int]], *, shared: bool = True) -> Planted:
    """Lay the sequences out as forests; not `shared`, each by itself, for models that read nothing but a line."""
    forests: list[Forest] = []
    forest_of = np.zeros(len(sequences), np.int64)
    paths: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(sequences)
    known: dict[tuple[int, int], int] = {}  # (parent, token) -> node; -1 above the roots
    parents: list[int] = []

    def finish() -> None:
        if not known:
            return
        parent, depth = np.array(parents), np.zeros(len(parents), np.int64)
        for node, above in enumerate(parents):
            depth[node] = depth[above] + 1 if above != node else 0
        tokens = np.array([token for _, token in known])
        forests.append(Forest(tokens=tokens, parent=parent, depth=depth))
        known.clear()
        parents.clear()

    for number in sorted(range(len(sequences)), key=lambda number: tuple(sequences[number])):
        inputs = sequences[number][:-1]
        if known and (not shared or len(known) + _new(inputs, known) > FOREST_TOKENS):
            finish()
        path: list[int] = []
        above = -1
        for token in inputs:
            node = known.setdefault((above, token), len(known))
            if node == len(parents):
                parents.append(node if above < 0 else above)
            path.append(node)
            above = node
        forest_of[number], paths[number] = len(forests), np.array(path)
    finish()
    return Planted(forests=tuple(forests), forest_of=forest_of, paths=tuple(paths))


def side_by_side(forests: Sequence[Forest]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """A batch of forests: tokens, positions, and what each sees. Padding sees itself alone."""
    width = max(len(forest.tokens) for forest in forests)
    tokens, positions = (np.zeros((len(forests), width), np.int64) for _ in range(2))
    sees = np.broadcast_to(np.eye(width, dtype=np.bool_), (len(forests), width, width)).copy()
    for i, forest in enumerate(forests):
        size = len(forest.tokens)
        tokens[i, :size], positions[i, :size], sees[i, :size, :size] = forest.tokens, forest.depth, forest.sees()
    return tokens, positions, sees


def _new(inputs: Sequence[int], known: dict[tuple[int, int], int]) -> int:
    """How many nodes a sequence would add."""
    above = -1
    for position, token in enumerate(inputs):
        if (above, token) not in known:
            return len(inputs) - position
        above = known[above, token]
    return 0
