"""What a study will do and cost, before anything is trained: data, not print (sec:setup, eq:flops-proxy).

Study -> positions, perturbations, tokens, FLOPs, bytes, validation passes -> Plan -> on_corpus: epochs, validation FLOPs
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trajsoup.core.budget import Budget, BudgetCost, Setting, cost_of
from trajsoup.core.flops import ModelCost, model_cost
from trajsoup.core.positions import Positions, shared_positions
from trajsoup.core.quantity import format_bytes, format_tokens
from trajsoup.core.recipe import Optimizer, Recipe, perturbations
from trajsoup.core.retention import PeakDisk, peak_disk
from trajsoup.core.scores import FEWEST, effective_number
from trajsoup.errors import OutputError, RecipeError, StudyError
from trajsoup.lm.corpus import Corpus, CorpusSpec
from trajsoup.lm.probe import probe_of
from trajsoup.lm.upcycling import require_dense
from trajsoup.study.file.allocation import Adaptive
from trajsoup.study.file.keep import Keep, keeps_sums
from trajsoup.study.file.study import Limited, Study
from trajsoup.study.file.trainer import Builtin
from trajsoup.study.train.data import fork_config
from trajsoup.study.train.sources import require_sources
from trajsoup.study.train.sums import PARTS

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
SAFETENSORS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
EMBEDDED_LENGTH = 128  # tokens of a sequence when the study makes its own tiny fork point


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBranch:
    """One row of tab:branch-mapping."""

    name: str
    recipe: Recipe
    changed: Mapping[str, tuple[str, str]]  # field -> (baseline, branch)
    steps: int
    step_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training of a branch: to the full horizon, or apart, to a shorter one at which its schedule ends."""

    branch: str
    positions: Positions
    apart: bool

    @property
    def name(self) -> str:
        """Of its folder and in messages; no branch can be called so."""
        return f"{self.branch}@{self.positions.horizon}" if self.apart else self.branch


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a study will do and cost."""

    study: Study
    branches: tuple[PlannedBranch, ...]
    positions: Positions
    sequence_length: int
    config: Mapping[str, Any]  # of the model
    dtype: str  # of checkpoints
    budget: Budget
    free_bytes: int  # where the study writes
    notes: tuple[str, ...]
    epochs: float | None = None  # times the training set is read; None where its size is unknown
    validation_tokens: int | None = None  # of one validation pass; None likewise

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every training: the long ones first."""
        every = self.positions.checkpoint_every
        short = [Positions(checkpoint_every=every, count=horizon // every) for horizon in self.budget.apart]
        return tuple(
            Run(branch=b.name, positions=positions, apart=positions is not self.positions)
            for positions in (self.positions, *short)
            for b in self.branches
        )

    @functools.cached_property
    def model(self) -> ModelCost:
        """Parameters of the model, and FLOPs of one token."""
        return model_cost(self.config, sequence_length=self.sequence_length)

    @functools.cached_property
    def cost(self) -> BudgetCost:
        """What the budget costs."""
        return cost_of(
            self.budget,
            checkpoints_per_branch=sum(r.positions.count for r in self.runs) // len(self.branches),
            flops_per_token=self.model.flops_per_token,
            model_bytes=self.model.total_params * ITEM_BYTES[self.dtype],
            state_bytes=max(_state_bytes(self.model, self.config, b.recipe) for b in self.branches),
            validation_tokens=self.validation_tokens,
        )

    @property
    def peak(self) -> PeakDisk | None:
        """Checkpoints on disk, where the study has a retention policy."""
        policy = self.study.retention
        if policy is None:
            return None
        return peak_disk([run.positions.count for run in self.runs], policy=policy, seeds=self.study.seeds)


def plan_study(study: Study) -> Plan:
    """Plan a study before its corpus is tokenised: what cannot work is refused here."""
    config = model_config(study)
    length = _sequence_length(study, config)
    steps = {name: recipe.global_batch * length for name, recipe in study.recipes.items()}
    positions = shared_positions(horizon=study.horizon, checkpoint_every=study.checkpoint_every, step_tokens=steps)
    dtype = checkpoint_dtype(config) if study.pretrain is None else "float32"
    _require_micro_batch(study)
    if study.neighbours is not None:
        if study.neighbours.branch_train_mix is not None:
            require_dense(config, where=str(study.path))
        study.neighbours.require_fits(
            horizon=positions.horizon,
            checkpoint_every=positions.checkpoint_every,
            step_tokens=study.baseline.global_batch * length,
        )
    return Plan(
        study=study,
        branches=tuple(
            PlannedBranch(
                name=name,
                recipe=recipe,
                changed=perturbations(recipe, baseline=study.baseline),
                steps=positions.horizon // steps[name],
                step_tokens=steps[name],
            )
            for name, recipe in study.recipes.items()
        ),
        positions=positions,
        sequence_length=length,
        config=config,
        dtype=dtype,
        # every branch is trained to the horizon; Limited branches are read off the same runs at T / N, or trained apart
        budget=Budget(
            setting=Setting.EXTENDED,
            n_branches=len(study.recipes),
            horizon=positions.horizon,
            apart=_apart(study, positions),
        ),
        free_bytes=_free_bytes(study.output),
        notes=_notes(study, positions, dtype=dtype),
    )


def on_corpus(plan: Plan, corpus: Corpus | None) -> Plan:
    """The plan with what depends on the corpus; as it is for a command that brings its own data."""
    if corpus is None:
        return plan
    require_sources(plan.study, corpus, horizon=plan.positions.horizon, sequence_length=plan.sequence_length)
    sizes = {"train_tokens": corpus.train.n_tokens, "validation_tokens": corpus.validation.n_tokens}
    found = sized(plan, **sizes, vocab_size=corpus.vocab_size)
    return replace(found, notes=(*found.notes, *too_few(plan.study, corpus)))


def too_few(study: Study, corpus: Corpus) -> list[str]:
    """A warning for each held-out set that will be too small to choose by, or to report on."""
    said = study.evaluation
    sets = {"validation": (corpus.validation, said.validation_tokens), "test": (corpus.test, said.test_tokens)}
    notes: list[str] = []
    for name, (tokens, limit) in sets.items():
        if not tokens.n_documents:
            continue
        scored = probe_of(tokens, max_tokens=limit)
        count = effective_number(scored.targets)
        left_out = tokens.n_documents - scored.n_documents
        cure = f"raise evaluate.{name}_tokens, which leaves {left_out:,} out" if left_out else f"add {name} documents"
        if count < FEWEST:
            notes.append(
                f"{scored.n_documents:,} {name} documents are scored, as good as {count:.0f} of one size, and below {FEWEST} "
                f"{'nothing can be chosen' if name == 'validation' else 'no difference has an interval'}: {cure}"
            )
    return notes


def sized(plan: Plan, *, train_tokens: int, validation_tokens: int, vocab_size: int | None = None) -> Plan:
    """The plan on a corpus of this many tokens. Of the validation set, as many are read as the study says."""
    study, length = plan.study, plan.sequence_length
    epochs = plan.positions.horizon / max(train_tokens // length * length, 1)
    _require_enough_data(study, length, train_tokens, epochs)
    again = (f"the training set is read {epochs:,.2f} times by the horizon",) if epochs > 1 else ()
    return replace(
        plan,
        config=model_config(study, vocab_size=vocab_size),
        validation_tokens=min(validation_tokens, study.evaluation.validation_tokens),
        epochs=epochs,
        notes=(*plan.notes, *again),
    )


def require_room(plan: Plan) -> None:
    """Refuse a study that cannot be written where it should go."""
    place = _existing(plan.study.output)
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise OutputError(f"cannot write to {place}: set `output` to a folder you may write to")
    branches = plan.study.output / "branches"
    written = sum(p.stat().st_size for p in branches.rglob("*") if p.is_file()) if branches.is_dir() else 0
    need = plan.cost.disk_bytes - written
    if plan.study.keep is Keep.NEEDED:
        each = plan.cost.checkpoint_bytes // plan.cost.checkpoints
        kept = (most_kept(plan.study, run) + most_in_sums(plan.study, run, dtype=plan.dtype) for run in plan.runs)
        need += (sum(kept) - sum(run.positions.count for run in plan.runs)) * each
    if need > plan.free_bytes:
        raise OutputError(
            f"the study needs {format_bytes(need)} for {plan.cost.checkpoints:,} checkpoints and the states to resume, and "
            f"{place} has {format_bytes(plan.free_bytes)} free: save less often, shorten the horizon, drop a branch, or "
            "set `output` to a larger disk"
        )


def stops_of(study: Study, run: Run) -> tuple[int, ...]:
    """Where rows of the main table and of the theory may stop a run; one that is trained apart stops at its end."""
    if run.apart:
        return (run.positions.horizon,)
    total, every = run.positions.horizon, run.positions.checkpoint_every
    parts = study.evaluation.horizons
    wanted = [total * (i + 1) // parts for i in range(parts)]
    wanted += [total // n for n in range(2, len(study.recipes) + 1)]
    return tuple(sorted({at // every * every for at in wanted} - {0}))


def most_kept(study: Study, run: Run) -> int:
    """Checkpoints of a run at one time, at the worst: those of each stop, the last, and one that is being scored."""
    each = max(study.evaluation.ks) + 1
    return min(each * len(stops_of(study, run)) + 1, run.positions.count)


def sum_stops(study: Study, run: Run) -> tuple[int, ...]:
    """Where a Full Soup may stop a run: at T/N, and where the run ends."""
    total, every = run.positions.horizon, run.positions.checkpoint_every
    shorter = range(2, len(study.recipes) + 1) if study.limited is Limited.PREFIX else ()
    return tuple(sorted({total, *(total // n // every * every for n in shorter)} - {0}))


def most_in_sums(study: Study, run: Run, *, dtype: str) -> int:
    """What the sums of a run take of disk at the worst, in checkpoints: those of each stop, and one that is being written."""
    return PARTS[SAFETENSORS[dtype]] * (len(sum_stops(study, run)) + 1) if keeps_sums(study) else 0


def model_config(study: Study, *, vocab_size: int | None = None) -> dict[str, Any]:
    """The config of the model that will be trained, without loading it."""
    if study.fork_point is not None:
        return dict(fork_config(study.fork_point))
    assert study.pretrain is not None
    from trajsoup.lm.models import FAMILIES, Embedded

    family = Embedded(study.pretrain.model.family)
    size = vocab_size or (study.corpus or CorpusSpec()).vocab_size
    return {"model_type": family.value, **FAMILIES[family], "vocab_size": size, **study.pretrain.model.changes}


def checkpoint_dtype(config: Mapping[str, Any]) -> str:
    """The dtype of the fork point's weights, by its config."""
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in ITEM_BYTES:
        raise StudyError(f"the fork point has the dtype {dtype!r}: convert it to float32, bfloat16 or float16 first")
    return dtype


def _sequence_length(study: Study, config: Mapping[str, Any]) -> int:
    if study.sequence_length is not None:
        return study.sequence_length
    if study.pretrain is not None:
        return EMBEDDED_LENGTH
    longest = config.get("max_position_embeddings")
    if not isinstance(longest, int):
        raise StudyError(f"{study.path}: the fork point does not say its longest sequence: set sequence_length")
    return longest


def _require_micro_batch(study: Study) -> None:
    micro = study.trainer.micro_batch if isinstance(study.trainer, Builtin) else None
    for name, recipe in study.recipes.items():
        if micro is not None and recipe.global_batch > micro and recipe.global_batch % micro:
            raise RecipeError(
                f"branch {name!r}: its global_batch {recipe.global_batch} is not a multiple of micro_batch {micro}: use one "
                "that divides every branch's batch"
            )


def _require_enough_data(study: Study, length: int, train_tokens: int, epochs: float) -> None:
    if train_tokens < length:
        raise StudyError(
            f"the training set has {train_tokens:,} tokens, fewer than one sequence of {length:,}: add documents"
        )
    if epochs > study.max_epochs:
        raise StudyError(
            f"the training set has {train_tokens:,} tokens and would be read {epochs:,.1f} times by the horizon, more than "
            f"max_epochs ({study.max_epochs:g}): add documents, shorten the horizon, or raise max_epochs"
        )


def _apart(study: Study, positions: Positions) -> tuple[int, ...]:
    """T / N of every N from 2 on, each moved down to where branches save; longest first."""
    if study.limited is Limited.PREFIX:
        return ()
    counts = {positions.count // n for n in range(2, len(study.recipes) + 1)} - {0}
    return tuple(positions.checkpoint_every * count for count in sorted(counts, reverse=True))


def _notes(study: Study, positions: Positions, *, dtype: str) -> tuple[str, ...]:
    apart = [format_tokens(tokens) for tokens in _apart(study, positions)]
    own = f"Limited branches are trained apart, each for {' and '.join(apart)} tokens, with a schedule that ends there"
    further = (
        *([own] if apart else []),
        *([_adaptive_note(study.allocation, positions)] if study.allocation else []),
        *([_keeping_note(study, positions, dtype=dtype)] if study.keep is Keep.NEEDED else []),
        *(study.neighbours.notes(positions.horizon) if study.neighbours else ()),
    )
    if positions.checkpoint_every == study.checkpoint_every:
        return further
    return (
        *further,
        f"checkpoints are {positions.checkpoint_every:,} tokens apart instead of {study.checkpoint_every:,} "
        f"({format_tokens(positions.checkpoint_every)}), and the horizon is {positions.horizon:,}: there every branch's "
        "batch divides the interval",
    )


def _adaptive_note(allocation: Adaptive, positions: Positions) -> str:
    budget = format_tokens(allocation.tokens or positions.horizon)
    return f"branches are opened, extended and stopped within {budget} tokens in all: what is told here is the most it can be"


def _keeping_note(study: Study, positions: Positions, *, dtype: str) -> str:
    run = Run(branch="", positions=positions, apart=False)
    sums = most_in_sums(study, run, dtype=dtype)
    without = (
        f"sums for Full Soup take the room of {sums} more; geometry, which takes all, is left out"
        if sums
        else "Full Soup and geometry, which take all, are left out; evaluate.methods: [full-soup] keeps sums for it"
    )
    of = f"{most_kept(study, run)} of the {positions.count} checkpoints of a branch"
    return f"at most {of} lie on disk at one time; {without} (keep: needed)"


def _state_bytes(model: ModelCost, config: Mapping[str, Any], recipe: Recipe) -> int:
    """fp32 weights; one momentum for Muon's matrices, two for AdamW's parameters."""
    if recipe.optimizer is Optimizer.ADAMW:
        return model.total_params * 12
    embeddings = int(config["vocab_size"]) * int(config["hidden_size"]) * 2
    return model.total_params * 8 + min(embeddings, model.total_params) * 4


def _existing(path: Path) -> Path:
    path = path.absolute()
    return next(p for p in (path, *path.parents) if p.exists())


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(_existing(path)).free
