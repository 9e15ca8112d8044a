"""The training study file: what people write, checked field by field, turned into data.

    study.yaml -> Study -> (plan.py) a plan -> (train.py) branches of checkpoints

`FIELDS` documents every key; docs/study-file.md is made from it and its like. Paths are relative to the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trajsoup.core.quantity import parse_number, parse_tokens, parse_whole
from trajsoup.core.recipe import Recipe, require_distinct
from trajsoup.core.retention import Retention
from trajsoup.errors import StudyError
from trajsoup.store.yaml_file import check_keys, load_yaml
from trajsoup.study.file.evaluation import EvaluationPlan, FineTuningPlan, parse_evaluation, parse_sft
from trajsoup.study.file.pretrain import Pretrain, parse_pretrain
from trajsoup.study.file.recipe import parse_recipe
from trajsoup.study.file.retention import parse_retention
from trajsoup.study.file.sweeps import parse_sweeps
from trajsoup.study.file.trainer import TrainWith, parse_trainer
from trajsoup.study.sweeps.table import Sweep

FIELDS = {
    "fork_point": "Folder of the checkpoint that every branch starts from (a Hugging Face folder). Or use `pretrain`.",
    "pretrain": "Makes the fork point, once, and caches it by content; see below.",
    "corpus": "`builtin`, or the training documents: text, JSONL, Parquet or a tokenised memmap; see below.",
    "sequence_length": "Tokens of one training sequence. Default: 128 with `pretrain`, else the model's longest.",
    "horizon": "Tokens each branch trains on after the fork point. Suffixes k, M, B, T. A multiple of checkpoint_every.",
    "checkpoint_every": "Tokens between two checkpoints, the same for every branch whatever its batch.",
    "baseline": "The recipe that branches perturb; see below. A field left out has the paper's value.",
    "branches": "Name -> the fields of the baseline that this branch changes. `{}` is the baseline itself.",
    "trainer": "`builtin` (default), `builtin: {...}` with settings, or `command: ...` for your own script; see below.",
    "report_to": "Trackers besides metrics.jsonl, for the builtin trainer: tensorboard, wandb, mlflow, trackio.",
    "max_epochs": "How often the training set may be read by the horizon before the study is refused. Default 4.",
    "evaluate": "How models are scored, chosen and compared by `trajsoup run`; see below.",
    "sweeps": "Comparisons of the paper: `paper` for all, a list of names, or name -> settings; see below. Default: none.",
    "sft": "Fine-tunes every model of the main table in the same way and scores it again; see below. Default: not done.",
    "retention": "Which checkpoints stay when everything is scored and answered; see below. Default: all of them.",
    "seeds": "How often `trajsoup run` repeats everything, fork point included, with another seed. Default 1.",
    "publish": "URL of a folder in an object store that gets soup/ and records/ when the study is done. Default: none.",
    "output": "Folder that gets branches/. Default: the folder of the study file.",
}
CORPUS_FIELDS = {
    "train": "Files or folders of the training documents. Without it the corpus is the builtin one.",
    "validation": "Documents that rank checkpoints. Left out: a share of train, by document.",
    "test": "Documents that are reported on and never used to choose. Left out: a share of train, by document.",
    "pretrain": "Documents for `pretrain`.",
    "tokenizer": "Folder of a tokenizer. Left out: the fork point's, or a byte-level BPE trained on the documents.",
    "vocab_size": "Of a tokenizer that is trained here. Default 1024.",
    "text_field": "Of JSONL and Parquet. Default text.",
    "source_field": "Of JSONL and Parquet: where a document comes from, for losses by source. Default source.",
    "limit_bytes": "Builtin corpus: bytes of library text, all sets together.",
    "task_share": "Builtin corpus: share of generated task documents.",
    "seed": "Builtin corpus: seed of the generated tasks.",
}
TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")
BRANCH_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study file, checked. Token positions are as written; plan.py moves them to where all batches divide."""

    path: Path
    output: Path
    fork_point: Path | None
    pretrain: Pretrain | None
    corpus: Mapping[str, Any] | None  # fields of lm.corpus.CorpusSpec; None: the command brings its own data
    sequence_length: int | None
    horizon: int
    checkpoint_every: int
    baseline: Recipe
    recipes: Mapping[str, Recipe]
    trainer: TrainWith
    report_to: tuple[str, ...]
    max_epochs: float
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    sweeps: tuple[Sweep, ...] = ()
    sft: FineTuningPlan | None = None
    seeds: int = 1
    retention: Retention | None = None


def load_study(path: Path) -> Study:
    """Read and check a training study file."""
    data = load_yaml(path)
    where = str(path)
    if "command" in data:
        raise StudyError(f"{where}: `command` belongs under `trainer`: write `trainer: {{command: ...}}`")
    check_keys(data, tuple(FIELDS), where=where)
    for name in ("horizon", "checkpoint_every", "branches"):
        if data.get(name) is None:
            raise StudyError(f"{where}: `{name}` is missing: {FIELDS[name]}")
    if (data.get("fork_point") is None) == ("pretrain" not in data):
        raise StudyError(f"{where}: name one of `fork_point` (a model folder) and `pretrain` (makes one)")
    trainer = parse_trainer(data.get("trainer", "builtin"), where=f"{where}: trainer")
    baseline = parse_recipe(data.get("baseline") or {}, base=Recipe(), where=f"{where}: baseline")
    report_to = _names(data.get("report_to"), f"{where}: report_to")
    for name in report_to:
        if name not in TRACKERS:
            raise StudyError(f"{where}: report_to names {name!r}: use {', '.join(TRACKERS)}")
    length = data.get("sequence_length")
    max_epochs = parse_number(data.get("max_epochs", 4), where=f"{where}: max_epochs")
    if max_epochs <= 0:
        raise StudyError(f"{where}: max_epochs is {max_epochs:g}: use a number above 0")
    recipes = _branches(data["branches"], baseline, where)
    return Study(
        path=path,
        output=path.parent / str(data.get("output") or "."),
        fork_point=path.parent / str(data["fork_point"]) if data.get("fork_point") is not None else None,
        pretrain=parse_pretrain(data["pretrain"] or {}, where=f"{where}: pretrain") if "pretrain" in data else None,
        corpus=parse_corpus(
            data.get("corpus", "builtin" if trainer.is_builtin else None), path.parent, f"{where}: corpus"
        ),
        sequence_length=None if length is None else parse_tokens(length, where=f"{where}: sequence_length"),
        horizon=parse_tokens(data["horizon"], where=f"{where}: horizon"),
        checkpoint_every=parse_tokens(data["checkpoint_every"], where=f"{where}: checkpoint_every"),
        baseline=baseline,
        recipes=recipes,
        trainer=trainer,
        report_to=report_to,
        max_epochs=max_epochs,
        evaluation=parse_evaluation(data.get("evaluate") or {}, branches=tuple(recipes), where=f"{where}: evaluate"),
        sweeps=parse_sweeps(data.get("sweeps"), where=f"{where}: sweeps"),
        sft=parse_sft(data["sft"] or {}, where=f"{where}: sft") if "sft" in data else None,
        seeds=parse_whole(data.get("seeds", 1), where=f"{where}: seeds", least=1),
        retention=parse_retention(data.get("retention"), where=f"{where}: retention"),
    )


def parse_corpus(data: Any, base: Path, where: str) -> dict[str, Any] | None:
    """Read `corpus`: fields of lm.corpus.CorpusSpec, or None."""
    if data is None:
        return None
    if data == "builtin":
        return {}
    if isinstance(data, str):
        data = {"train": data}
    check_keys(data, tuple(CORPUS_FIELDS), where=where)
    corpus: dict[str, Any] = {}
    for name, value in data.items():
        if name in ("train", "validation", "test", "pretrain"):
            corpus[name] = tuple(base / item for item in _names(value, f"{where}: {name}"))
        elif name == "tokenizer":
            corpus[name] = base / str(value)
        elif name in ("vocab_size", "limit_bytes"):
            corpus[name] = parse_tokens(value, where=f"{where}: {name}")
        elif name == "seed":
            corpus[name] = parse_whole(value, where=f"{where}: {name}")
        elif name == "task_share":
            corpus[name] = parse_number(value, where=f"{where}: {name}")
        else:
            corpus[name] = str(value)
    return corpus


def _branches(data: Any, baseline: Recipe, where: str) -> dict[str, Recipe]:
    if not isinstance(data, dict) or not data:
        raise StudyError(f"{where}: `branches` is empty: {FIELDS['branches']}")
    recipes: dict[str, Recipe] = {}
    for name, changes in data.items():
        if not BRANCH_NAME.fullmatch(str(name)):
            raise StudyError(f"{where}: branch name {name!r}: use letters, digits, dots, dashes and underscores")
        if str(name) in recipes:
            raise StudyError(f"{where}: branch {name} is given twice: rename one")
        recipes[str(name)] = parse_recipe(changes or {}, base=baseline, where=f"{where}: branch {name!r}")
    require_distinct(recipes)
    return recipes


def _names(value: Any, where: str) -> tuple[str, ...]:
    if value is None or value == "none":
        return ()
    if not isinstance(value, str | list):
        raise StudyError(f"{where}: {value!r} is neither a name nor a list of names")
    return (value,) if isinstance(value, str) else tuple(str(item) for item in value)
