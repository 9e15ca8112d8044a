"""A fixed probe of training documents: a training loss without the noise of a short window.

A loss logged during training is over the few batches of a window, different ones for every data order. The screen's gap
is a percent, often less than that noise. The same documents, scored for every branch, cancel it.
"""

from __future__ import annotations

import hashlib

import numpy as np

from trajsoup.errors import CorpusError
from trajsoup.lm.corpus import TokenSet


def probe_of(tokens: TokenSet, *, max_tokens: int, seed: int = 0) -> TokenSet:
    """Choose whole documents at random that hold about `max_tokens`; the same ones for the same set and seed.

    The last one may be long: it is taken only if that brings the sum nearer.
    """
    if max_tokens < 1 or tokens.n_documents == 0:
        raise CorpusError(f"a probe of {max_tokens} tokens of {tokens.n_documents:,} documents is empty: ask for more")
    order = np.random.default_rng([seed, int(tokens.digest[:15], 16)]).permutation(tokens.n_documents)
    lengths = np.diff(tokens.starts)[order]
    count = int(np.abs(np.cumsum(lengths) - max_tokens).argmin()) + 1
    return subset(tokens, np.sort(order[:count]))


def subset(tokens: TokenSet, chosen: np.ndarray) -> TokenSet:
    """Copy some documents into a set of their own."""
    parts = [tokens.tokens[tokens.starts[i] : tokens.starts[i + 1]] for i in chosen]
    starts = np.cumsum([0, *(len(part) for part in parts)])
    joined = np.concatenate(parts)
    cut = None if tokens.cut is None or not tokens.cut[chosen].any() else tokens.cut[chosen]
    marks = b"" if cut is None else cut.tobytes()
    return TokenSet(
        tokens=joined,
        starts=starts,
        digest=hashlib.sha256(joined.tobytes() + starts.tobytes() + marks).hexdigest(),
        document_bytes=None if tokens.document_bytes is None else tokens.document_bytes[chosen],
        source=None if tokens.source is None else tokens.source[chosen],
        source_names=tokens.source_names,
        cut=cut,
    )
