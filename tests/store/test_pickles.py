"""A pickle is read as data: what torch writes comes back, everything else is refused by name, and nothing is run."""

import collections
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.errors import CheckpointError
from trajsoup.store.pickles import Record, unpickle

NOTHING: frozenset[str] = frozenset()
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(value=PLAIN, protocol=st.integers(2, 5))
def test_plain_data_come_back_as_the_library_reads_them(value, protocol):
    raw = pickle.dumps(value, protocol=protocol)
    known = frozenset({"_codecs.encode", "__builtin__.bytes"})
    found = unpickle(raw, known=known, where="x")
    assert found == value or any(
        name.encode() in raw for name in ("_codecs", "__builtin__")
    )  # 2 has no bytes of its own


class Gadget:
    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def made(function, *args):
    return pickle.dumps(Gadget(function, *args))


GADGETS = {
    "posix.system": b"cposix\nsystem\n(X\x08\x00\x00\x00touch /xtR.",
    "builtins.eval": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
    "builtins.getattr": made(getattr, "x", "__class__"),
    "builtins.exec": made(exec, "raise SystemExit"),
    "os.path.join": b"\x80\x04\x8c\x07os.path\x8c\x04join\x93.",
    "torch.load": b"\x80\x04\x8c\x05torch\x8c\x04load\x93.",
}


@pytest.mark.parametrize("name", GADGETS)
def test_what_is_not_on_the_list_is_refused_by_name(name):
    with pytest.raises(CheckpointError, match=rf"names '{name}', which is not on the list .* nothing of it was run"):
        unpickle(GADGETS[name], known=frozenset({"torch.Size"}), where="x")


def test_names_on_the_list_are_not_run_either():
    (record,) = [unpickle(made(exec, "raise SystemExit"), known=frozenset({"builtins.exec"}), where="x")]
    assert isinstance(record, Record)
    assert (record.kind, record.args) == ("builtins.exec", ("raise SystemExit",))


@pytest.mark.parametrize("code", [b"i", b"o", b"\x82", b"P", b"\x97", b"\x98", b"\x96", b"I", b"V"])
def test_instructions_that_no_checkpoint_needs_are_refused(code):
    with pytest.raises(CheckpointError, match=r"uses the instruction|breaks"):
        unpickle(b"\x80\x02(" + code + b"os\nsystem\n.", known=NOTHING, where="x")


def nested(depth):
    """A key of a dict: tuples in tuples, each of which holds the one before twice, so that its hash takes 2^depth."""
    raw = b"\x80\x02}K\x01"
    for _ in range(depth):
        raw += b"2\x86"
    return raw + b"K\x01s."


HOSTILE = {
    "exponential key": nested(60),
    "deep key": b"\x80\x02}K\x01" + b"\x85" * 200_000 + b"K\x01s.",
    "claims more text than there is": b"\x80\x02X" + struct.pack("<L", 2**31) + b"x.",
    "claims more bytes than there are": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
    "memo far away": b"\x80\x02Nr\xff\xff\xff\xffj\xff\xff\xff\xfe.",
    "nothing on the stack": b"\x80\x02R.",
    "no mark": b"\x80\x02t.",
    "no end": b"\x80\x02]" * 10,
    "two values": b"\x80\x02NN.",
    "empty": b"",
    "unknown protocol": b"\x80\x09N.",
    "set item of a list": b"\x80\x02]NNs.",
    "call of a number": b"\x80\x02K\x01)R.",
    "list as key": b"\x80\x02}]Ns.",
    "half a pair": b"\x80\x02}(Nu.",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles_are_refused_in_one_line(case):
    with pytest.raises(CheckpointError) as error:
        unpickle(HOSTILE[case], known=frozenset({"torch.Size"}), where="file.pt")
    assert str(error.value).startswith("file.pt")
    assert "\n" not in str(error.value)


def test_too_many_instructions_are_refused(monkeypatch):
    monkeypatch.setattr("trajsoup.store.pickles.MAX_INSTRUCTIONS", 1000)
    with pytest.raises(CheckpointError, match="has more than 1,000 instructions"):
        unpickle(b"\x80\x02" + b"N" * 2000 + b".", known=NOTHING, where="x")
    monkeypatch.setattr("trajsoup.store.pickles.MAX_BYTES", 10)
    with pytest.raises(CheckpointError, match="a pickle of 11 bytes"):
        unpickle(bytes(11), known=NOTHING, where="x")


def test_ordered_dicts_are_dicts_and_their_attributes_are_passed_over():
    value = collections.OrderedDict(a=1)
    value._metadata = {"version": 1}
    known = frozenset({"collections.OrderedDict"})
    assert unpickle(pickle.dumps(value, protocol=2), known=known, where="x") == {"a": 1}
