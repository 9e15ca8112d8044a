"""How tests run a blend."""

from __future__ import annotations

from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import MemorySink
from trajsoup.store.checkpoint import Checkpoint


def mean_of(*keys: str, name: str = "soup") -> Row:
    return Row(name=name, weights=dict.fromkeys(keys, 1 / len(keys)))


def soup(checkpoints: dict[str, Checkpoint], *rows: Row, dtype: str | None = None, template: str | None = None, **call):
    """The tensors of every row."""
    first = checkpoints[template or next(iter(checkpoints))]
    layout = make_layout(first, dtype=dtype)
    sinks = [MemorySink(layout) for _ in rows]
    blend(checkpoints, rows, sinks, layout=layout, **call)
    return [sink.tensors() for sink in sinks]
