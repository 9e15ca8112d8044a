"""How far a study is: a listing of its records, which name what they were made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trajsoup.study.file.evaluation import SweepKind
from trajsoup.study.file.setup import Setup, with_seed
from trajsoup.study.records.files import Records
from trajsoup.study.train.outcomes import METRICS, Status, finished_outcome

CHAIN = ("plan", "train", "validation", "screen", "rows", "evaluations", "comparisons", "theory", "geometry", "answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """One line."""

    seed: int | None
    stage: str
    state: str  # done, to do, out of date
    detail: str | None = None


def stages_of(setup: Setup) -> tuple[StageState, ...]:
    """Every stage of every seed. A record whose inputs are no longer those that exist is out of date."""
    found: list[StageState] = []
    for seed in range(setup.seeds):
        found += _one(with_seed(setup, seed))
    if setup.seeds > 1:
        found.append(StageState(seed=None, stage="seeds", state=_state_of_seeds(setup)))
    return tuple(found)


def _state_of_seeds(setup: Setup) -> str:
    inputs = Records(setup.output).inputs("seeds")
    if inputs is None:
        return "to do"
    seen: set[int] = set()
    for name, digest in inputs.items():
        seed, _, record = name.removeprefix("seed-").partition("/")
        records = Records(with_seed(setup, int(seed)).output)
        record = record or "comparisons"
        if not records.path(record).is_file() or records.digest(record) != digest:
            return "out of date"
        seen.add(int(seed))
    return "done" if seen == set(range(setup.seeds)) else "out of date"


def _one(setup: Setup) -> list[StageState]:
    records = Records(setup.output)
    sweeps = [f"sweeps/{sweep.name}" for sweep in setup.sweeps]
    sweeps += ["frontier"] if any(sweep.kind is SweepKind.FRONTIER for sweep in setup.sweeps) else []
    tuning = ["sft"] if setup.sft is not None else []
    pruning = ["retention"] if setup.study is not None and setup.study.retention is not None else []
    found: list[StageState] = []
    stale = False
    for name in (*CHAIN[:-1], *sweeps, *tuning, CHAIN[-1], *pruning):
        inputs = records.inputs(name)
        state = "to do"
        if inputs is not None:
            known = {"study": setup.digest}
            there = {key: records.digest(key) for key in inputs if records.path(key).is_file()}
            fits = all(value == {**known, **there}.get(key, value) for key, value in inputs.items())
            stale = stale or not fits
            state = "out of date" if stale else "done"
        found.append(StageState(seed=setup.seed, stage=name, state=state, detail=_detail(setup, name, state)))
    return found


def _detail(setup: Setup, name: str, state: str) -> str | None:
    """Of a training that is not over: which branches are."""
    if name != "train" or state == "done" or setup.study is None:
        return None
    parts: list[str] = []
    for branch in setup.study.recipes:
        folder: Path = setup.output / "branches" / branch
        over = finished_outcome(branch, folder, horizon=0)
        begun = (folder / METRICS).is_file()
        parts.append(f"{branch} {Status.FINISHED.value if over else 'begun' if begun else 'not begun'}")
    return ", ".join(parts)
