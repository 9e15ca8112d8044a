"""Quantities as people write them: 600B tokens, 12.5B, 5GB, 1 %.

A field of a file declares its quantity by type (`horizon: Tokens`); the type names the function that reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Annotated

from trajsoup.errors import StudyError

SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_TOKENS = {suffix.lower(): scale for suffix, scale in SUFFIXES.items()}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"(\d[\d_,]{0,99}(?:\.\d{1,99})?(?:[eE]\+?\d{1,2})?)\s*([a-zA-Z]*)")  # more digits count nothing


def parse_tokens(value: object, *, where: object) -> int:
    """Read a positive whole number of tokens, with an optional suffix k, M, B or T (in either case)."""
    number = _scaled(value, _TOKENS)
    if number is None:
        raise StudyError(f"{where} is {value!r}: write tokens as a number with an optional k, M, B or T, like 25B")
    if number.denominator != 1 or number < 1:
        raise StudyError(f"{where} is {value!r}, which is not a positive whole number of tokens: round it")
    return int(number)


def tokens_in_name(number: str, suffix: str) -> int:
    """Tokens as a file name gives them (`tokens_1.5B`): whole ones, and 0 is a fork point."""
    scaled = _scaled(number + suffix, _TOKENS)
    assert scaled is not None
    return int(scaled)


def parse_bytes(value: object, *, where: object) -> int:
    """Read a positive number of bytes, with an optional unit like GB (10**9) or GiB (2**30), in either case."""
    number = _scaled(value, _BYTES)
    if number is None or number < 1:
        raise StudyError(f"{where} is {value!r}: write bytes as a positive number with an optional unit, like 5GB")
    return int(number)


def _scaled(value: object, units: Mapping[str, int]) -> Fraction | None:
    match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value).strip())
    if match is None or match[2].lower() not in units:
        return None
    return Fraction(re.sub("[_,]", "", match[1])) * units[match[2].lower()]


def format_tokens(tokens: int) -> str:
    """Write tokens the way the paper does: 600B, 12.5B, 65.54k."""
    for suffix, scale in reversed(SUFFIXES.items()):
        if tokens >= scale:
            return f"{tokens / scale:.4g}{suffix}" if tokens < 1000 * scale else f"{tokens / scale:,.0f}{suffix}"
    return str(tokens)


def parse_share(value: object, *, where: object) -> float:
    """Read a share: `1%`, or a number between 0 and 1."""
    text = str(value).strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = math.nan
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise StudyError(f"{where} is {value!r}: write a share as a percentage like 1%, or as a number from 0 to 1")
    return share


def parse_whole(value: object, *, where: object, least: int = 0) -> int:
    """Read a whole number that counts nothing in tokens: a seed, a batch, a number of repeats. No suffixes."""
    number = parse_number(value, where=where)
    if number != int(number) or number < least:
        raise StudyError(f"{where} is {value!r}: use a whole number of {least} or more")
    return value if isinstance(value, int) else int(number)


def parse_number(value: object, *, where: object, above: float = -math.inf) -> float:
    """Read a finite number. YAML takes `1e-4` for text, so text that is a number counts as one."""
    try:
        number = parse_score(value, where=where)
    except StudyError:
        number = math.nan
    if not math.isfinite(number):
        raise StudyError(f"{where} is {value!r:.60}, which is not a finite number: mend it")
    if number <= above:
        raise StudyError(f"{where} is {value!r}: use a number above {above:g}")
    return number


def parse_score(value: object, *, where: object) -> float:
    """Read a number that a model may have been given: NaN and infinity too."""
    try:
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise StudyError(f"{where} is {value!r:.60}, which is not a number: mend it")


Tokens = Annotated[int, parse_tokens]
Share = Annotated[float, parse_share]
Count = Annotated[int, partial(parse_whole, least=1)]
Positive = Annotated[float, partial(parse_number, above=0)]
Score = Annotated[float, parse_score]


def format_bytes(nbytes: float) -> str:
    """Bytes for people: 16.0 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} TB"


def format_seconds(seconds: float) -> str:
    """A time for people: 45 s, 3.5 min, 2.1 h."""
    for unit, of_it in (("s", 1), ("min", 60)):
        if seconds < 90 * of_it:
            return f"{seconds / of_it:.{0 if of_it == 1 else 1}f} {unit}"
    return f"{seconds / 3600:.1f} h"
