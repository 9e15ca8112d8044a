"""What `run` was given: a study file to train, or runs that exist (written by `scan`), under one face.

study.yaml -> Setup -> workbench.py (corpus, checkpoints, pools) -> stages.py
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajsoup.core.recipe import Recipe
from trajsoup.errors import OutputError, StudyError
from trajsoup.merge.branches import Branches, load_branches
from trajsoup.store.identity import FileHashes
from trajsoup.store.remote import RemotePath
from trajsoup.store.yaml_file import load_yaml
from trajsoup.study.file.evaluation import EvaluationPlan, FineTuningPlan, parse_evaluation, parse_sft
from trajsoup.study.file.study import Study, load_study, parse_corpus
from trajsoup.study.file.sweeps import parse_sweeps
from trajsoup.study.file.trainer import SHAPES_RESULTS
from trajsoup.study.publish import parse_publish
from trajsoup.study.records.files import digest_of
from trajsoup.study.sweeps.table import Sweep
from trajsoup.study.train.data import cache_folder

VERSION = 2  # raise it when the same study would give other records
SEED_STEP = 10_000  # between the data orders of two seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A study that can be run. Exactly one of `study` (trains) and `foreign` (runs that exist) is there."""

    path: Path
    output: Path  # records/, scores/, soup/ and, if it trains, branches/
    title: str
    evaluation: EvaluationPlan
    sweeps: tuple[Sweep, ...]
    sft: FineTuningPlan | None
    seeds: int
    seed: int | None
    study: Study | None = None
    foreign: Branches | None = None
    corpus: Mapping[str, Any] | None = None
    publish: RemotePath | None = None

    @property
    def digest(self) -> str:
        """Of everything that shapes the records; documents by content."""
        source = self.study if self.study is not None else self.foreign
        assert source is not None
        left_out = (
            "path",
            "output",
            "report_to",
            "corpus",
            "evaluation",
            "sweeps",
            "sft",
            "seeds",
            "notes",
            "retention",
        )
        fields = {f.name: getattr(source, f.name) for f in dataclasses.fields(source) if f.name not in left_out}
        return digest_of([VERSION, _plain(fields, self.path.parent), self._documents()])

    def _documents(self) -> Any:
        """The corpus by content: a file that changed without changing its size is another corpus."""
        hashes = FileHashes(cache_folder() / "hashes.json")
        found = _by_content(self.corpus, hashes)
        with contextlib.suppress(OutputError):  # a memory that cannot be written costs time, nothing else
            hashes.save()
        return found


def load_setup(path: Path) -> Setup:
    """Read a study file of either kind."""
    data = load_yaml(path)
    publish = parse_publish(data.get("publish"), where=f"{path}: publish")
    if not _is_foreign(data):
        study = load_study(path)
        return Setup(
            path=path,
            output=study.output,
            title=path.stem if path.stem != "study" else path.absolute().parent.name,
            evaluation=study.evaluation,
            sweeps=study.sweeps,
            sft=study.sft,
            seeds=study.seeds,
            seed=0,
            study=study,
            corpus=study.corpus,
            publish=publish,
        )
    where = str(path)
    if data.get("corpus") is None:
        raise StudyError(
            f"{where}: the soups of these runs must be scored, and it names no documents: add `corpus: {{train: FILES}}` "
            "(validation and test documents are split off), or use `trajsoup merge` with a K of your choice"
        )
    foreign = load_branches(path)
    screened = {"baseline": foreign.baseline, "tolerance": foreign.tolerance, "force": list(foreign.force)}
    evaluate = data.get("evaluate") or {}
    if isinstance(evaluate, dict):
        evaluate = {**screened, **evaluate}
    return Setup(
        path=path,
        output=path.parent / f"{path.stem}-soups",
        title=path.stem,
        evaluation=parse_evaluation(
            evaluate, branches=tuple(b.name for b in foreign.branches), where=f"{where}: evaluate"
        ),
        sweeps=parse_sweeps(data.get("sweeps"), where=f"{where}: sweeps"),
        sft=parse_sft(data["sft"] or {}, where=f"{where}: sft") if "sft" in data else None,
        seeds=1,
        seed=None,
        foreign=foreign,
        corpus=parse_corpus(data["corpus"], path.parent, f"{where}: corpus"),
        publish=publish,
    )


def with_seed(setup: Setup, seed: int) -> Setup:
    """The same study with another seed of everything: fresh weights, pretraining order, data order of every branch."""
    if seed == 0 or setup.study is None:
        return setup
    study = setup.study

    def moved(recipe: Recipe) -> Recipe:
        return dataclasses.replace(recipe, seed=recipe.seed + SEED_STEP * seed)

    pretrain = study.pretrain
    if pretrain is not None:
        pretrain = dataclasses.replace(pretrain, seed=pretrain.seed + seed, recipe=moved(pretrain.recipe))
    output = setup.output / "seeds" / str(seed)
    changed = dataclasses.replace(
        study,
        output=output,
        pretrain=pretrain,
        baseline=moved(study.baseline),
        recipes={name: moved(recipe) for name, recipe in study.recipes.items()},
    )
    return dataclasses.replace(setup, study=changed, output=output, seed=seed, seeds=1)


def _is_foreign(data: Mapping[str, Any]) -> bool:
    branches = data.get("branches")
    entries = branches.values() if isinstance(branches, dict) else ()
    return any(isinstance(entry, dict) and "checkpoints" in entry for entry in entries)


def _by_content(value: Any, hashes: FileHashes) -> Any:
    """Values that JSON knows; files and folders as the hashes of what they hold."""
    if isinstance(value, Path):
        if value.is_file():
            return hashes.file(value)
        return [[str(p.relative_to(value)), hashes.file(p)] for p in sorted(value.rglob("*")) if p.is_file()]
    if isinstance(value, Mapping):
        return {str(key): _by_content(item, hashes) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_by_content(item, hashes) for item in value]
    return value


def _plain(value: Any, base: Path) -> Any:
    """Values that JSON knows; paths relative to the study file, with the size of what they name."""
    if isinstance(value, Path):
        size = value.stat().st_size if value.is_file() else None
        return [os.path.relpath(value, base), size]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {f.name: (getattr(value, f.name), f.metadata.get(SHAPES_RESULTS)) for f in dataclasses.fields(value)}
        return {name: _plain(item, base) for name, (item, shapes) in found.items() if shapes is None or shapes(item)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item, base) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, base) for item in value]
    return value
