"""Quantities as people write them: 600B tokens, 12.5B, 1 %."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from trajsoup.errors import StudyError

SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_QUANTITY = re.compile(r"(\d[\d_,]*(?:\.\d+)?(?:[eE]\+?\d+)?)\s*([kKMBTmbt]?)")


def parse_tokens(value: object, *, where: str) -> int:
    """Read a positive whole number of tokens, with an optional suffix k, M, B or T (in either case)."""
    match = _QUANTITY.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    if match is None:
        raise StudyError(f"{where} is {value!r}: write tokens as a number with an optional k, M, B or T, like 25B")
    suffix = match[2] if match[2] in SUFFIXES else match[2].swapcase()
    exact = Fraction(re.sub("[_,]", "", match[1])) * SUFFIXES[suffix]
    if exact.denominator != 1 or exact < 1:
        raise StudyError(f"{where} is {value!r}, which is not a positive whole number of tokens: round it")
    return int(exact)


def format_tokens(tokens: int) -> str:
    """Write tokens the way the paper does: 600B, 12.5B, 65.54k."""
    for suffix, scale in reversed(SUFFIXES.items()):
        if tokens >= scale:
            return f"{tokens / scale:.4g}{suffix}" if tokens < 1000 * scale else f"{tokens / scale:,.0f}{suffix}"
    return str(tokens)


def parse_share(value: object, *, where: str) -> float:
    """Read a share: `1%`, or a number between 0 and 1."""
    text = str(value).strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = math.nan
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise StudyError(f"{where} is {value!r}: write a share as a percentage like 1%, or as a number from 0 to 1")
    return share


def parse_number(value: object, *, where: str) -> float:
    """Read a finite number. YAML takes `1e-4` for text, so text that is a number counts as one."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise StudyError(f"{where} is {value!r}, which is not a finite number: mend it")
    return number


def format_bytes(nbytes: float) -> str:
    """Bytes for people: 16.0 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} TB"
