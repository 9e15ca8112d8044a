"""Write what is made from the code: docs/cli.md from the commands, docs/study-file.md from the fields of a study file,
docs/methods.md from the tables of methods, selections, weightings and sweeps.

    python docs/generate.py

A test runs this and fails when a page is out of date.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner

from trajsoup.cli.app import app
from trajsoup.cli.commands import COMMANDS
from trajsoup.core.coefficients import WEIGHTINGS
from trajsoup.core.methods.table import METHODS, Scope
from trajsoup.core.quantity import format_tokens
from trajsoup.core.recipe import Recipe
from trajsoup.core.retention import Retention
from trajsoup.core.schedule import Schedule
from trajsoup.core.selection import SELECTIONS
from trajsoup.lm.command_trainer import PLACEHOLDERS
from trajsoup.lm.corpus import CorpusSpec
from trajsoup.merge.branches import Listed, Screen
from trajsoup.store.fields import Declared, declared
from trajsoup.store.runs import Saved
from trajsoup.study.file.allocation import Adaptive
from trajsoup.study.file.connectivity import ConnectivityPlan
from trajsoup.study.file.evaluation import EvaluationPlan, FineTuningPlan
from trajsoup.study.file.lm_eval import LmEval
from trajsoup.study.file.neighbours import BranchTrainMerge, BranchTrainMix, Diloco, Neighbours, Wsd
from trajsoup.study.file.pretrain import Pretrain
from trajsoup.study.file.study import ForeignStudy, Study
from trajsoup.study.file.sweeps import SWEEP_FIELDS
from trajsoup.study.file.trainer import Builtin, Command
from trajsoup.study.sweeps.table import SWEEPS

DOCS = Path(__file__).parent
EXAMPLES = {
    "The embedded model, nothing to download": """\
kind: train
pretrain: {model: deepseek_v3, tokens: 2M}
corpus: builtin
horizon: 983040
checkpoint_every: 61440
baseline: {peak_lr: 1.5e-3, global_batch: 32}
branches:
  EXP1: {}
  EXP2: {seed: 1001}
  EXP3: {peak_lr: 1.06e-3, global_batch: 16}
trainer: builtin
""",
    "Your model and documents, the builtin trainer on two GPUs": """\
fork_point: models/my-model
corpus: {train: data/train, validation: data/validation.jsonl, test: data/test.jsonl}
sequence_length: 4096
horizon: 2621440k
checkpoint_every: 131072k
baseline: {peak_lr: 3.39e-4, global_batch: 256, schedule: constant}
branches:
  EXP1: {}
  EXP2: {seed: 1001}
  EXP4: {schedule: {decay_to: 3.39e-5}}
trainer:
  builtin: {micro_batch: 8, precision: bf16, sharding: fsdp2, launcher: torchrun --nproc-per-node 2}
report_to: [tensorboard, wandb]
""",
    "Domains, mixtures and methods of others that train": """\
pretrain: {model: llama, tokens: 2M}
corpus: builtin
horizon: 983040
checkpoint_every: 61440
baseline: {peak_lr: 1.5e-3, global_batch: 32}
branches:
  EXP1: {}
  EXP2: {seed: 1001}
  MORE-TASKS: {sources: {prose: 1, tasks: 1}}
evaluate: {comparable: prose}
neighbours:
  diloco: {workers: 2, steps: 15}
  wsd:
  branch-train-merge: {sources: [prose, tasks]}
  branch-train-mix: {sources: [prose, tasks], router_tokens: 100k}
""",
    "Your own training script": """\
fork_point: models/my-model
sequence_length: 4096
horizon: 2621440k
checkpoint_every: 131072k
baseline: {optimizer: adamw, peak_lr: 3.39e-4, global_batch: 256}
branches:
  EXP1: {}
  EXP2: {seed: 1001}
trainer:
  command: >-
    torchrun --nproc-per-node 8 train.py --init {fork_point} --lr {peak_lr} --seed {seed}
    --steps {total_steps} --save-every {checkpoint_steps} --out {output_dir}
  resume_command: >-
    torchrun --nproc-per-node 8 train.py --resume {latest_checkpoint} --lr {peak_lr} --seed {seed}
    --steps {total_steps} --save-every {checkpoint_steps} --out {output_dir}
  environment: {NCCL_DEBUG: WARN}
""",
}
RUNS = """\
kind: runs
fork_point: models/my-model
screen: {baseline: EXP1, tolerance: 0.01}
branches:
  EXP1:
    path: runs/EXP1
    checkpoints:
      - {path: checkpoint-1000, step: 1000, tokens: 262144000, train_loss: 2.31, losses_logged: 10, val_loss: 2.27}
      - {path: checkpoint-2000, step: 2000, tokens: 524288000, train_loss: 2.28, losses_logged: 10, val_loss: 2.25}
corpus: {validation: data/validation.jsonl, test: data/test.jsonl}
"""
SECTIONS: dict[str, type | Mapping[str, str]] = {
    "`kind: train`": Study,
    "`kind: runs`, as `trajsoup scan` writes it": ForeignStudy,
    "`pretrain`": Pretrain,
    "`corpus`": CorpusSpec,
    "`baseline` and each branch": Recipe,
    "`schedule`": Schedule,
    "`trainer: {builtin: {...}}`": Builtin,
    "`trainer: {command: ...}`": Command,
    "Placeholders of a command": {f"{{{name}}}": text for name, text in PLACEHOLDERS.items()},
    "`evaluate`": EvaluationPlan,
    "`evaluate: {lm_eval: {...}}`": LmEval,
    "each of `sweeps`": SWEEP_FIELDS,
    "`sft`": FineTuningPlan,
    "`neighbours`": Neighbours,
    "`neighbours: {diloco: {...}}`": Diloco,
    "`neighbours: {wsd: {...}}`": Wsd,
    "`neighbours: {branch-train-merge: {...}}`": BranchTrainMerge,
    "`neighbours: {branch-train-mix: {...}}`": BranchTrainMix,
    "`connectivity`": ConnectivityPlan,
    "`allocation`": Adaptive,
    "`retention`": Retention,
    "`screen` of `kind: runs`": Screen,
    "each of `branches` of `kind: runs`": Listed,
    "each of its `checkpoints`": Saved,
}
AFTER_THE_FIELDS = """\
## Caches

Tokenised corpora and pretrained fork points are kept, by content, in the folder named by the environment variable
`TRAJSOUP_CACHE`; without it in `$XDG_CACHE_HOME/trajsoup`, or `~/.cache/trajsoup`. It may be removed at any time.

## `--jobs`, threads and bits

`--jobs` branches train at once, each with its share of the cores. A branch of the builtin trainer uses a thread for every 10
GFLOPs of one forward and backward pass, at most its share: a smaller model is slowed by more threads, not sped up. The last
bits of a sum depend on the number of threads. So up to 20 GFLOPs a pass (the embedded models) a branch has the same bits
whatever `--jobs` says; beyond, they depend on the share that it began with, which is recorded and kept by a resume.
"""
ADDING = '''\
## Adding one

A method is one function. It is given what it may choose from, asks for scores of rows on validation if it wants to, and
returns the row that it chooses. All methods of a study are asked together: each round is one read of the checkpoints.

```python
from trajsoup.core.methods.asking import Asking, Decision, Score
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.pool import ranked


@method(name="my-greedy", label="Greedy, of all", reference="wortsman2022", scope=Scope.SEVERAL)
def my_greedy(freedom: Freedom) -> Asking:
    """Checkpoints from best to worst, as long as the mean of those taken gets strictly better."""
    stop = freedom.stops[-1]  # branches and where they stop; a study offers several
    order = ranked(tuple(c for pool in freedom.at(stop) for c in pool.candidates), rank_by=freedom.rank_by)
    taken, best, score = [], None, float("inf")
    for candidate in order:
        keys = [*taken, candidate.key]
        option = freedom.option(dict.fromkeys(keys, 1 / len(keys)), stop=stop)
        loss = (yield Score(options=(option,)))[option.name].losses.loss()
        if loss < score:
            taken, best, score = keys, option, loss
    return Decision(option=best, free=("checkpoints",), among=len(order), score=score)
```

In the package it is a file in `core/methods/` and its line in `core/methods/__init__.py`; outside, any module that is
imported before the table is asked. Its keyword-only arguments are its parameters (`core/methods/parameters.py`). With
`default=False` a study shows it only where `evaluate: {methods: [...]}` names it.

A weighting is a function of the ordered candidates, each with tokens, scores and branch: `@weighting(name=..., says=...)`
of `core/coefficients.py`. A selection is a function from pools to groups of candidates: `@selection(...)` of
`core/selection.py`. A sweep is a function from a field to entries: `@sweep(...)` of `study/sweeps/table.py`; in the package
a file in `study/sweeps/` and its line in the `__init__.py` there. `tests/test_toys.py` adds one of each and runs them.
'''


def cli_page() -> str:
    """The help of every command, as Markdown."""
    parts = ["# Command line", "", "Generated by `make docs` from the commands; do not edit.", ""]
    parts += ["```", _help(), "```", ""]
    for name in COMMANDS:
        parts += [f"## trajsoup {name}", "", "```", _help(name), "```", ""]
    return "\n".join(parts)


def study_page() -> str:
    """Every field of a study file and what it means, with an example for each way to train."""
    parts = [
        "# The study file\n",
        "Generated by `make docs` from the code; do not edit. Paths are relative to the file.\n",
    ]
    parts += [f"## Example: {title[0].lower()}{title[1:]}\n\n```yaml\n{text}```\n" for title, text in EXAMPLES.items()]
    parts.append(f"## Example: runs that exist\n\n```yaml\n{RUNS}```\n")
    for title, what in SECTIONS.items():
        rows = "".join(f"| `{name}` | {text.replace('|', chr(92) + '|')} |\n" for name, text in _rows(what).items())
        parts.append(f"## {title}\n\n| field | meaning |\n|---|---|\n{rows}")
    return "\n".join([*parts, AFTER_THE_FIELDS])


def methods_page() -> str:
    """The tables that anybody may add to."""
    scopes = {
        Scope.BASELINE: "the baseline's",
        Scope.ONE: "one branch of T",
        Scope.SEVERAL: "N branches of T/N (Limited) or of t (Extended)",
        Scope.EITHER: "one branch of T, or N as above",
    }
    tables = {
        "Methods (`merge --method`, the main table)": (
            ("name", "row", "what it averages", "tokens", "reference"),
            [(f"`{m.name}`", m.label, m.says, scopes[m.scope], m.reference) for m in METHODS.values()],
        ),
        "Parameters of methods (`--param name=value`)": (
            ("method", "parameter", "meaning"),
            [(f"`{m.name}`", f"`{p}`".replace("|", "\\|"), p.says) for m in METHODS.values() for p in m.parameters],
        ),
        "Methods that train (`neighbours` of a study file), from the same fork point on T tokens in all": (
            ("name", "what it trains", "parameters"),
            [(f"`{f.key}`", f.help, ", ".join(f"`{p}`" for p in _rows(_class_of(f)))) for f in declared(Neighbours)],
        ),
        "Selections (`--select`)": (
            ("name", "checkpoints", "needs K", "looks at scores", "reference"),
            [
                (f"`{s.name}`", s.says, "yes" if s.needs_k else "", "yes" if s.ranked else "", s.reference)
                for s in SELECTIONS.values()
            ],
        ),
        "Weights inside a branch (`--weights`), j = 1 the first of the selection": (
            ("name", "proportional to", "reference"),
            [(f"`{w.name}`", w.says, w.reference) for w in WEIGHTINGS.values()],
        ),
        "Sweeps (`sweeps` of a study file)": (
            ("name", "title", "axis", "settings", "reference"),
            [(f"`{k.name}`", k.title, k.axis, ", ".join(k.settings), k.paper) for k in SWEEPS.values()],
        ),
    }
    parts = ["# Methods, selections, weights, sweeps\n", "Generated by `make docs` from the code; do not edit.\n"]
    for title, (columns, rows) in tables.items():
        lines = [columns, ["---"] * len(columns), *rows]
        parts.append(f"## {title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    return "\n".join([*parts, ADDING])


def _class_of(field: Declared) -> type:
    return next(kind for kind in typing.get_args(field.hint) if dataclasses.is_dataclass(kind))


def _rows(what: type | Mapping[str, str]) -> dict[str, str]:
    return dict(what) if isinstance(what, Mapping) else {f.key: _meaning(f) for f in declared(what)}


def _meaning(field: Declared) -> str:
    """Its help, and its default unless the help says it or there is nothing to say."""
    if "default" in field.help.lower() or field.name == "kind":
        return field.help
    match field.default:
        case dataclasses.MISSING:
            return f"{field.help} Must be given."
        case None | () | Mapping():
            return field.help
        case default if dataclasses.is_dataclass(default):
            return field.help
        case bool(default):
            shown = str(default).lower()
        case int(default) if default >= 100_000:
            shown = format_tokens(default)
        case float(default):
            shown = f"{default:g}"
        case default:
            shown = str(list(default) if isinstance(default, tuple) else default)
    return f"{field.help} Default {shown}."


def _help(*command: str) -> str:
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="trajsoup", env={"COLUMNS": "100"})
    if result.exit_code:
        raise RuntimeError(result.output)
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


PAGES = {"cli.md": cli_page, "study-file.md": study_page, "methods.md": methods_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
