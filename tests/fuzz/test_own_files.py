"""Every text that is parsed (targets.py), with hostile values in any place: it is read, or refused in one readable line.

Some seconds by default; `make fuzz MINUTES=10` goes on for that long with each, other cases every time. A finding is kept in
tests/fuzz/corpus/TARGET/, under a name that says what it was, and is tried for ever.
"""

import json
import random
import re
import tempfile
import zlib
from pathlib import Path

import pytest

from tests.fuzz.damage import TRIES, cases
from tests.fuzz.targets import KINDS_OF_RECORD, TARGETS
from trajsoup.errors import TrajsoupError

CORPUS = Path(__file__).parent / "corpus"
LONGEST_MESSAGE = 2000
WORDS = (  # what YAML or Python makes something else of
    *(
        "2024-13-45",
        "2024-02-30",
        "!!int x",
        "!!float x",
        "!!map [1]",
        "!!set [1]",
        "!!binary ä",
        "!!python/name:os.system",
    ),
    *(
        "0x_",
        "0b_",
        "9" * 5000,
        "1e999",
        "-.inf",
        ".nan",
        "&a 1",
        "*a",
        "{<<: 1}",
        "? [1]",
        "~",
        "'",
        '"\\ud800"',
        '"\\0"',
    ),
    *("../../etc/passwd", "/dev/zero", "zip://x::/etc/passwd", "ftp://x/y", "s3://", "=1+1", "1_000", "٣", "²"),
)
VALUES = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**30, 10**400, 0.5, -0.0, 1e308, 5e-324),
    *(
        float("nan"),
        float("inf"),
        "",
        "x",
        "\0",
        "\ud800",
        "\x1b[2J",
        "a\nb",
        "x" * 5000,
        "9" * 5000,
        "..",
        "/",
        "s3://a/b",
    ),
    *([], {}, [[]], [None], {"": 0}, {"\ud800": 1}, ["x"] * 100, {"path": "x"}, [1, "x", None], [[[[[[[[]]]]]]]]),
)


def hostile(seed: bytes, chance: random.Random) -> bytes:
    """The file with something else in one or two places."""
    match chance.randrange(5):
        case 0:
            return damaged(seed, chance)
        case 1 if seed.lstrip().startswith(b"{") and b"\n{" not in seed:
            tree = json.loads(seed)
            for _ in range(chance.randint(1, 2)):
                tree = replaced(tree, chance)
            return json.dumps(tree).encode()
        case 2:  # a value of one line
            found = list(re.finditer(rb"[:\-,\[] ?([^\s:,\[\]{}]+)", seed))
            if found:
                begin, end = chance.choice(found).span(1)
                return seed[:begin] + chance.choice(WORDS).encode("utf-8", "replace") + seed[end:]
        case 3:
            found = list(re.finditer(rb'-?\d+(\.\d+)?|"[^"]*"|null|true|false', seed))
            if found:
                begin, end = chance.choice(found).span()
                return seed[:begin] + json.dumps(chance.choice(VALUES)).encode() + seed[end:]
        case _:
            depth = chance.choice((10, 500, 3000))
            at = chance.randrange(len(seed) + 1)
            return seed[:at] + b"[" * depth + b"]" * depth + seed[at:]
    return damaged(seed, chance)


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut out or doubled."""
    at, end = sorted(chance.randrange(len(raw) + 1) for _ in range(2))
    end = min(end, at + 32)
    return raw[:at] + chance.choice((b"", raw[at:end] * 2, chance.randbytes(end - at))) + raw[end:]


def replaced(tree, chance):
    """The tree with a hostile value in the place of one of its parts, or with a part too many or missing."""
    if not isinstance(tree, dict | list) or not tree or chance.random() < 0.15:
        return chance.choice(VALUES)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = chance.choice(keys)
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    if chance.random() < 0.1:
        del copy[key]
    else:
        copy[key] = replaced(tree[key], chance)
    return copy


def tried(name: str, data: bytes, folder: Path) -> None:
    """Read it. A refusal has one line of a readable length; anything else that is raised fails the test."""
    try:
        TARGETS[name].read(data, folder)
    except TrajsoupError as error:
        said = str(error)
        assert "\n" not in said.replace("\\n", "")
        assert len(said) < LONGEST_MESSAGE + 3 * len(str(folder))


@pytest.mark.parametrize("name", TARGETS)
def test_a_valid_file_is_read(name, tmp_path):
    TARGETS[name].read(TARGETS[name].seed, tmp_path)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_once_is_read_or_refused(path, tmp_path):
    tried(path.parent.name, path.read_bytes(), tmp_path)


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_values_are_read_or_refused(name, tmp_path):
    for chance in cases(zlib.crc32(name.encode()), tries=TRIES // 12):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            tried(name, hostile(TARGETS[name].seed, chance), Path(folder))


def test_every_kind_of_record_is_a_target():
    assert {f"record-{kind.FILE}" for kind in KINDS_OF_RECORD} <= TARGETS.keys()
