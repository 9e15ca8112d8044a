"""The fields of a study file that say how models are scored, chosen and compared after training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trajsoup.core.methods.table import METHODS
from trajsoup.core.quantity import parse_number, parse_tokens
from trajsoup.core.screening import TOLERANCE
from trajsoup.core.signal import Signal
from trajsoup.errors import StudyError
from trajsoup.store.yaml_file import check_keys
from trajsoup.study.file.lm_eval import LmEval, parse_lm_eval

EVALUATE_FIELDS = {
    "validation_tokens": "Tokens of validation documents that rank and choose. Default 200k.",
    "test_tokens": "Tokens of test documents that are reported on. Default 400k.",
    "probe_tokens": "Tokens of training documents on which the screen compares branches. Default 100k.",
    "items": "Items of each configuration of the mid-training suite; 0 (default): only the loss.",
    "ks": "The K to choose from. Default [1, 2, 4, 8, 12].",
    "horizons": "Into how many equal horizons the full one is divided, for choices and curves. Default 4.",
    "methods": "Methods in the main table besides those that every study shows; docs/methods.md lists them. Default none.",
    "rank_by": "`loss` (default) or `accuracy`: what ranks checkpoints and chooses.",
    "tolerance": "Of the screen. Default 0.01.",
    "baseline": "The branch that the screen compares with. Default: the first whose recipe is the study's baseline.",
    "force": "Branches to admit whatever the screen says; they stay marked. Default none.",
    "lm_eval": "Tasks of lm-eval beside the embedded suite; see below. Default none.",
    "resamples": "Of the bootstrap. Default 10000.",
}
SFT_FIELDS = {
    "items": "Prompt and answer pairs to train on. Default 2000.",
    "epochs": "How often each is seen. Default 1.",
    "batch": "Pairs per step. Default 16.",
    "peak_lr": "Of AdamW, with linear decay to 0. Default 1e-3.",
    "seeds": "Runs with another order of the same pairs. Default 1.",
    "test_items": "Items of each scenario of the post-training suite. Default 100.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """How models are scored and chosen."""

    validation_tokens: int = 200_000
    test_tokens: int = 400_000
    probe_tokens: int = 100_000
    items: int = 0
    ks: tuple[int, ...] = (1, 2, 4, 8, 12)
    horizons: int = 4
    rank_by: Signal = Signal.LOSS
    methods: tuple[str, ...] = ()  # besides those that every study shows
    tolerance: float = TOLERANCE
    baseline: str | None = None  # None: the plan's
    force: tuple[str, ...] = ()
    lm_eval: LmEval | None = None
    resamples: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuningPlan:
    """The fine-tuning that every chosen row goes through."""

    items: int = 2000
    epochs: int = 1
    batch: int = 16
    peak_lr: float = 1e-3
    seeds: int = 1
    test_items: int = 100


def parse_evaluation(data: Any, *, branches: Sequence[str], where: str) -> EvaluationPlan:
    """Read `evaluate` of a study with these branches."""
    check_keys(data, tuple(EVALUATE_FIELDS), where=where)
    base = EvaluationPlan()
    tokens = {
        name: parse_tokens(data[name], where=f"{where}: {name}")
        for name in ("validation_tokens", "test_tokens", "probe_tokens")
        if name in data
    }
    counts = {
        name: whole(data[name], f"{where}: {name}") for name in ("items", "horizons", "resamples") if name in data
    }
    rank_by = str(data.get("rank_by", base.rank_by.value))
    if rank_by not in tuple(Signal):
        raise StudyError(f"{where}: rank_by is {rank_by!r}: use loss or accuracy")
    lm_eval = parse_lm_eval(data["lm_eval"], where=f"{where}: lm_eval") if data.get("lm_eval") else None
    if rank_by == Signal.ACCURACY and not counts.get("items") and not (lm_eval and lm_eval.choose):
        raise StudyError(f"{where}: rank_by accuracy needs `items` of 1 or more, or `lm_eval` tasks to choose with")
    force = data.get("force") or []
    named = [*(force if isinstance(force, list) else [force]), *([data["baseline"]] if data.get("baseline") else [])]
    if unknown := [name for name in named if str(name) not in branches]:
        raise StudyError(f"{where}: there is no branch {unknown[0]!r}: the branches are {', '.join(branches)}")
    methods = tuple(map(str, data.get("methods") or ()))
    if unknown := [name for name in methods if name not in METHODS]:
        raise StudyError(f"{where}: there is no method {unknown[0]!r}: use {', '.join(METHODS)}")
    ks = data.get("ks", base.ks)
    if not isinstance(ks, list | tuple) or not ks:
        raise StudyError(f"{where}: ks is {ks!r}: list at least one K")
    ks_sorted = tuple(sorted({whole(k, f"{where}: ks") for k in ks}))
    if ks_sorted[0] < 1 or counts.get("horizons", 1) < 1:
        raise StudyError(f"{where}: K and horizons count from 1: correct them")
    return EvaluationPlan(
        **tokens,
        **counts,
        ks=ks_sorted,
        rank_by=Signal(rank_by),
        methods=methods,
        tolerance=parse_number(data.get("tolerance", base.tolerance), where=f"{where}: tolerance"),
        baseline=str(data["baseline"]) if data.get("baseline") else None,
        force=tuple(map(str, force)) if isinstance(force, list) else (str(force),),
        lm_eval=lm_eval,
    )


def parse_sft(data: Any, *, where: str) -> FineTuningPlan:
    """Read `sft`."""
    check_keys(data, tuple(SFT_FIELDS), where=where)
    counts = {name: whole(data[name], f"{where}: {name}") for name in SFT_FIELDS if name in data and name != "peak_lr"}
    for name, value in counts.items():
        if value < 1:
            raise StudyError(f"{where}: {name} is {value}: use 1 or more")
    return FineTuningPlan(**counts, peak_lr=parse_number(data.get("peak_lr", 1e-3), where=f"{where}: peak_lr"))


def whole(value: Any, where: str) -> int:
    """A count of 0 or more."""
    number = parse_number(value, where=where)
    if int(number) != number or number < 0:
        raise StudyError(f"{where} is {value!r}: use a whole number of 0 or more")
    return int(number)
