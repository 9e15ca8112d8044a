"""A Gram matrix survives JSON bit for bit."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from trajsoup.core.gram import WHOLE, Gram, Nonfinite, Products, subset
from trajsoup.core.gram_record import GramRecord, gram_of, named, record_of
from trajsoup.errors import GeometryError
from trajsoup.store.json_file import decode_json


@pytest.fixture
def gram() -> Gram:
    x = np.random.default_rng(0).standard_normal((4, 9))
    d = x - x[0]
    products = Products(inner=d @ d.T, along_centre=d @ x[0], centre_square=float(x[0] @ x[0]), elements=9)
    bad = (Nonfinite(key="b", file="model.safetensors", tensor="w"),)
    return Gram(keys=("fork", "a", "b", "c"), centre="fork", groups={WHOLE: products, "mlp": products}, nonfinite=bad)


def test_json_keeps_every_bit(gram):
    text = json.dumps(asdict(record_of(gram))).encode()
    back = gram_of(decode_json(text, GramRecord, where="-", cure="-", error=GeometryError))
    assert (back.keys, back.centre, back.nonfinite) == (gram.keys, gram.centre, gram.nonfinite)
    for name, products in gram.groups.items():
        assert np.array_equal(back.group(name).inner, (products.inner + products.inner.T) / 2)
        assert np.array_equal(back.group(name).along_centre, products.along_centre)
        assert back.group(name).centre_square == products.centre_square


def test_a_damaged_record_is_refused(gram):
    record = record_of(gram)
    with pytest.raises(GeometryError, match="format 'other'"):
        gram_of(replace(record, format="other"))
    with pytest.raises(GeometryError, match="damaged"):
        gram_of(replace(record, keys=("a",)))


def test_hashes_get_names_and_two_names_of_one_content_get_equal_rows(gram):
    found = named(gram, {"base": "fork", "x": "b", "y": "b", "z": "a"}, centre="base")
    assert (found.keys, found.centre) == (("base", "x", "y", "z"), "base")
    assert found.bad_keys() == {"x", "y"}
    assert np.array_equal(found.whole.inner[1], found.whole.inner[2])
    assert found.whole.inner[1, 3] == gram.whole.inner[2, 1]


def test_a_subset_is_reordered_and_forgets_the_rest(gram):
    found = subset(gram, ["c", "fork"])
    assert found.centre == "fork"
    assert found.whole.inner[0, 0] == gram.whole.inner[3, 3]
    assert found.nonfinite == ()
    assert subset(gram, ["a"]).centre is None
    with pytest.raises(GeometryError, match="z is not in"):
        subset(gram, ["z"])
