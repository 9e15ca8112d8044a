"""The bytes of soups and the numbers of a study's records are what they were: no rebuilding may change them."""

import hashlib
import json
import math

import pytest

from tests.command import succeeds
from tests.golden.study import GOLDEN, run_golden, said
from tests.runs import SIDE_FILES

SOUPS = (  # the runs are those of tests/runs.py
    "EXP1 EXP2 --k 2",
    "EXP1 EXP2 --k 3 --weights rank",
    "EXP1 EXP2 --k 2 --weights rsqrt --rank-by accuracy",
    "EXP1 EXP2 --k 2 --select global",
    "EXP1 EXP2 --k 2 --select tail-k --weights 1sqrt",
    "EXP1 EXP2 --strategy model-soup",
    "EXP1 EXP2 --strategy full-soup",
    "EXP1 EXP2 --strategy single-merge --k 2",
    "EXP1 EXP2 EXP3 --k 2 --no-screen --dtype fp32",
    "EXP1 EXP2 --k 1 --horizon 20k --shard-size 2KB",
    "EXP1/checkpoint-10=0.75 EXP2/checkpoint-20=0.5 EXP3/checkpoint-30=-0.25",
)
RELATIVE, ABSOLUTE = 2e-4, 2e-6  # float32 sums differ between processors; what is chosen may not


@pytest.mark.parametrize("words", SOUPS)
def test_a_soup_has_the_bytes_it_always_had(runs, tmp_path, words, golden_soups):
    inputs = [str(runs / word) if word.startswith("EXP") else word for word in words.split()]
    succeeds("merge", *inputs, "--output", tmp_path / "soup")
    found = hashlib.sha256()
    for file in sorted((tmp_path / "soup").glob("*.safetensors")):
        found.update(file.read_bytes())
    assert found.hexdigest() == golden_soups[words]
    assert {name for name in SIDE_FILES if not (tmp_path / "soup" / name).is_file()} == set()


@pytest.fixture(scope="module")
def golden_soups():
    return json.loads(GOLDEN.with_name("soups.json").read_text())


def test_a_study_says_what_it_always_said(tmp_path):
    differences = list(_differences(json.loads(GOLDEN.read_text()), said(run_golden(tmp_path)), "records"))
    assert not differences, "\n".join(differences[:20])


def _differences(golden, found, where):
    """Everything of the golden records that is not there, or is another number."""
    if isinstance(golden, dict):
        if not isinstance(found, dict):
            yield f"{where}: {type(found).__name__} instead of a mapping"
            return
        for key, value in golden.items():
            if key not in found:
                yield f"{where}.{key} is gone"
            else:
                yield from _differences(value, found[key], f"{where}.{key}")
    elif isinstance(golden, list):
        if not isinstance(found, list) or len(found) != len(golden):
            yield f"{where}: another number of entries"
            return
        for i, (one, other) in enumerate(zip(golden, found, strict=True)):
            yield from _differences(one, other, f"{where}[{i}]")
    elif isinstance(golden, float) and isinstance(found, int | float):
        if not math.isclose(golden, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            yield f"{where}: {found!r} instead of {golden!r}"
    elif golden != found:
        yield f"{where}: {found!r} instead of {golden!r}"
