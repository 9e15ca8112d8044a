"""The study file: what people write, checked field by field, turned into data.

    study.yaml -> kind: train -> Study         -> (train/plan.py) a plan -> (train/branches.py) branches of checkpoints
               -> kind: runs  -> ForeignStudy  -> runs that exist, as `scan` found them
                  both are a Setup             -> workbench.py (corpus, checkpoints, pools) -> stages

Every field is declared once, here or in its neighbours: type, default, unit, check, help (store/fields.py). Paths are
relative to the file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from trajsoup.core.quantity import Count, Positive, Tokens
from trajsoup.core.recipe import Recipe, require_distinct
from trajsoup.core.retention import Retention
from trajsoup.errors import StudyError
from trajsoup.lm.builtin import FORK_POINT, fork_point_of, parse_model_folder
from trajsoup.lm.corpus import CorpusSpec
from trajsoup.merge.branches import Kind, RunsFile, kind_of, soups_folder
from trajsoup.store.confined import PLAIN
from trajsoup.store.fields import MAY_BE_EMPTY, NO_RESULTS, At, ChangesOf, Key, Shapes, read
from trajsoup.store.remote import RemotePath
from trajsoup.store.yaml_file import load_yaml
from trajsoup.study.file.allocation import Adaptive
from trajsoup.study.file.connectivity import ConnectivityPlan
from trajsoup.study.file.digest import digest_of_study
from trajsoup.study.file.evaluation import EvaluationPlan, FineTuningPlan
from trajsoup.study.file.keep import Keep, require_sparing
from trajsoup.study.file.neighbours import Neighbours
from trajsoup.study.file.pretrain import Pretrain
from trajsoup.study.file.primary import REGISTERED, Primary, parse_primary
from trajsoup.study.file.sweeps import DEFAULT, parse_sweeps
from trajsoup.study.file.trainer import Builtin, Command, parse_trainer
from trajsoup.study.publish import parse_publish
from trajsoup.study.sweeps.table import Sweep

SEED_STEP = 10_000  # between the data orders of two seeds


class Limited(StrEnum):
    """Where the checkpoints of a Limited branch come from."""

    PREFIX = "prefix"  # right where the learning rate does not depend on the horizon
    APART = "apart"


TRAINED_APART = Shapes(lambda value: value is Limited.APART)
WHERE_ASKED_FOR = Shapes(lambda value: value is not None)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A study that can be run, of either kind."""

    path: Annotated[Path, NO_RESULTS]
    output: Annotated[Path, NO_RESULTS]  # gets records/, scores/, soup/ and, if it trains, branches/
    seed: Annotated[int | None, NO_RESULTS] = None  # which of the seeds this is; None: it trains nothing
    seeds: Annotated[int, NO_RESULTS] = 1
    corpus: Annotated[CorpusSpec | None, NO_RESULTS, "`builtin`, or documents; see below."] = None  # digest: by content
    evaluation: Annotated[
        EvaluationPlan, Key("evaluate"), NO_RESULTS, "How models are scored and chosen; see below."
    ] = EvaluationPlan()
    sweeps: Annotated[
        tuple[Sweep, ...],
        parse_sweeps,
        NO_RESULTS,
        "Comparisons: `paper` for all of the paper, a list of names, or name -> settings; see below. `[]`: none. "
        "Default: crossing.",
    ] = DEFAULT
    primary: Annotated[
        tuple[Primary, ...],
        parse_primary,
        NO_RESULTS,
        "Comparisons registered in advance, the only ones with a verdict: `MODEL against REFERENCE [in accuracy]`, names "
        "of rows (records.md). Default: nine, those of the paper's main table and the same tokens in one run.",
    ] = REGISTERED
    sft: Annotated[
        FineTuningPlan | None, MAY_BE_EMPTY, NO_RESULTS, "Fine-tunes every model of the main table; see below."
    ] = None
    connectivity: Annotated[
        ConnectivityPlan | None,
        MAY_BE_EMPTY,
        NO_RESULTS,
        "Measures the loss on the way between models: pairs of anchors, copies that fork later, trained curves; see below.",
    ] = None
    publish: Annotated[
        RemotePath | None, parse_publish, NO_RESULTS, "URL of a folder that gets soup/ and records/ in the end."
    ] = None

    @property
    def title(self) -> str:
        """What reports call it."""
        return self.path.stem if self.path.stem != "study" else self.path.absolute().parent.name

    @property
    def digest(self) -> str:
        """Of everything that shapes the records; documents by content."""
        return digest_of_study(self, corpus=self.corpus, folder=self.path.parent)


@dataclass(frozen=True, kw_only=True)
class Study(Setup):
    """A study to train. Token positions are as written; plan.py moves them to where all batches divide."""

    MISPLACED: ClassVar[Mapping[str, str]] = {"command": "belongs under `trainer`: write `trainer: {command: ...}`"}

    kind: Annotated[Literal["train"], "Branches to train. Left out: known by the horizon."] = "train"
    fork_point: Annotated[
        Path | None,
        parse_model_folder,
        "The model folder that every branch starts from, or `builtin`: a small one that comes along, another for each "
        "seed. Or use `pretrain`.",
    ] = None
    pretrain: Annotated[Pretrain | None, MAY_BE_EMPTY, "Makes the fork point, once, and caches it; see below."] = None
    sequence_length: Annotated[
        Tokens | None, "Tokens of one training sequence. Default: 128 with `pretrain`, else the model's longest."
    ] = None
    horizon: Annotated[Tokens, "Tokens (k, M, B, T) that each branch trains on: a multiple of checkpoint_every."]
    checkpoint_every: Annotated[Tokens, "Tokens between two checkpoints, the same for every branch whatever its batch."]
    baseline: Annotated[Recipe, "What branches perturb; see below. A field left out has the paper's value."] = Recipe()
    recipes: Annotated[
        Mapping[str, Recipe],
        Key("branches"),
        ChangesOf("baseline"),
        "Name -> the fields of the baseline that this branch changes. `{}` is the baseline itself.",
    ]
    trainer: Annotated[
        Builtin | Command, parse_trainer, "`builtin` (default), `builtin: {...}`, or `command: ...`; see below."
    ] = Builtin()
    report_to: Annotated[
        tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...],
        NO_RESULTS,
        "Trackers besides metrics.jsonl, for the builtin trainer: tensorboard, wandb, mlflow, trackio.",
    ] = ()
    limited: Annotated[
        Limited,
        TRAINED_APART,
        "What a branch of T/N tokens is: the `prefix` of its run of T, or a run `apart` whose schedule ends at T/N; each "
        "branch is then trained once more for every N.",
    ] = Limited.PREFIX
    allocation: Annotated[
        Adaptive | None,
        WHERE_ASKED_FOR,
        "`adaptive`: branches are opened, extended and stopped while they train, within a budget of tokens; see below. "
        "Default: every branch runs to the horizon.",
    ] = None
    max_epochs: Annotated[Positive, "How often the training set may be read by the horizon, or it is refused."] = 4.0
    retention: Annotated[
        Retention | None, NO_RESULTS, "Which checkpoints stay in the end; see below. Default: all."
    ] = None
    keep: Annotated[
        Keep,
        NO_RESULTS,
        "`needed`: checkpoints are scored as they are saved, and those that no row of the study can take any more are "
        "deleted at once; see below. Default: `all`.",
    ] = Keep.ALL
    neighbours: Annotated[
        Neighbours | None,
        NO_RESULTS,
        "Methods of others that train, on the same tokens from the same fork point: a list of names, or name -> settings; "
        "see below.",
    ] = None
    seeds: Annotated[
        Count, NO_RESULTS, "How often `run` repeats everything, fork point included, with another seed."
    ] = 1
    output: Annotated[Path, NO_RESULTS, "Folder that gets branches/. Default: the folder of the study file."]

    def __post_init__(self) -> None:
        if (self.fork_point is None) == (self.pretrain is None):
            raise StudyError("name one of `fork_point` (a model folder) and `pretrain` (makes one)")
        if not self.recipes:
            raise StudyError("`branches` is empty: name -> the fields of the baseline that this branch changes")
        for name in self.recipes:
            if not PLAIN.fullmatch(name):
                raise StudyError(f"branch name {name!r}: use letters, digits, dots, dashes and underscores")
        require_distinct(self.recipes)
        self.evaluation.require_among(self.recipes, where="evaluate")
        if self.connectivity is not None:
            self.connectivity.require_saved(every=self.checkpoint_every, horizon=self.horizon)
        self._require_comparable()
        if self.allocation is not None:
            self._require_adaptable()
        if self.keep is Keep.NEEDED:
            others = {"connectivity": self.connectivity, "neighbours": self.neighbours, "allocation": self.allocation}
            require_sparing(trainer=self.trainer, sweeps=self.sweeps, methods=self.evaluation.methods, others=others)
        if self.neighbours is not None:
            if not isinstance(self.trainer, Builtin):
                raise StudyError("neighbours are trained by the builtin trainer: leave out `neighbours`, or `command`")
            self.neighbours.require(self.baseline)

    def _require_adaptable(self) -> None:
        """What adaptive allocation cannot be combined with."""
        if not isinstance(self.trainer, Builtin):
            raise StudyError(
                "adaptive allocation stops and extends branches, which a command cannot be told: use builtin"
            )
        if self.limited is Limited.APART:
            raise StudyError("adaptive allocation decides t while branches train: leave out `limited: apart`")
        if self.neighbours is not None:
            raise StudyError(
                "neighbours train on the tokens of the horizon, and adaptive branches may end before: leave out one"
            )
        if self.baseline not in self.recipes.values():
            raise StudyError(
                "adaptive allocation judges branches against the baseline: add a branch that changes nothing"
            )

    def _require_comparable(self) -> None:
        """The loss on documents that one branch trains on and another does not says nothing of the branches."""
        first, *others = self.recipes
        for name in others:
            if self.recipes[name].sources != self.recipes[first].sources and self.evaluation.comparable is None:
                raise StudyError(
                    f"branches {first!r} and {name!r} train on different sources, so the screen must be told which loss is "
                    "comparable: set `evaluate: {comparable: all}`, or the name of a source"
                )
        if isinstance(self.trainer, Command) and any(recipe.sources for recipe in self.recipes.values()):
            raise StudyError("sources are read by the builtin trainer: a command brings its own data, leave them out")


@dataclass(frozen=True, kw_only=True)
class ForeignStudy(Setup, RunsFile):
    """Runs that exist, and documents to score their soups on."""

    MISPLACED: ClassVar[Mapping[str, str]] = {
        "neighbours": "train from a fork point in a recipe, and a file of runs that exist has none: write them into a study "
        "that trains (kind: train)"
    }

    def __post_init__(self) -> None:
        RunsFile.__post_init__(self)
        self.evaluation.require_among(self.branches, where="evaluate")
        if self.connectivity is not None and self.connectivity.depths:
            raise StudyError(
                "connectivity.depths trains copies of the baseline from later fork points, and these runs exist: leave it "
                "out, or use it in a study that trains"
            )
        if self.corpus is None:
            raise StudyError(
                "the soups of these runs must be scored, and it names no documents: add `corpus: {validation: FILES, test: "
                "FILES}`, or use `trajsoup merge` with a K of your choice"
            )
        logged = {name: any(s.train_loss is not None for s in run.checkpoints) for name, run in self.branches.items()}
        if not self.corpus.can_train and not all(logged.values()):
            raise StudyError(
                f"{next(name for name in logged if not logged[name])!r} logged no training loss, and the corpus has no "
                "training documents, so the screen has nothing to compare: add `train` to the corpus, or give the run a "
                "metrics.csv with a train_loss column and scan again"
            )

    @property
    def digest(self) -> str:
        """Of the runs with their paths in full."""
        return digest_of_study(self.runs, corpus=self.corpus, folder=self.path.parent)


def load_study(path: Path | str) -> Study | ForeignStudy:
    """Read a study file of either kind: one that trains its branches, or one that lists runs.

    >>> study = load_study("study.yaml")  # doctest: +SKIP
    """
    path = Path(path)
    data = load_yaml(path)
    if kind_of(data, where=path) is not Kind.RUNS:
        study = read(Study, {"output": ".", **data}, where=At(path, path.parent), path=path, seed=0)
        if "corpus" not in data and isinstance(study.trainer, Builtin):
            study = dataclasses.replace(study, corpus=CorpusSpec())  # a command brings its own data
        return study
    screened, evaluate = data.get("screen") or {}, data.get("evaluate") or {}
    if isinstance(screened, dict) and isinstance(evaluate, dict):
        data = {**data, "evaluate": {**screened, **evaluate}}  # the screen of the file, unless `evaluate` has its own
    return read(ForeignStudy, data, where=At(path, path.parent), path=path, output=soups_folder(path))


def load_training_study(path: Path | str) -> Study:
    """Read a study file that trains."""
    setup = load_study(path)
    if not isinstance(setup, Study):
        raise StudyError(
            f"{path} lists runs that exist: nothing is left to train; use `trajsoup run` or `trajsoup merge`"
        )
    return setup


def with_seed(setup: Setup, seed: int) -> Setup:
    """The same study with another seed of everything: fresh weights, pretraining order, data order of every branch."""
    if seed == 0 or not isinstance(setup, Study):
        return setup

    def moved(recipe: Recipe) -> Recipe:
        return dataclasses.replace(recipe, seed=recipe.seed + SEED_STEP * seed)

    fork_point, pretrain = setup.fork_point, setup.pretrain
    if fork_point == FORK_POINT:
        fork_point = fork_point_of(seed)
    if pretrain is not None:
        pretrain = dataclasses.replace(pretrain, seed=pretrain.seed + seed, recipe=moved(pretrain.recipe))
    return dataclasses.replace(
        setup,
        output=setup.output / "seeds" / str(seed),
        fork_point=fork_point,
        pretrain=pretrain,
        baseline=moved(setup.baseline),
        recipes={name: moved(recipe) for name, recipe in setup.recipes.items()},
        seed=seed,
        seeds=1,
    )
