"""Corpora as .npy: damaged, or with a header that says something else."""

import re

import numpy as np
import pytest

from tests.fuzz.damage import TRIES, cases, damaged, survives
from trajsoup.core.splits import Split
from trajsoup.lm.builtin import FORK_POINT
from trajsoup.lm.tokenizer import load_tokenizer
from trajsoup.lm.writing import TokenWriter

NESTED, LONG = "[" * 50 + "]" * 50, "9" * 5000
KINDS = (
    "'O'",
    "'(3,)<u2'",
    "('<u2',(2,))",
    "[('a','<u2')]",
    "'|V0'",
    "'<U'",
    "'<u999999999999'",
    "'<u2,'*9",
    f"'{LONG}'",
)
SHAPES = ("(1,-1)", "(0,)", "-5", "2**70", "1" * 30)
SAID = tuple(text.encode() for text in (*KINDS, *SHAPES, LONG, NESTED, "{}", "None", "b'<u2'"))
PART = re.compile(rb"'<u2'|False|\(5,\)")


@pytest.fixture
def writer(tmp_path):
    (tmp_path / "made").mkdir()
    made = TokenWriter(tmp_path / "made", tokenizer=load_tokenizer(FORK_POINT), end_id=0)
    yield made
    for file in made.files.values():
        file.close()


def lying_header(raw, chance):
    """The file with one or two other values in its header."""
    said = raw[10:]
    for part in chance.sample(PART.findall(said), chance.randint(1, 2)):
        said = said.replace(part, chance.choice(SAID), 1)
    return raw[:8] + len(said).to_bytes(2, "little") + said


def test_damaged_token_files_are_read_or_refused(writer, tmp_path):
    path, read = tmp_path / "tokens.npy", []
    np.save(path, np.array([5, 6, 0, 7, 0], np.uint16))
    raw = path.read_bytes()
    for chance in cases(35, tries=TRIES // 2):
        path.write_bytes(chance.choice((damaged, lying_header))(raw, chance))
        read.append(survives(writer.add_tokens, Split.VALIDATION, path))
    assert any(read)
    assert not all(read)
