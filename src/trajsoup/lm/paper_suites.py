"""The benchmark configurations of app:evaluation-protocol, and the lm-eval task that is each one, where there is one.

The paper counts 41 configurations before post-training and 16 after it. It names 41 of the first and 14 of the second;
`docs/lm-eval.md`, made from this list and an installed lm-eval, says which of them lm-eval has.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One benchmark of the paper."""

    name: str
    category: str
    task: str | None  # in lm-eval; None: it has none
    note: str = ""


def _group(category: str, *entries: tuple[str, str | None] | tuple[str, str | None, str]) -> tuple[Configuration, ...]:
    return tuple(
        Configuration(name=e[0], category=category, task=e[1], note=e[2] if len(e) > 2 else "") for e in entries
    )


MID_TRAINING = (
    *_group(
        "general",
        ("ARC-Easy", "arc_easy"),
        ("ARC-Challenge", "arc_challenge"),
        ("AGIEval", "agieval"),
        ("BBH", "bbh"),
        ("BBH, Chinese", None),
        ("WorldSense", None),
        ("PIQA", "piqa"),
        ("HellaSwag", "hellaswag"),
    ),
    *_group(
        "language",
        ("RACE-Middle", None, "`race` is the high-school part"),
        ("RACE-High", "race"),
        ("SQuAD 2.0", "squadv2"),
        ("TriviaQA", "triviaqa"),
        ("Natural Questions", "nq_open", "the open-domain variant"),
        ("WinoGrande", "winogrande"),
        ("Belebele", "belebele"),
        ("CCPM", None),
    ),
    *_group(
        "professional",
        ("MMLU", "mmlu"),
        ("MMLU-Pro", "mmlu_pro"),
        ("SuperGPQA", None),
        ("CMMLU", "cmmlu"),
        ("C-Eval", "ceval-valid", "its validation split; the test answers are not public"),
        ("SimpleQA", None, "needs a judge model"),
        ("Chinese SimpleQA", None, "needs a judge model"),
    ),
    *_group(
        "mathematics",
        ("GSM8K", "gsm8k"),
        ("GSM-Plus", "gsm_plus"),
        ("MGSM, Chinese", "mgsm_direct_zh"),
        ("MATH", "hendrycks_math"),
        ("MATH, Minerva", "minerva_math"),
        ("CMATH", None),
        ("MathBench", None),
        ("CollegeMath", None),
        ("ZKMathUnion", None),
        ("GKMathUnion", None),
    ),
    *_group(
        "coding",
        ("HumanEval", "humaneval", "runs generated code"),
        ("HumanEval, Chinese", None),
        ("MBPP", "mbpp", "runs generated code"),
        ("HumanEval+", "humaneval_plus", "runs generated code"),
        ("MBPP+", "mbpp_plus", "runs generated code"),
        ("LiveCodeBench", None),
        ("CRUXEval", "cruxeval_output", "its other half is `cruxeval_input`"),
        ("BIRD-SQL", None),
    ),
)

POST_TRAINING = (
    *_group("coding", ("LiveCodeBench v6", None), ("SciCode", None), ("Aider", None)),
    *_group("mathematics", ("HMMT February 2026", None), ("AIME 2025", "aime25"), ("AIME 2026", None)),
    *_group("reasoning", ("KOR-Bench", None), ("GPQA", "gpqa_diamond_cot_zeroshot")),
    *_group(
        "knowledge",
        ("MMLU-Pro", "mmlu_pro"),
        ("Chinese SimpleQA", None, "needs a judge model"),
        ("C-Eval", "ceval-valid", "its validation split; the test answers are not public"),
    ),
    *_group("instruction following", ("IFEval", "ifeval"), ("IFBench", None)),
    *_group("function calling", ("BFCL v4", None)),
)

PRESETS = {"paper-41": MID_TRAINING, "paper-16": POST_TRAINING}


def preset_tasks(name: str) -> dict[str, str]:
    """The lm-eval tasks of a preset, each with its category."""
    return {c.task: c.category for c in PRESETS[name] if c.task is not None}


def absent_configurations(name: str) -> tuple[Configuration, ...]:
    """The configurations of a preset that lm-eval does not have, for the report."""
    return tuple(c for c in PRESETS[name] if c.task is None)
