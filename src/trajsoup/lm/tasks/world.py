"""The small world that tasks speak of: people, things, numbers, and a table of facts that can only be remembered.

Names are invented or everyday; facts are dealt from a fixed shuffle, so that every value is right equally often.
"""

from __future__ import annotations

from random import Random

PEOPLE = (
    "Ann", "Ben", "Cal", "Dan", "Eve", "Fay", "Gil", "Hal", "Ida", "Jim", "Kim", "Lou",
    "Max", "Ned", "Ora", "Pam", "Ray", "Sam", "Tom", "Una", "Vic", "Wes", "Yan", "Zoe",
)  # fmt: skip
THINGS = (
    "cup", "hat", "pen", "key", "map", "bag", "bow", "jar", "fan", "pot", "rug", "saw",
    "cap", "net", "oar", "pin", "rod", "tap", "van", "web", "axe", "bed", "cot", "coat",
)  # fmt: skip
WORDS = ("red", "blue", "green", "gold", "pink", "grey", "black", "white", "north", "south", "east", "west")
NAMES = (
    "data", "rows", "name", "size", "left", "right", "first", "last", "count", "total", "index", "value",
    "key", "item", "node", "path", "line", "text", "mode", "base", "step", "width", "limit", "start",
    "file", "code", "list", "args", "self", "func", "names", "field", "other", "result", "parent", "child",
)  # fmt: skip
ROOMS = ("kitchen", "hall", "office", "garden", "cellar", "attic", "garage", "library")
ATTRIBUTES = {
    "metal": ("iron", "gold", "zinc", "lead", "tin", "copper", "silver", "nickel"),
    "color": ("red", "blue", "green", "pink", "grey", "black", "white", "brown"),
}
METHODS = {
    "list": ("append", "extend", "insert", "reverse", "sort"),
    "str": ("upper", "strip", "split", "join", "replace", "startswith"),
    "dict": ("keys", "values", "items", "get", "setdefault", "popitem"),
    "set": ("add", "union", "difference", "issubset", "discard"),
}


def _places() -> tuple[str, ...]:
    heads, tails = ("Bor", "Dun", "Fen", "Gar", "Hol", "Mor", "Nev", "Tal"), ("ia", "os", "um", "ek")
    return tuple(head + tail for head in heads for tail in tails)


def _facts() -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for attribute, values in ATTRIBUTES.items():
        dealt = list(values) * (len(PLACES) // len(values))
        Random(f"facts/{attribute}").shuffle(dealt)
        found |= {(place, attribute): value for place, value in zip(PLACES, dealt, strict=True)}
    return found


PLACES = _places()  # 32
FACTS = _facts()  # 64: (place, attribute) -> value


def neighbours(random: Random, *, low: int, high: int) -> tuple[int, ...]:
    """Four numbers of [low, high] a step apart, shuffled. The answer is one of them, each as likely."""
    step = random.choice((1, 2, 5))
    start = random.randrange(low, high - 3 * step + 1)
    return tuple(random.sample(range(start, start + 4 * step, step), 4))


def with_others(random: Random, answer: str, pool: tuple[str, ...], *, count: int = 4) -> tuple[str, ...]:
    """The answer and others of the same pool, shuffled."""
    chosen = [answer, *random.sample([value for value in pool if value != answer], count - 1)]
    random.shuffle(chosen)
    return tuple(chosen)
