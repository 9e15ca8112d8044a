"""Configurations made of held-out documents, as HellaSwag and LAMBADA are: they follow the loss by nature.

    TokenSet (of one split) -> words with their tokens -> spans to predict -> PreparedTask, its items by document

    language/last_word      the last word of a line, greedily, from all that stands before it
    professional/long_word  the rest of a long word, greedily, from its first token
    coding/identifier       the rest of an identifier that stood before
    general/continuation    which of four lines follows: the true one, or one of three from other documents

The first three are spans of the documents themselves, so one pass over a document answers all of its items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.tasks.items import Configuration, Metric
from trajsoup.lm.tasks.prepared import PreparedTask
from trajsoup.lm.tokenizer import load_tokenizer

OPTIONS = 4
CONTEXT_TOKENS, LINE_TOKENS = 64, (8, 24)  # before a line to choose, and of the line itself
WINDOW = 255  # tokens of a document that are read: with the end-of-text before them, one window of the loss
LINE_WORDS = 4  # before a last word
LONG = 8  # letters
WORD = re.compile(r"\S+")
IDENTIFIER = re.compile(r"[A-Za-z]\w*(?:_\w+|\.\w+|[a-z][A-Z]\w*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """The beginning of a document: its characters, and where each of its tokens ends among them."""

    tokens: tuple[int, ...]
    text: str
    ends: NDArray[np.int64]

    def tokens_of(self, start: int, stop: int) -> tuple[int, int]:
        """The tokens that hold these characters, and the one after: the first may begin with the blank before."""
        return int(np.searchsorted(self.ends, start, side="right")), int(
            np.searchsorted(self.ends, stop, side="left")
        ) + 1


def document_tasks(
    tokens: TokenSet, *, tokenizer: Path, most: int | None = None, seed: int = 0
) -> tuple[PreparedTask, ...]:
    """Make every configuration, of at most so many documents. One that they have no item for is left out."""
    decoder = load_tokenizer(tokenizer)
    texts: list[_Text] = []
    for first, last in zip(tokens.starts[:-1][:most], tokens.starts[1:][:most], strict=True):
        ids = tuple(map(int, tokens.tokens[first : min(last - 1, first + WINDOW)]))
        pieces = [decoder.decode([i], skip_special_tokens=False) for i in ids]
        texts.append(_Text(tokens=ids, text="".join(pieces), ends=np.cumsum([len(piece) for piece in pieces])))
    end = int(tokens.tokens[-1])
    made = [_spans(texts, end=end, name=name, find=find) for name, find in SPANS.items()]
    made.append(_continuations(texts, end=end, seed=seed))
    return tuple(task for task in made if len(task.right))


def _last_words(text: _Text) -> Iterator[tuple[int, int]]:
    for line in re.finditer(r"[^\n]+\n", text.text):
        words = list(WORD.finditer(line.group()))
        if len(words) > LINE_WORDS:
            yield text.tokens_of(line.start() + words[-1].start(), line.start() + words[-1].end())


def _long_words(text: _Text) -> Iterator[tuple[int, int]]:
    for word in re.finditer(rf"[a-z]{{{LONG},}}(?=\s)", text.text):
        first, last = text.tokens_of(word.start(), word.end())
        yield first + 1, last


def _identifiers(text: _Text) -> Iterator[tuple[int, int]]:
    seen: set[str] = set()
    for word in IDENTIFIER.finditer(text.text):
        if word.group() in seen:
            first, last = text.tokens_of(word.start(), word.end())
            yield first + 1, last
        seen.add(word.group())


SPANS: dict[str, Callable[[_Text], Iterator[tuple[int, int]]]] = {
    "language/last_word": _last_words,
    "professional/long_word": _long_words,
    "coding/identifier": _identifiers,
}


def _spans(
    texts: Sequence[_Text], *, end: int, name: str, find: Callable[[_Text], Iterator[tuple[int, int]]]
) -> PreparedTask:
    """Greedy match of spans inside the documents."""
    sequences: list[tuple[int, ...]] = []
    spans: list[tuple[int, int, int]] = []
    document: list[int] = []
    for number, text in enumerate(texts):
        found = [(first, last) for first, last in find(text) if first < last <= len(text.tokens)]
        if found:
            spans += [(len(sequences), first + 1, last + 1) for first, last in found]  # after the end-of-text
            document += [number] * len(found)
            sequences.append((end, *text.tokens))
    return PreparedTask(
        task=Configuration(name=name, category=name.split("/")[0], metric=Metric.EXACT, chance=0.0),
        sequences=tuple(sequences),
        spans=np.array(spans, np.int64).reshape(-1, 3),
        first=np.arange(len(spans) + 1),
        right=np.zeros(len(spans), np.int64),
        document=np.array(document, np.int64),
    )


def _continuations(texts: Sequence[_Text], *, end: int, seed: int) -> PreparedTask:
    """One item a document: the line that follows its first ones, and lines of like length from others."""
    random = np.random.default_rng([seed, len(texts)])
    lines = {number: found for number, text in enumerate(texts) if (found := _line(text)) is not None}
    sequences: list[tuple[int, ...]] = []
    spans: list[tuple[int, int, int]] = []
    right: list[int] = []
    for number, (context, line) in lines.items():
        others = [other[1] for key, other in lines.items() if key != number and other[1] != line]
        if len(others) < OPTIONS - 1:
            continue
        nearest = sorted(range(len(others)), key=lambda i: abs(len(others[i]) - len(line)))[: 8 * OPTIONS]
        options = [others[nearest[i]] for i in random.permutation(len(nearest))[: OPTIONS - 1]]
        place = int(random.integers(OPTIONS))
        options.insert(place, line)
        right.append(place)
        for option in options:
            before = (end, *context)
            spans.append((len(sequences), len(before), len(before) + len(option)))
            sequences.append((*before, *option))
    return PreparedTask(
        task=Configuration(name="general/continuation", category="general", metric=Metric.OPTIONS, chance=1 / OPTIONS),
        sequences=tuple(sequences),
        spans=np.array(spans, np.int64).reshape(-1, 3),
        first=np.arange(0, len(spans) + 1, OPTIONS),
        right=np.array(right, np.int64),
        document=np.array(list(lines)[: len(right)], np.int64),
    )


def _line(text: _Text) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The first line that has enough before it and a fit length, with the tokens before it."""
    for line in re.finditer(r"[^\n]+\n", text.text):
        first, last = text.tokens_of(line.start(), line.end())
        if first >= CONTEXT_TOKENS // 2 and LINE_TOKENS[0] <= last - first <= LINE_TOKENS[1]:
            return text.tokens[max(first - CONTEXT_TOKENS, 0) : first], text.tokens[first:last]
    return None
