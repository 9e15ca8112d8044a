"""A tokenizer.json as llama.cpp keeps it in a GGUF file: tokens, their kinds, merges or scores, which splitting of text.

Byte-level BPE keeps its merges. The BPE of sentencepiece (Llama 2, Mistral) becomes scores, from which llama.cpp merges:
that is the same where the rank of a merge depends on its product alone, and it is checked.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trajsoup.errors import CheckpointError
from trajsoup.store.json_file import load_json

_GPT2, _DIGITS = "<gpt2>", "<digits>"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS, _REST = r"|[^\r\n\p{L}\p{N}]?\p{L}+", r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*")
_CASED_REST = _REST.replace(r"[\r\n]*", r"[\r\n/]*")
# How text is cut before merging, and whether whole words of the vocabulary skip the merges -> llama.cpp's name of both.
SPLITTINGS: Mapping[tuple[tuple[str, ...], bool], str] = {
    ((_GPT2,), False): "gpt-2",
    ((_DIGITS, _GPT2), False): "smollm",
    ((_CONTRACTIONS + _WORDS + r"|\p{N}{1,3}" + _REST,), True): "llama-bpe",
    ((_CONTRACTIONS + _WORDS + r"|\p{N}{1,3}" + _REST,), False): "dbrx",
    ((_CONTRACTIONS + _WORDS + r"|\p{N}" + _REST,), False): "qwen2",
    (("|".join(_CASED) + r"|\p{N}" + _CASED_REST,), True): "tekken",
    (("|".join(f"{part}{_CONTRACTIONS}?" for part in _CASED) + r"|\p{N}{1,3}" + _CASED_REST,), False): "gpt-4o",
}


def describe_tokenizer(writer: Any, folder: Path, *, vocabulary: int) -> None:
    """Write the tokenizer of a model folder into a `gguf.GGUFWriter`, with as many tokens as the model has rows."""
    from gguf import SpecialVocab

    where = folder / "tokenizer.json"
    if not where.is_file():
        raise CheckpointError(
            f"{folder} has no tokenizer.json, which a GGUF file holds: save the tokenizer by transformers into it"
        )
    tokenizer = load_json(where)
    model: dict[str, Any] = tokenizer.get("model") or {}
    if model.get("type") != "BPE":
        raise CheckpointError(f"{where} is a tokenizer of the kind {model.get('type')!r}: only BPE is written as GGUF")
    bytewise = bool(model.get("byte_fallback"))
    tokens, kinds = _tokens(tokenizer, vocabulary, str(where), bytewise=bytewise)
    writer.add_tokenizer_model("llama" if bytewise else "gpt2")
    writer.add_tokenizer_pre("default" if bytewise else _splitting(tokenizer, str(where)))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if bytewise:
        writer.add_token_scores(_scores(model, tokens, kinds, str(where)))
        writer.add_add_space_prefix(_begins_with_space(tokenizer))
    special = SpecialVocab(folder, load_merges=not bytewise, n_vocab=vocabulary)
    for token in ("bos", "eos"):
        special.add_special_token.setdefault(token, False)  # unsaid, llama.cpp would guess
    special.add_to_gguf(writer, quiet=True)


def _tokens(
    tokenizer: Mapping[str, Any], vocabulary: int, where: str, *, bytewise: bool
) -> tuple[list[str], list[int]]:
    from gguf import TokenType

    found: dict[int, tuple[str, int]] = {}
    unknown = tokenizer["model"].get("unk_token")
    for text, number in tokenizer["model"]["vocab"].items():
        kind = TokenType.NORMAL
        if bytewise and re.fullmatch(r"<0x[0-9A-F]{2}>", text):
            kind = TokenType.BYTE
        elif bytewise and text == unknown:
            kind = TokenType.UNKNOWN
        found[number] = (text, kind)
    for token in tokenizer.get("added_tokens") or ():
        if found.get(token["id"], ("", 0))[1] != TokenType.UNKNOWN:
            kind = TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
            found[token["id"]] = (token["content"], kind)
    if (last := max(found, default=-1)) >= vocabulary:
        raise CheckpointError(
            f"{where} has a token number {last:,}, the model {vocabulary:,} rows: they do not belong together"
        )
    listed = [found.get(number, (f"[PAD{number}]", TokenType.UNUSED)) for number in range(vocabulary)]
    return [text for text, _ in listed], [int(kind) for _, kind in listed]


def _splitting(tokenizer: Mapping[str, Any], where: str) -> str:
    """llama.cpp's name for how text is cut before merging."""
    cut = tuple(_cuts(tokenizer.get("pre_tokenizer") or {}))
    name = SPLITTINGS.get((cut, bool(tokenizer["model"].get("ignore_merges"))))
    if name is None:
        raise CheckpointError(
            f"{where} cuts text by {' then '.join(cut)[:300] or 'nothing'}, which is none of those that llama.cpp has "
            f"({', '.join(SPLITTINGS.values())}): convert the soup's folder by its convert_hf_to_gguf.py"
        )
    return name


def _cuts(step: Mapping[str, Any]) -> Iterator[str]:
    match step:
        case {"type": "Sequence", "pretokenizers": list(steps)}:
            yield from itertools.chain.from_iterable(map(_cuts, steps))
        case {"type": "ByteLevel", "add_prefix_space": False}:
            yield from (_GPT2,) if step.get("use_regex", True) else ()
        case {"type": "Digits", "individual_digits": True}:
            yield _DIGITS
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False}:
            yield pattern
        case _:
            yield str(step.get("type"))


def _scores(model: Mapping[str, Any], tokens: Sequence[str], kinds: Sequence[int], where: str) -> list[float]:
    """Minus the rank of each token's merges; llama.cpp joins the neighbours whose union scores highest."""
    from gguf import TokenType

    pairs = [tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    products = ["".join(pair) for pair in pairs]
    ranks = {product: rank for rank, (product, _) in enumerate(itertools.groupby(products))}
    normal = {text for text, kind in zip(tokens, kinds, strict=True) if kind == TokenType.NORMAL}
    listed = {*pairs}
    joined = ((text[:at], text[at:]) for text in normal for at in range(1, len(text)))
    whole = all(pair in listed for pair in joined if normal.issuperset(pair))
    if len([*itertools.groupby(products)]) != len({*products}) or not whole:
        raise CheckpointError(
            f"{where} merges in an order that scores of tokens cannot say, so llama.cpp would cut otherwise: convert the "
            "soup's folder by its convert_hf_to_gguf.py"
        )
    return [-float(ranks.get(text, len(ranks))) for text in tokens]


def _begins_with_space(tokenizer: Mapping[str, Any]) -> bool:
    """Whether a space is put before the text: by a normalizer (older files) or by the pre-tokenizer."""
    normalizer, cutter = tokenizer.get("normalizer") or {}, tokenizer.get("pre_tokenizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    return any(step.get("type") == "Prepend" for step in steps) or (
        cutter.get("type") == "Metaspace" and cutter.get("prepend_scheme", "always") != "never"
    )
