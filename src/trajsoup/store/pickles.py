"""Pickles read as data: a list of names that may occur, and nothing is ever imported, called or built from them.

    bytes -> unpickle -> dicts, lists, tuples, numbers, text, and `Record`s for everything else

A pickle is a program for a small stack machine, and `pickle.load` runs whatever function it names. This machine has the
same instructions but knows no function: a call leaves a `Record` of the name and the arguments. A name that is not on
the list is refused. Work and memory are bounded by the number of instructions, and what may be a key of a dict by its
depth, since hashing a nest of tuples that share their parts takes exponential time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from trajsoup.errors import CheckpointError

MAX_BYTES = 256 << 20
MAX_INSTRUCTIONS = 20_000_000  # about half a million chunks of a sharded checkpoint
MAX_KEY_DEPTH = 4
MAX_KEY_ITEMS = 32


class Name(str):
    """A class or function that a pickle names: its module and its name, joined by a dot."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class Record:
    """What would be an object: the name that was called, its arguments, and the state given to it afterwards."""

    kind: str
    args: tuple[Any, ...] = ()
    state: Any = field(default_factory=dict[str, Any])

    def get(self, name: str, default: Any = None) -> Any:
        """A field of the state."""
        return self.state.get(name, default) if isinstance(self.state, dict) else default


class _Malformed(Exception):
    """The pickle breaks the rules of its machine."""


def unpickle(raw: bytes, *, known: frozenset[str], where: str) -> Any:
    """The value of a pickle whose names are all `known`. `where` begins the message of the CheckpointError otherwise."""
    if len(raw) > MAX_BYTES:
        raise CheckpointError(f"{where} has a pickle of {len(raw):,} bytes, more than {MAX_BYTES:,}: it is refused")
    machine = _Machine(raw, known, where)
    try:
        return machine.run()
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error, _Malformed) as error:
        raise CheckpointError(
            f"{where} is damaged: its pickle breaks off or breaks the rules at byte {machine.position:,}. Copy or save "
            "it again"
        ) from error


def pickled(value: Any) -> bytes:
    """The pickle (protocol 2) that `unpickle` reads as `value`: names and `Record`s become what they stand for."""
    return b"\x80\x02" + b"".join(_pickled(value)) + b"."


def _pickled(value: Any) -> Iterator[bytes]:
    if value is None or isinstance(value, bool):
        yield {None: b"N", True: b"\x88", False: b"\x89"}[value]
    elif isinstance(value, Name):
        module, _, name = value.rpartition(".")
        yield f"c{module}\n{name}\n".encode()
    elif isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        yield b"X" + struct.pack("<L", len(raw)) + raw
    elif isinstance(value, int):
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        yield b"\x8a" + bytes([len(raw)]) + raw
    elif isinstance(value, tuple | list):
        yield b"(" if isinstance(value, tuple) else b"]("
        for inner in value:
            yield from _pickled(inner)
        yield b"t" if isinstance(value, tuple) else b"e"
    elif isinstance(value, dict):
        yield b"}("
        for key, inner in value.items():
            yield from _pickled(key)
            yield from _pickled(inner)
        yield b"u"
    elif isinstance(value, Record) and value.kind == "persistent":
        yield from _pickled(value.args[0])
        yield b"Q"
    else:
        assert isinstance(value, Record)
        yield from _pickled(Name(value.kind))
        yield from _pickled(value.args)
        if value.state:  # an object: made empty, then given its state
            yield b"\x81"
            yield from _pickled(value.state)
            yield b"b"
        else:
            yield b"R"


class _Machine:
    """The stack, the marks and the memo of one pickle."""

    def __init__(self, raw: bytes, known: frozenset[str], where: str) -> None:
        self.raw, self.known, self.where = raw, known, where
        self.position = 0
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        raw, table = self.raw, _INSTRUCTIONS
        for _ in range(min(len(raw), MAX_INSTRUCTIONS)):
            code = raw[self.position]
            self.position += 1
            if code == 0x2E:  # STOP
                if self.marked or len(self.stack) != 1:
                    raise _Malformed
                return self.stack[0]
            instruction = table.get(code)
            if instruction is None:
                self.refuse(f"uses the instruction {code:#04x}, which no checkpoint needs")
            instruction(self)
        if len(raw) > MAX_INSTRUCTIONS:
            self.refuse(f"has more than {MAX_INSTRUCTIONS:,} instructions")
        raise _Malformed

    def refuse(self, why: str) -> NoReturn:
        raise CheckpointError(
            f"{self.where}: its pickle {why}. It is refused, and nothing of it was run: save the weights alone, or as "
            "safetensors"
        )

    def take(self, count: int) -> bytes:
        begin = self.position
        if count < 0 or begin + count > len(self.raw):
            raise _Malformed
        self.position = begin + count
        return self.raw[begin : begin + count]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def line(self) -> str:
        end = self.raw.index(b"\n", self.position)
        return self.take(end + 1 - self.position)[:-1].decode("utf-8")

    def above_mark(self) -> list[Any]:
        found, self.stack = self.stack, self.marked.pop()
        return found

    def name(self, module: Any, name: Any) -> Name:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise _Malformed
        full = f"{module}.{name}"
        if full not in self.known:
            self.refuse(f"names {full[:200]!r}, which is not on the list of what a checkpoint needs")
        return Name(full)

    def call(self, what: Any, args: Any) -> Any:
        if not isinstance(what, Name) or type(args) is not tuple:
            raise _Malformed
        if what in _MAPPINGS:
            return _mapping(args[0] if what == "collections.OrderedDict" and args else [])
        if what == "torch.Size":
            (sizes,) = args
            return tuple(sizes)
        return Record(str(what), args)


def _mapping(pairs: Any) -> dict[Any, Any]:
    if type(pairs) is not list:
        raise _Malformed
    return {_key(key): value for key, value in pairs}


def _key(value: Any, depth: int = 0) -> Any:
    """A value that may be hashed: its time is bounded."""
    if type(value) is tuple:
        if depth == MAX_KEY_DEPTH or len(value) > MAX_KEY_ITEMS:
            raise _Malformed
        for part in value:
            _key(part, depth + 1)
    elif not isinstance(value, str | int | float | bytes | Record | None):
        raise _Malformed
    return value


def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    def instruction(m: _Machine) -> None:
        m.stack.append(make(m))

    return instruction


def _long(m: _Machine) -> int:
    return int.from_bytes(m.take(m.number(1)), "little", signed=True)


def _text(size: int) -> Callable[[_Machine], str]:
    return lambda m: m.take(m.number(size)).decode("utf-8", "surrogatepass")


def _bytes(size: int) -> Callable[[_Machine], bytes]:
    return lambda m: m.take(m.number(size))


def _tuple(count: int) -> Callable[[_Machine], None]:
    def instruction(m: _Machine) -> None:
        if len(m.stack) < count:
            raise _Malformed
        m.stack[-count:] = [tuple(m.stack[-count:])]

    return instruction


def _mark(m: _Machine) -> None:
    m.marked.append(m.stack)
    m.stack = []


def _marked_tuple(m: _Machine) -> None:
    found = tuple(m.above_mark())
    m.stack.append(found)


def _marked_list(m: _Machine) -> None:
    found = m.above_mark()
    m.stack.append(found)


def _pairs(found: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(found[::2], found[1::2], strict=True))


def _marked_dict(m: _Machine) -> None:
    found = _mapping(_pairs(m.above_mark()))
    m.stack.append(found)


def _frozen(m: _Machine) -> None:
    found = m.above_mark()
    m.stack.append(frozenset(_key(value) for value in found))


def _append(m: _Machine) -> None:
    value = m.stack.pop()
    _require(m.stack[-1], list).append(value)


def _appends(m: _Machine) -> None:
    found = m.above_mark()
    _require(m.stack[-1], list).extend(found)


def _set_item(m: _Machine) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    _require(m.stack[-1], dict)[_key(key)] = value


def _set_items(m: _Machine) -> None:
    found = _pairs(m.above_mark())
    target = _require(m.stack[-1], dict)
    for key, value in found:
        target[_key(key)] = value


def _add_items(m: _Machine) -> None:
    found = m.above_mark()
    _require(m.stack[-1], set).update(_key(value) for value in found)


def _require(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise _Malformed
    return value


def _remember(number: Callable[[_Machine], int]) -> Callable[[_Machine], None]:
    def instruction(m: _Machine) -> None:
        m.memo[number(m)] = m.stack[-1]

    return instruction


def _global(m: _Machine) -> Name:
    return m.name(m.line(), m.line())


def _stacked_global(m: _Machine) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    m.stack.append(m.name(module, name))


def _reduce(m: _Machine) -> None:
    args, what = m.stack.pop(), m.stack.pop()
    m.stack.append(m.call(what, args))


def _new_with_names(m: _Machine) -> None:
    named, args, what = m.stack.pop(), m.stack.pop(), m.stack.pop()
    made = m.call(what, args)
    if isinstance(made, Record):
        made.state = dict(_require(named, dict))
    m.stack.append(made)


def _build(m: _Machine) -> None:
    state, target = m.stack.pop(), m.stack[-1]
    if isinstance(target, Record):
        target.state = state
    else:
        _require(target, dict)  # attributes of an OrderedDict: a model's _metadata, say


def _persistent(m: _Machine) -> None:
    m.stack.append(Record("persistent", (m.stack.pop(),)))


def _pop(m: _Machine) -> None:
    if m.stack:
        m.stack.pop()
    else:
        m.above_mark()


def _frame(m: _Machine) -> None:
    m.take(8)


def _protocol(m: _Machine) -> None:
    if m.number(1) > 5:
        raise _Malformed


_MAPPINGS = frozenset({"collections.OrderedDict", "collections.defaultdict"})
_INSTRUCTIONS: Mapping[int, Callable[[_Machine], None]] = {
    0x80: _protocol,
    0x95: _frame,
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): lambda m: [m.above_mark(), None][1],
    ord("2"): _push(lambda m: m.stack[-1]),
    ord("N"): _push(lambda m: None),
    0x88: _push(lambda m: True),
    0x89: _push(lambda m: False),
    ord("J"): _push(lambda m: int.from_bytes(m.take(4), "little", signed=True)),
    ord("K"): _push(lambda m: m.number(1)),
    ord("M"): _push(lambda m: m.number(2)),
    0x8A: _push(_long),
    ord("G"): _push(lambda m: struct.unpack(">d", m.take(8))[0]),
    ord("X"): _push(_text(4)),
    0x8C: _push(_text(1)),
    0x8D: _push(_text(8)),
    ord("T"): _push(lambda m: m.take(m.number(4)).decode("latin-1")),
    ord("U"): _push(lambda m: m.take(m.number(1)).decode("latin-1")),
    ord("B"): _push(_bytes(4)),
    ord("C"): _push(_bytes(1)),
    0x8E: _push(_bytes(8)),
    ord("]"): _push(lambda m: []),
    ord("}"): _push(lambda m: {}),
    ord(")"): _push(lambda m: ()),
    0x8F: _push(lambda m: set()),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("t"): _marked_tuple,
    ord("l"): _marked_list,
    ord("d"): _marked_dict,
    0x91: _frozen,
    ord("a"): _append,
    ord("e"): _appends,
    ord("s"): _set_item,
    ord("u"): _set_items,
    0x90: _add_items,
    ord("h"): _push(lambda m: m.memo[m.number(1)]),
    ord("j"): _push(lambda m: m.memo[m.number(4)]),
    ord("q"): _remember(lambda m: m.number(1)),
    ord("r"): _remember(lambda m: m.number(4)),
    0x94: _remember(lambda m: len(m.memo)),
    ord("c"): _push(_global),
    0x93: _stacked_global,
    ord("R"): _reduce,
    0x81: _reduce,
    0x92: _new_with_names,
    ord("b"): _build,
    ord("Q"): _persistent,
}
