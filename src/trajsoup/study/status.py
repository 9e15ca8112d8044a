"""How far a study is: a listing of its records, which name what they were made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trajsoup.store.lock import holder_of
from trajsoup.study.file.study import Setup, Study, with_seed
from trajsoup.study.records.files import LOCK, Records, name_of
from trajsoup.study.records.seeds import SeedsRecord
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.stages import STAGES
from trajsoup.study.stages.seeds import seeds_inputs
from trajsoup.study.train.outcomes import METRICS, finished_outcome
from trajsoup.study.train.processes import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """One stage and where it stands."""

    seed: int | None = None  # of a study with several; None: of all, or of the one there is
    stage: str
    state: str  # done, running, waiting, out of date
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
    inputs = Records(setup.output).inputs(SeedsRecord.FILE)
    if inputs is None:
        return "waiting"
    return "done" if inputs == seeds_inputs(setup) else "out of date"


def _one(setup: Setup) -> list[StageState]:
    records = Records(setup.output)
    names: list[str] = []
    for stage in STAGES:
        if stage.is_wanted(setup):
            names += [name_of(SweepRecord, s.name) for s in setup.sweeps] if stage.record.SEVERAL else [stage.name]
    found: list[StageState] = []
    stale, at_work = False, holder_of(setup.output / LOCK) is not None
    for name in names:
        inputs = records.inputs(name)
        state = "running" if inputs is None and at_work else "waiting"
        at_work = at_work and inputs is not None
        if inputs is not None:
            now = {"study": setup.digest, **records.digests_by_name(inputs)}
            stale = stale or any(value != now.get(key, value) for key, value in inputs.items())
            state = "out of date" if stale else "done"
        found.append(StageState(seed=setup.seed, stage=name, state=state, detail=_detail(setup, name, state)))
    return found


def _detail(setup: Setup, name: str, state: str) -> str | None:
    """Of a training that is not over: which branches are."""
    if name != "train" or state == "done" or not isinstance(setup, Study):
        return None
    parts: list[str] = []
    for branch in setup.recipes:
        folder: Path = setup.output / "branches" / branch
        over = finished_outcome(branch, folder, horizon=0)
        begun = (folder / METRICS).is_file()
        parts.append(f"{branch} {Status.FINISHED.value if over else 'begun' if begun else 'not begun'}")
    return ", ".join(parts)
