"""Configurations made of held-out documents, as HellaSwag and LAMBADA are: they follow the loss by nature.

    TokenSet (of one split) -> places in the text -> the true continuation and three of other documents -> PreparedTask

    general/continuation    which of four lines follows
    language/last_word      which of four words ends the line
    professional/long_word  how a long word goes on after its first token
    coding/identifier       how an identifier goes on after its first token

An item shows its document up to its place; the wrong answers stood in the same kind of place of other documents and are
about as long. So all items of a document are read in one pass (forests.py), and they are one unit of every interval.
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
LEAST_CONTEXT = 16  # tokens before an answer
LINE_TOKENS = range(6, 21)
DOCUMENT_TOKENS = (
    127  # of the beginning of a document: with the token before it, what the embedded models are trained on
)
LINE_WORDS = 4  # before a last word
LONG = 8  # letters
ALIKE = 8 * OPTIONS  # the wrong answers are drawn from so many that are nearest in length
WORD = re.compile(r"\S+")
LINE = re.compile(r"[^\n]+\n")
LONG_WORD = re.compile(rf"[a-z]{{{LONG},}}(?=\s)")
IDENTIFIER = re.compile(r"[A-Za-z]\w*(?:_\w+|\.\w+|[a-z][A-Z]\w*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """The beginning of a document: its tokens, its characters, and where each token ends among them."""

    tokens: tuple[int, ...]
    text: str
    ends: NDArray[np.int64]

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """The tokens that hold these characters, first and one after the last: a blank before them may come along."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        return first, int(np.searchsorted(self.ends, stop, side="left")) + 1


def document_tasks(
    tokens: TokenSet, *, tokenizer: Path, items_each: int = 100, seed: int = 0
) -> tuple[PreparedTask, ...]:
    """Make every configuration with so many items, or as many as the documents have. One without any is left out."""
    texts = _texts(tokens, tokenizer)
    end = int(tokens.tokens[-1])
    made = [_task(*what, places, texts, end=end, count=items_each, seed=seed) for what, places in PLACES.items()]
    return tuple(task for task in made if task is not None)


def _texts(tokens: TokenSet, tokenizer: Path) -> list[_Text]:
    decoder = load_tokenizer(tokenizer)
    pieces = {int(i): decoder.decode([int(i)], skip_special_tokens=False) for i in np.unique(tokens.tokens)}
    found: list[_Text] = []
    for first, last in zip(tokens.starts[:-1], tokens.starts[1:], strict=True):
        ids = tuple(map(int, tokens.tokens[first : min(last - 1, first + DOCUMENT_TOKENS)]))
        parts = [pieces[i] for i in ids]
        found.append(_Text(tokens=ids, text="".join(parts), ends=np.cumsum([len(part) for part in parts])))
    return found


def _lines(text: _Text) -> Iterator[tuple[int, int]]:
    for line in LINE.finditer(text.text):
        first, last = text.span(line.start(), line.end())
        if last - first in LINE_TOKENS:
            yield first, last


def _last_words(text: _Text) -> Iterator[tuple[int, int]]:
    for line in LINE.finditer(text.text):
        words = list(WORD.finditer(line.group()))
        if len(words) > LINE_WORDS:
            yield text.span(line.start() + words[-1].start(), line.start() + words[-1].end())


def _rest_of(pattern: re.Pattern[str]) -> Callable[[_Text], Iterator[tuple[int, int]]]:
    def places(text: _Text) -> Iterator[tuple[int, int]]:
        for word in pattern.finditer(text.text):
            first, last = text.span(word.start(), word.end())
            yield first + 1, last

    return places


PLACES: dict[tuple[str, str], Callable[[_Text], Iterator[tuple[int, int]]]] = {
    ("general", "continuation"): _lines,
    ("language", "last_word"): _last_words,
    ("professional", "long_word"): _rest_of(LONG_WORD),
    ("coding", "identifier"): _rest_of(IDENTIFIER),
}  # category, task


def _task(
    category: str,
    name: str,
    places: Callable[[_Text], Iterator[tuple[int, int]]],
    texts: Sequence[_Text],
    *,
    end: int,
    count: int,
    seed: int,
) -> PreparedTask | None:
    found = [
        (number, text.tokens[:first], text.tokens[first:last])
        for number, text in enumerate(texts)
        for first, last in places(text)
        if LEAST_CONTEXT <= first < last <= len(text.tokens)
    ]
    random = np.random.default_rng([seed, len(found)])
    chosen = sorted(random.permutation(len(found))[:count].tolist())  # from all documents alike
    by_length = sorted({(len(answer), answer, number) for number, _, answer in found})
    lengths = [length for length, _, _ in by_length]
    sequences: list[tuple[int, ...]] = []
    right: list[int] = []
    documents: list[int] = []
    spans: list[tuple[int, int, int]] = []
    for item in chosen:
        number, context, answer = found[item]
        middle = int(np.searchsorted(lengths, len(answer)))
        near = by_length[max(middle - ALIKE, 0) : middle + ALIKE]
        others = list(dict.fromkeys(other for _, other, of in near if other != answer and of != number))
        if len(others) < OPTIONS - 1:
            continue
        options = [others[i] for i in random.permutation(len(others))[: OPTIONS - 1]]
        right.append(int(random.integers(OPTIONS)))
        options.insert(right[-1], answer)
        documents.append(number)
        before = (end, *context)
        for option in options:
            spans.append((len(sequences), len(before), len(before) + len(option)))
            sequences.append((*before, *option))
    if not right:
        return None
    return PreparedTask(
        task=Configuration(name=f"{category}/{name}", category=category, metric=Metric.OPTIONS, chance=1 / OPTIONS),
        sequences=tuple(sequences),
        spans=np.array(spans),
        first=np.arange(0, len(spans) + 1, OPTIONS),
        right=np.array(right),
        document=np.array(documents),
    )
