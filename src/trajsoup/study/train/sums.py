"""sums/RUN/TOKENS/: the sum of all checkpoints of a run by a position, for the Full Soup of a study that deletes them.

    sum so far + new checkpoints -> 1/: it, rounded to their dtype -> 2/: what is left of it -> ... -> sum.json: what is in it
    row over checkpoints that are gone -> the same mean over sums, divided once by how many they were

A sum has more digits than its checkpoints, so it is kept as several of them that add up to it (two of fp32, three of 16
bits): the engine makes and reads them as any other. Where the sum of all checkpoints is exact in the engine's accumulator,
the soup over sums has its bits. A sum appears whole, with what is in it, and only then may a checkpoint in it be deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import FileSink
from trajsoup.engine.workers import Options
from trajsoup.errors import TrainError
from trajsoup.store.checkpoint import INDEX, Checkpoint, open_checkpoint
from trajsoup.store.json_file import read_json
from trajsoup.store.pruning import prune
from trajsoup.store.publish import publishing

FOLDER = "sums"
RECORD = "sum.json"
PARTS = {"F32": 2, "F16": 3, "BF16": 3}  # that hold 48, 33 and 24 bits of a sum; of anything else one is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSum:
    """One sum, as sum.json tells of it."""

    run: str
    tokens: int
    parts: int
    members: Mapping[str, str]  # key of each checkpoint in it -> sha256

    @property
    def folder(self) -> str:
        """Relative to the study."""
        return f"{FOLDER}/{self.run}/{self.tokens}"

    @property
    def keys(self) -> tuple[str, ...]:
        """Of its parts, as rows name them."""
        return tuple(f"{self.folder}/{number}" for number in range(1, self.parts + 1))


def read_sums(output: Path) -> tuple[RunningSum, ...]:
    """Every sum of a study, of each run the newest last."""
    found = [
        read_json(path, RunningSum, cure="train the study again in another `output`", error=TrainError)
        for path in output.glob(f"{FOLDER}/*/*/{RECORD}")
        if not path.parent.name.startswith(".")
    ]
    return tuple(sorted(found, key=lambda one: (one.run, one.tokens)))


def add_to_sum(
    last: RunningSum | None,
    new: Mapping[str, Checkpoint],
    identities: Mapping[str, str],
    *,
    run: str,
    tokens: int,
    output: Path,
    options: Options | None = None,
) -> RunningSum:
    """Publish the sum with these checkpoints in it; the one before stays until `forget_sums`."""
    terms = {**({} if last is None else open_parts(last, output)), **new}
    layout = make_layout(next(iter(new.values())))
    dtypes = {t.dtype for file in layout.files for t in file.header.tensors.values()}
    parts = max(PARTS.get(dtype, 1) for dtype in dtypes)
    members = {**({} if last is None else last.members), **{key: identities[key] for key in new}}
    found = RunningSum(run=run, tokens=tokens, parts=parts, members=members)
    with publishing(output / found.folder, need_bytes=parts * layout.nbytes) as folder:
        made: dict[str, Checkpoint] = {}
        for key in found.keys:
            part = folder / Path(key).name
            part.mkdir()
            left = Row(name=key, weights={**dict.fromkeys(terms, 1.0), **dict.fromkeys(made, -1.0)})
            with FileSink(part, layout, digest=False) as sink:
                blend({**terms, **made}, [left], [sink], layout=layout, options=options)
                sink.finish()
            if (index := layout.index()) is not None:
                (part / INDEX).write_text(json.dumps(index) + "\n", encoding="utf-8")
            made[key] = open_checkpoint(part)
        (folder / RECORD).write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    return found


def forget_sums(sums: Sequence[RunningSum], *, stops: Collection[int], output: Path) -> None:
    """Delete those of one run that no stop needs: each needs the newest by then, and the run itself its newest."""
    needed = {max((s.tokens for s in sums if s.tokens <= stop), default=None) for stop in (*stops, sums[-1].tokens)}
    for one in sums:
        if one.tokens not in needed:  # sum.json goes last: what a kill leaves is found again
            prune([output / key for key in one.keys if (output / key).exists()], below=output / FOLDER)
            shutil.rmtree(output / one.folder)


def open_parts(one: RunningSum, output: Path) -> dict[str, Checkpoint]:
    """Its parts by key."""
    return {key: open_checkpoint(output / key) for key in one.keys}


def as_present(row: Row, *, gone: Collection[str], sums: Sequence[RunningSum]) -> Row:
    """The row as what lies there makes it: over sums where it takes what is gone; as it is where these are not its sums."""
    return (over_sums(row, sums) or row) if any(key in gone for key in row.weights) else row


def over_sums(row: Row, sums: Sequence[RunningSum]) -> Row | None:
    """The same plain mean, of sums; None where these are not sums of exactly what it takes."""
    left, parts = set(row.weights), list[str]()
    for one in sorted(sums, key=lambda one: -len(one.members)):
        if one.members.keys() <= left:
            left -= one.members.keys()
            parts += one.keys
    if left or not row.uniform:
        return None
    return Row(name=row.name, weights=dict.fromkeys(parts, 1 / len(row.weights)), mean_of=len(row.weights))
