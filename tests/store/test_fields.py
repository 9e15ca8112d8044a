"""A field of a file is declared once; reading, messages and docs follow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest

from trajsoup.core.quantity import Count, Positive, Share, Tokens
from trajsoup.errors import StudyError
from trajsoup.store.fields import MAY_BE_EMPTY, NO_RESULTS, At, ChangesOf, Key, Name, Shapes, declared, read, shaping


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: Annotated[Count, "How many."] = 3
    share: Annotated[Share, "Of all."] = 0.5

    def __post_init__(self):
        if self.size == 13:
            raise StudyError("size is 13: choose a luckier one")


@dataclass(frozen=True, kw_only=True)
class Outer:
    MISPLACED: ClassVar = {"sise": "belongs under `inner`"}

    path: Path  # no help: given by who reads, no field of the file
    tokens: Annotated[Tokens, "To train on."]
    rate: Annotated[Positive, NO_RESULTS, "Of learning."] = 1.0
    colour: Annotated[Colour, "Of the line."] = Colour.RED
    shape: Annotated[Literal["a", "b"], "Of the line."] = "a"
    folder: Annotated[Path | None, "Beside the file."] = None
    names: Annotated[tuple[Name, ...], "Any."] = ()
    flag: Annotated[bool, "On or off."] = False
    count: Annotated[int, Shapes(lambda value: value != 1), "Of machines."] = 1
    inner: Annotated[Inner, "More."] = field(default_factory=lambda: Inner(size=7))
    maybe: Annotated[Inner | None, MAY_BE_EMPTY, "More, if wanted."] = None
    entries: Annotated[Mapping[str, Inner], Key("items"), ChangesOf("inner"), "By name."] = field(default_factory=dict)
    several: Annotated[tuple[Inner, ...], "A list."] = ()


def outer(**data):
    return read(Outer, {"tokens": "1k", **data}, where=At("f.yaml", Path("/home")), path=Path("f.yaml"))


def test_every_kind_of_field_is_read_as_its_type_says():
    found = outer(
        rate="1e-3", colour="blue", shape="b", folder="x", names=["a", 1], flag=True, inner={"share": "10%"},
        items={"EXP1": {}, "EXP2": {"size": 2}, 3: None}, several=[{"size": 1}],
    )  # fmt: skip
    assert (found.tokens, found.rate, found.colour, found.shape, found.flag) == (1000, 0.001, Colour.BLUE, "b", True)
    assert (found.folder, found.names) == (Path("/home/x"), ("a", "1"))
    assert found.inner == Inner(size=7, share=0.1)  # what is left out is as in the default
    assert found.entries == {  # and in an entry as in the field that it changes
        "EXP1": found.inner, "EXP2": Inner(size=2, share=0.1), "3": found.inner,
    }  # fmt: skip
    assert found.several == (Inner(size=1),)


def test_null_is_left_out_except_where_nothing_asks_for_the_defaults():
    found = outer(rate=None, inner=None, maybe=None)
    assert (found.rate, found.inner, found.maybe) == (1.0, Inner(size=7), Inner())
    assert outer().maybe is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"tokens": None}, "f.yaml: `tokens` is missing: To train on."),
        ({"tokens": "many"}, "f.yaml: tokens is 'many': write tokens as a number"),
        ({"tokens": True}, "tokens is True"),
        ({"colur": "red"}, "f.yaml: unknown key 'colur': did you mean 'colour'?"),
        ({"path": "x"}, "unknown key 'path'"),
        ({"sise": 1}, "f.yaml: 'sise' belongs under `inner`"),
        ({"entries": {}}, "unknown key 'entries'"),
        ({"colour": "green"}, "f.yaml: colour is 'green': use red or blue"),
        ({"colour": ["red"]}, "colour is ['red']: use red or blue"),
        ({"shape": "c"}, "shape is 'c': use a or b"),
        ({"flag": "yes"}, "flag is 'yes': use true or false"),
        ({"rate": 0}, "rate is 0: use a number above 0"),
        ({"count": -1}, "count is -1: use a whole number of 0 or more"),
        ({"count": 1.5}, "count is 1.5: use a whole number"),
        ({"folder": ["x"]}, "folder is ['x']: write a name"),
        ({"names": {"a": 1}}, "names is {'a': 1}: write a list"),
        ({"inner": 3}, "f.yaml: inner: expected `key: value` lines, got 3"),
        ({"inner": {"size": 0}}, "f.yaml: inner: size is 0: use a whole number of 1 or more"),
        ({"inner": {"size": 13}}, "f.yaml: inner: size is 13: choose a luckier one"),
        ({"items": [1]}, "items is [1]: write `name: value` pairs"),
        ({"items": {"EXP2": {"share": "200%"}}}, "f.yaml: items: EXP2: share is '200%'"),
        ({"several": [{}, {"size": "x"}]}, "f.yaml: several, number 2: size is 'x'"),
        ({"several": {"size": 1}}, "several is {'size': 1}: write a list"),
    ],
)
def test_what_does_not_fit_is_one_message_with_place_value_and_remedy(data, message):
    with pytest.raises(StudyError) as caught:
        outer(**data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_what_shapes_results_is_part_of_a_digest():
    assert not {"rate", "count"} & shaping(outer(rate=5)).keys()
    assert shaping(outer(count=2))["count"] == 2


def test_a_declaration_says_what_the_docs_say():
    (size, share) = declared(Inner)
    assert (size.key, size.help, size.default) == ("size", "How many.", 3)
    assert share.default == 0.5
    assert [f.key for f in declared(Outer)][-3:] == ["maybe", "items", "several"]
