"""The fields of a study file that say how models are scored, chosen and compared after training."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from trajsoup.core.methods.table import METHODS
from trajsoup.core.quantity import Count, Positive, Tokens, parse_whole
from trajsoup.core.signal import Signal
from trajsoup.errors import StudyError
from trajsoup.merge.branches import Screen
from trajsoup.store.fields import Name
from trajsoup.study.file.lm_eval import LmEval

DEVICES = ("auto", "cpu", "cuda", "mps", "xpu", "hpu", "xla", "mtia", "npu", "privateuseone")
LATER = frozenset({"validation_items", "sweep_items", "device", "dtype", "window", "comparable"})
ALL = "all"  # of `comparable`


def parse_ks(value: Any, *, where: object) -> tuple[int, ...]:
    """Read one K or several; they are tried in order, each once."""
    ks = sorted({parse_whole(k, where=where, least=1) for k in (value if isinstance(value, list) else [value])})
    if not ks:
        raise StudyError(f"{where} is {value!r}: list at least one K")
    return tuple(ks)


def parse_methods(value: Any, *, where: object) -> tuple[str, ...]:
    """Read names of methods."""
    names = tuple(map(str, value if isinstance(value, list) else [value]))
    if unknown := [name for name in names if name not in METHODS]:
        raise StudyError(f"{where}: {METHODS.unknown(unknown[0])}")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan(Screen):
    """How models are scored and chosen."""

    validation_tokens: Annotated[Tokens, "Tokens of validation documents that rank and choose."] = 200_000
    test_tokens: Annotated[Tokens, "Tokens of test documents that are reported on."] = 400_000
    probe_tokens: Annotated[Tokens, "Tokens of training documents on which the screen compares branches."] = 100_000
    comparable: Annotated[
        Name | None,
        "Where branches train on different `sources`: the loss that the screen compares, `all` for one on training documents "
        "of every source, or that of one source by its name.",
    ] = None
    items: Annotated[int, "Items of each configuration of the mid-training suite; 0: only the loss."] = 0
    validation_items: Annotated[
        Count | None, "The same on validation, where every checkpoint answers them. Default: as many as `items`."
    ] = None
    sweep_items: Annotated[
        Count | None, "The same on test, for the rows of sweeps alone: they are many. Default: as many as `items`."
    ] = None
    ks: Annotated[tuple[int, ...], parse_ks, "The K to choose from."] = (1, 2, 4, 8, 12)
    horizons: Annotated[Count, "Into how many equal horizons the full one is divided, for choices and curves."] = 4
    rank_by: Annotated[Signal, "`loss` or `accuracy`: what ranks checkpoints and chooses."] = Signal.LOSS
    methods: Annotated[
        tuple[str, ...],
        parse_methods,
        "Methods in the main table besides those that every study shows; docs/methods.md lists them.",
    ] = ()
    lm_eval: Annotated[LmEval | None, "Tasks of lm-eval beside the embedded suite; see below."] = None
    resamples: Annotated[int, "Of the bootstrap."] = 10_000
    device: Annotated[str, "Where models are scored: `auto` (CUDA, else MPS, else the CPU), or a torch device."] = (
        "auto"
    )
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        "What models are scored in: `auto` is bfloat16 where the checkpoints are, else float32.",
    ] = "auto"
    window: Annotated[
        Count | None, "Tokens of context. Default: the model's own, at most 8,192; 256 for a model of up to 512."
    ] = None

    @property
    def probe_source(self) -> str | None:
        """The source whose training documents the screen compares on; None: all."""
        return None if self.comparable == ALL else self.comparable

    def identity(self) -> dict[str, Any]:
        """What scores depend on. A field that came later is left out where nobody set it: older records stand."""
        return {name: value for name, value in asdict(self).items() if name not in LATER or value not in (None, "auto")}

    def __post_init__(self) -> None:
        if self.rank_by is Signal.ACCURACY and not self.items and not (self.lm_eval and self.lm_eval.choose):
            raise StudyError("rank_by accuracy needs `items` of 1 or more, or `lm_eval` tasks to choose with")
        kind, _, number = self.device.partition(":")
        if kind not in DEVICES or not (number.isdigit() or kind == self.device):
            near = difflib.get_close_matches(kind, DEVICES, n=1)
            meant = f"; did you mean {near[0]}?" if near else f": write one of {', '.join(DEVICES)}, or cuda:1"
            raise StudyError(f"device {self.device!r} is none of torch's{meant}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuningPlan:
    """The fine-tuning that every chosen row goes through."""

    items: Annotated[Count, "Prompt and answer pairs to train on."] = 2000
    epochs: Annotated[Count, "How often each is seen."] = 1
    batch: Annotated[Count, "Pairs per step."] = 16
    peak_lr: Annotated[Positive, "Of AdamW, with linear decay to 0."] = 1e-3
    seeds: Annotated[Count, "Runs with another order of the same pairs."] = 1
    test_items: Annotated[Count, "Items of each scenario of the post-training suite."] = 100
