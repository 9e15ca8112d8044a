"""Which documents a branch reads where it does not read all of them: sources with shares (`sources` of a recipe).

    token set, sources -> the tokens of each source, one file each -> Portion -> MixedOrder: sequence number i

Within a block of sequences every source has its share exactly, in a seeded order; within a source the sequences come as a
branch on that source alone would read them. So sequence i is a pure function of (corpus, shares, seed), as without shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.recipe import Sources
from trajsoup.errors import StudyError
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.data_order import DataOrder, permuted
from trajsoup.lm.job import BranchJob, Portion, token_file
from trajsoup.lm.probe import subset

BLOCK = 256  # sequences; shares are true to one of them


def source_families(tokens: TokenSet) -> tuple[str, ...]:
    """The sources of a set that has documents of them; `tasks:a` and `tasks:b` are one."""
    if tokens.source is None:
        return ()
    there = [tokens.source_names[number] for number in np.unique(tokens.source)]
    return tuple(dict.fromkeys(name.partition(":")[0] for name in there))


def of_source(tokens: TokenSet, name: str) -> TokenSet:
    """The documents of one source; a name stands for all that go on with a colon, too."""
    names = tokens.source_names if tokens.source is not None else ()
    numbers = [i for i, known in enumerate(names) if known == name or known.startswith(f"{name}:")]
    chosen = np.flatnonzero(np.isin(tokens.source, numbers)) if numbers and tokens.source is not None else np.array([])
    if not len(chosen):
        known = ", ".join(source_families(tokens)) or "none: its documents say no source (corpus.source_field)"
        raise StudyError(
            f"the corpus has no training documents of the source {name!r}; it has {known}: correct the name"
        )
    return subset(tokens, chosen)


def portions(tokens: TokenSet, sources: Sources, *, folder: Path) -> tuple[Portion, ...]:
    """The tokens of each source, in a file of its own below `folder`."""
    found: list[Portion] = []
    for name, share in sources:
        part = of_source(tokens, name)
        path, array = folder / f"train-{part.digest[:12]}.tokens", part.tokens
        if path.is_file() and path.stat().st_size == array.nbytes:  # a branch may be reading it
            array = np.memmap(path, array.dtype, "r")
        found.append(Portion(source=name, share=share, tokens=token_file(array, digest=part.digest, spare=path)))
    return tuple(found)


def data_order(job: BranchJob) -> DataOrder | MixedOrder:
    """The sequences of a branch."""

    def plain(file: Portion | BranchJob) -> DataOrder:
        return DataOrder(
            tokens=file.tokens.open(),
            digest=file.tokens.digest,
            seed=job.recipe.seed,
            sequence_length=job.sequence_length,
        )

    if not job.mixture:
        return plain(job)
    return MixedOrder(
        orders=tuple(plain(portion) for portion in job.mixture),
        quotas=quotas([portion.share for portion in job.mixture]),
        seed=job.recipe.seed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedOrder:
    """The sequences of a branch that reads sources in shares."""

    orders: tuple[DataOrder, ...]
    quotas: tuple[int, ...]  # sequences of each in a block
    seed: int

    def batch(self, first: int, count: int) -> NDArray[np.int64]:
        """Return sequences first .. first + count - 1, counted since the fork point, as rows."""
        starts = np.cumsum([0, *self.quotas])
        rows: list[NDArray[np.int64]] = []
        for number in range(first, first + count):
            block, place = divmod(number, BLOCK)
            slot = int(permuted(np.array([place]), size=BLOCK, key=f"sources:{self.seed}:{block}".encode())[0])
            which = int(np.searchsorted(starts, slot, side="right")) - 1
            rows.append(self.orders[which].batch(block * self.quotas[which] + slot - int(starts[which]), 1)[0])
        return np.stack(rows)


def quotas(shares: Sequence[float]) -> tuple[int, ...]:
    """Whole numbers that sum to a block, as near to the shares as they come, none of them zero (largest remainders)."""
    exact = np.array(shares) * BLOCK
    whole = np.maximum(np.floor(exact).astype(int), 1)
    while whole.sum() != BLOCK:
        step = 1 if whole.sum() < BLOCK else -1
        gap = (exact - whole) * step
        gap[(whole <= 1) & (step < 0)] = -np.inf
        whole[int(np.argmax(gap))] += step
    return tuple(int(n) for n in whole)
