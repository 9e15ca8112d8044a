"""Everything of ours, or of a trainer, that is text and is parsed: a valid file for each, and who reads it.

A target takes the bytes of a file and a folder to write them into. It returns, or raises from the one error tree; anything
else is a finding. tests/fuzz/corpus/TARGET/ holds what once was one.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import json
import pkgutil
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.plain_checkpoints import write_plain
from trajsoup.core.scores import DocumentLosses, ValidationScores
from trajsoup.merge.branches import load_branches
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import mean_row, plan_row
from trajsoup.merge.soup_file import load_soup_file
from trajsoup.merge.verify import verify_soup
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.digest import Algorithm
from trajsoup.store.known_digests import KnownDigests
from trajsoup.store.lock import owner_of
from trajsoup.store.metrics import read_metrics, read_trainer_state
from trajsoup.store.names import load_rules
from trajsoup.store.scores import ScoreKey, validation_store
from trajsoup.store.yaml_file import load_yaml
from trajsoup.study import records
from trajsoup.study.file.study import load_study
from trajsoup.study.records.files import FORMAT, Record, Records
from trajsoup.study.train.outcomes import OUTCOME, end_of

EXAMPLE = Path(__file__).parents[1] / "data" / "example-study"
SOUP_YAML = "fork_point: base\nnormalize: true\ningredients:\n  - {path: a, weight: 0.5}\n  - {path: b, weight: 2}\n"
RULES = (
    'names:\n  - {from: "layers.{n}.wq", to: "model.layers.{n}.q", rope: true}\n  - {from: x, to: [a, b], split: qkv}\n'
)
RUNS = (
    "fork_point: base\nbranches:\n  EXP1:\n    path: runs/a\n    checkpoints:\n"
    "      - {path: checkpoint-1, tokens: 10, val_loss: 2.5}\n      - {path: checkpoint-2, tokens: 20, val_loss: 2.25}\n"
)
STATE = {
    "global_step": 20,
    "num_input_tokens_seen": 200,
    "log_history": [{"step": 10, "loss": 2.5}, {"step": 10, "eval_loss": 2.25, "eval_accuracy": 0.5}],
}
LINES = '{"step": 10, "tokens": 100, "train_loss": 2.5, "val_loss": 2.25}\n{"step": 20, "loss": NaN}\n'
TABLE = "step,tokens,train_loss,val_loss\n10,100,2.5,2.25\n20,200,,2.0\n"
OWNER = {"host": "h", "boot": "b", "processes": "p", "pid": 1, "started": "2", "beat": 3}
CONFIG = {"model_type": "toy", "vocab_size": 10, "auto_map": {"AutoModel": "modeling.Model"}, "torch_dtype": "bfloat16"}


@dataclass(frozen=True)
class Target:
    """A valid file, and who reads it."""

    seed: bytes
    read: Callable[[bytes, Path], object]


def _written(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def target(data: bytes, folder: Path) -> object:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        return read(folder / name)

    return target


def _model(data: bytes, folder: Path, *, name: str) -> object:
    if not (folder / "model").is_dir():
        write_plain(folder / "model", shards=2)
    (folder / "model" / name).write_bytes(data)
    checkpoint = open_checkpoint(folder / "model")
    return checkpoint.config, checkpoint.code(), checkpoint.side_files()


def _soup(folder: Path) -> Path:
    if not (folder / "soup").is_dir():
        for k in range(2):
            write_plain(folder / f"c{k}", {"a": np.full(3, k, "f4")})
        make_soup(plan_row(mean_row([folder / "c0", folder / "c1"])), folder / "soup")
    return folder / "soup"


def _verify(data: bytes, folder: Path) -> object:
    soup = _soup(folder)
    here = str(folder).encode()
    (soup / "soup.json").write_bytes(data.replace(b"/FOLDER/", here + b"/"))
    return verify_soup(soup)


def _index() -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        return (write_plain(Path(folder), shards=2) / "model.safetensors.index.json").read_bytes()


def _soup_record() -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        return (_soup(Path(folder)) / "soup.json").read_bytes().replace(f"{folder}/".encode(), b"/FOLDER/")


KEY = ScoreKey(model="m", corpus="c", suite=None, settings={"window": 8})


def _store(folder: Path) -> Any:
    store = validation_store(folder / "study")
    if not store.folder.is_dir():
        losses = DocumentLosses(nll=np.array([1.5, 2.0]), targets=np.array([3, 4]))
        store.write(KEY, ValidationScores(losses=losses, tasks=(), kept=()), name="m")
    return store


def _scores(data: bytes, folder: Path) -> object:
    store = _store(folder)
    (store.folder / f"{KEY.digest}.json").write_bytes(data)
    return store.read(KEY)


def _score_record() -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        return (_store(Path(folder)).folder / f"{KEY.digest}.json").read_bytes()


def _hashes(path: Path) -> object:
    path.with_name("x").write_bytes(b"x")
    return KnownDigests(path).file(path.with_name("x"), Algorithm.SHA256)


def _card(path: Path) -> object:
    from trajsoup.merge.provenance import unread_card

    return unread_card(path.parent)


def _record(kind: type[Record], name: str | None) -> Callable[[bytes, Path], object]:
    file = f"records/{kind.FILE}{f'/{name}' if name else ''}.json"
    return _written(file, lambda path: Records(path.parents[2 if name else 1]).read(kind, name))


def _kinds_of_record() -> tuple[type[Record], ...]:
    for module in pkgutil.iter_modules(records.__path__, f"{records.__name__}."):
        importlib.import_module(module.name)
    return tuple(kind for kind in Record.__subclasses__() if kind.__module__.startswith(records.__name__))


def _records() -> dict[str, Target]:
    """A record of the example study; of kinds that it has none of, one that is made up from the declared fields."""
    found = {}
    for kind in KINDS_OF_RECORD:
        place = EXAMPLE / "records" / kind.FILE
        path = next(iter(sorted(place.glob("*.json"))), None) if kind.SEVERAL else place.with_suffix(".json")
        name = path.stem if kind.SEVERAL and path is not None else None
        if path is not None and path.is_file():
            seed = path.read_bytes()
        else:
            seed = _json({"format": FORMAT, **_made_up(kind)})
        found[f"record-{kind.FILE}"] = Target(seed, _record(kind, name))
    return found


def _made_up(kind: Any) -> Any:
    """A value of a declared type, as JSON has it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {field.name: _made_up(hints[field.name]) for field in dataclasses.fields(kind)}
    if origin in (types.UnionType, typing.Union):
        return _made_up(inner[0])
    if origin is tuple:
        return [_made_up(one) for one in inner if one is not Ellipsis]
    if origin is Mapping or origin is dict:
        return {"1" if inner[0] is int else "a": _made_up(inner[1])}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind)).value
    return {bool: True, int: 1, float: 0.5, str: "a"}.get(kind, "a")


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()


KINDS_OF_RECORD = _kinds_of_record()
TARGETS: dict[str, Target] = {
    "yaml": Target(SOUP_YAML.encode(), _written("any.yaml", load_yaml)),
    "study": Target((EXAMPLE / "study.yaml").read_bytes(), _written("study.yaml", load_study)),
    "soup-file": Target(SOUP_YAML.encode(), _written("soup.yaml", load_soup_file)),
    "runs-file": Target(RUNS.encode(), _written("runs.yaml", load_branches)),
    "name-rules": Target(RULES.encode(), _written("names.yaml", load_rules)),
    "model-card": Target(b"---\nlicense: mit\nlanguage: [en]\n---\n# Card\n", _written("README.md", _card)),
    "metrics-jsonl": Target(LINES.encode(), _written("metrics.jsonl", lambda path: read_metrics(path.parent))),
    "metrics-csv": Target(TABLE.encode(), _written("csv/metrics.csv", lambda path: read_metrics(path.parent))),
    "trainer-state": Target(_json(STATE), _written("trainer_state.json", read_trainer_state)),
    "config": Target(_json(CONFIG), lambda data, folder: _model(data, folder, name="config.json")),
    "index": Target(_index(), lambda data, folder: _model(data, folder, name="model.safetensors.index.json")),
    "soup-json": Target(_soup_record(), _verify),
    "outcome": Target(_json({"status": "done", "tokens": 5}), _written(OUTCOME, lambda path: end_of(path.parent))),
    "lock": Target(_json(OWNER), _written(".run.lock", owner_of)),
    "identities": Target(_json({"sha256 /x": [[1, 2, 3, 4], "0" * 64]}), _written("identities.json", _hashes)),
    "scores": Target(_score_record(), _scores),
    **_records(),
}
