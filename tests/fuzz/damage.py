"""Damaged files by the thousand, the same for the same seed.

`TRAJSOUP_FUZZ` is how many each parser meets (a few hundred by default), `TRAJSOUP_FUZZ_MINUTES` how long it meets more of
them, `TRAJSOUP_FUZZ_SEED` moves all seeds: `make fuzz MINUTES=10`. How many there were is written to the file
`TRAJSOUP_FUZZ_COUNTS`, where one is named.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

from trajsoup.errors import TrajsoupError

TRIES = int(os.environ.get("TRAJSOUP_FUZZ", "300"))
MINUTES = float(os.environ.get("TRAJSOUP_FUZZ_MINUTES", "0"))  # for each parser
SEED = int(os.environ.get("TRAJSOUP_FUZZ_SEED", "0"))
COUNTS = Path(os.environ["TRAJSOUP_FUZZ_COUNTS"]) if "TRAJSOUP_FUZZ_COUNTS" in os.environ else None
NUMBERS = (0, 1, -1, 2, 63, 64, 127, 255, 4096, 2**31, 2**32, 2**62, 2**63, -(2**40))


def cases(seed: int, *, share: float = 1.0, tries: int = TRIES) -> Iterator[random.Random]:
    """A generator for each case, or for a `share` of them where one is slow; what it raises is told the case's number."""
    end, number = time.monotonic() + 60 * MINUTES * share, 0
    while number < tries * share or time.monotonic() < end:
        chance = random.Random((SEED << 40) + (seed << 32) + number)
        try:
            yield chance
        except BaseException as error:
            error.add_note(f"case {number} of seed {seed} (TRAJSOUP_FUZZ_SEED={SEED})")
            raise
        number += 1
    if COUNTS is not None:
        with COUNTS.open("a", encoding="utf-8") as file:
            file.write(f"{number}\t{os.environ.get('PYTEST_CURRENT_TEST', '')}\n")


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled or put elsewhere."""
    data = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        at, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + 64)
        match chance.randrange(5):
            case 0:
                data[at:end] = bytes(chance.randrange(256) for _ in range(end - at))
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end]
            case 3 if at < len(data):
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ (1 << chance.randrange(8))))
            case _:
                del data[at + len(data) // 2 :]
        if not data:
            return b""
    return bytes(data)


def lying(tree, chance: random.Random, *, leaves):
    """The same nest, one or two of whose numbers and texts say something else. `leaves` rebuilds what is no dict or list."""
    places = []

    def count(value):
        inner = leaves(value)
        if inner is not None:
            for part in inner[0]:
                count(part)
        elif isinstance(value, int | str) and not isinstance(value, bool):
            places.append(value)

    count(tree)
    chosen = {chance.randrange(len(places)) for _ in range(chance.randint(1, 2))}
    met = -1

    def told(value):
        nonlocal met
        inner = leaves(value)
        if inner is not None:
            parts, made = inner
            return made([told(part) for part in parts])
        if isinstance(value, int | str) and not isinstance(value, bool):
            met += 1
            if met in chosen:
                if isinstance(value, int):
                    return chance.choice((*NUMBERS, value + 1, value - 1, value * 2))
                return type(value)(
                    chance.choice(("", "..", "a/../b", "\0", value + "x", value[:-1], str(chance.choice(places))))
                )
        return value

    return told(tree)


def survives(read, *args) -> bool:
    """Whether it was read. A refusal has one line; anything else that is raised fails the test."""
    try:
        read(*args)
    except TrajsoupError as error:
        refusal = str(error)
    else:
        return True
    assert "\n" not in refusal
    return False
