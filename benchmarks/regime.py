"""Where a small study can ask the paper's question: learning rate x size of the mid-training corpus, read off serial runs.

    python benchmarks/regime.py OUT [--cells 0,1,...]        one line of JSON per cell in OUT/map.jsonl
    python benchmarks/regime.py OUT --table                  the map as Markdown, with the cell that the rule chooses

The rule (docs/regime.md states it) looks at validation documents and at the serial run alone: no branch beside it, no soup
of several branches, no test document.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

EVERY, COUNT = 12 * 32 * 128, 24  # a checkpoint every 49,152 tokens, horizon 1,179,648
HORIZONS = (4, 6, 8, 12, 16, 18, 24, 36)  # checkpoints of the serial run
KS = (1, 2, 4, 8, 12, 16, 24, 36)
MOST = 4_000_000 // 3  # tokens of T: three branches of it fit into the five minutes of `make demo`
FLAT = 0.002  # nats: what the merged serial run may still gain from the second half of its tokens

FIRST = [  # the first map
    {"train_bytes": size, "lr": lr, "batch": batch, "weight_decay": 0.1}
    for size in (125_000, 250_000)
    for batch in (16, 8)
    for lr in (4e-3, 2.8e-3)
]
SECOND = [  # the second: what keeps a run that has nothing more to learn from unlearning
    {"train_bytes": size, "lr": 4e-3, "batch": 16, "weight_decay": decay}
    for size in (125_000, 250_000)
    for decay in (0.5, 1.0, 2.0, 4.0)
]
THIRD = [  # longer, between the cells of the second
    {"train_bytes": size, "lr": lr, "batch": 16, "weight_decay": 0.5, "checkpoints": 36}
    for size, lr in ((250_000, 4e-3), (180_000, 4e-3), (250_000, 8e-3), (180_000, 8e-3))
]
CELLS = FIRST + SECOND + THIRD


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", action="store_true", help="print OUT/map.jsonl as Markdown and do nothing else")
    parser.add_argument("--cells", default=",".join(str(i) for i in range(len(CELLS))))
    args = parser.parse_args()
    if args.table:
        print(table(args.out / "map.jsonl"))
        return
    from trajsoup.lm.cpu_isa import isa_environment
    from trajsoup.study.cache import cache_folder

    args.out.mkdir(parents=True, exist_ok=True)
    os.environ |= isa_environment(cache=cache_folder())
    for number in map(int, args.cells.split(",")):
        begin = time.perf_counter()
        result = CELLS[number] | measure(CELLS[number], args.out / f"cell-{number}")
        result["seconds"] = round(time.perf_counter() - begin, 1)
        with (args.out / "map.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(json.dumps({k: v for k, v in result.items() if k != "accuracy"}), flush=True)


def study(cell: dict[str, Any]) -> dict[str, Any]:
    """The serial run of a cell."""
    return {
        "fork_point": "builtin",
        "corpus": {"document_tokens": 128, "train_bytes": cell["train_bytes"]},
        "sequence_length": 128,
        "horizon": EVERY * cell.get("checkpoints", COUNT),
        "checkpoint_every": EVERY,
        "max_epochs": 100,
        "baseline": {"peak_lr": cell["lr"], "global_batch": cell["batch"], "weight_decay": cell["weight_decay"]},
        "branches": {"EXP1": {}},
        "evaluate": {"items": 100, "validation_tokens": 42_000},
    }


def measure(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train the serial run of one cell; its raw and merged curves, and what the fork point knows."""
    import torch
    from scipy.stats import spearmanr

    from trajsoup.core.choosing import choose, with_scores
    from trajsoup.core.soup import Row, soup_row
    from trajsoup.merge.branches import scan_branches
    from trajsoup.store.checkpoint import open_checkpoint
    from trajsoup.study.cache import cache_folder
    from trajsoup.study.file.study import load_training_study
    from trajsoup.study.score.scorer import make_scorer
    from trajsoup.study.train.branches import train_study
    from trajsoup.study.train.data import load_data

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(json.dumps(study(cell)))  # JSON is YAML
    loaded = load_training_study(folder / "study.yaml")
    corpus = load_data(loaded, cache=cache_folder())
    assert corpus is not None
    trained = train_study(loaded, corpus=corpus, jobs=1)
    (serial,) = scan_branches([folder / "branches" / "EXP1"]).pools()
    checkpoints = {c.key: open_checkpoint(c.key) for c in serial.candidates} | {
        "fork": open_checkpoint(trained.fork_point)
    }
    scorer = make_scorer(corpus, checkpoints, folder=folder / "scores", evaluation=loaded.evaluation, base=folder)
    scores = scorer.validate([Row(name=key, weights={key: 1.0}) for key in checkpoints])
    fork = scores.pop("fork")
    assert fork.losses is not None
    (serial,) = with_scores((serial,), scores)
    merged: dict[int, dict[str, Any]] = {}
    for horizon in (count * EVERY for count in HORIZONS if count <= len(serial.candidates)):
        have = sum(c.tokens <= horizon for c in serial.candidates)
        rows = [soup_row([serial], k=k, horizon=horizon, name=str(k)) for k in KS if k <= have]
        found = scorer.validate(rows, tasks=False)
        best = choose(found)
        (row,) = (row for row in rows if row.name == best.name)
        merged[horizon] = {
            "loss": best.score,
            "k": int(best.name),
            "raw": _loss(found["1"]),
            "accuracy": scorer.validate([row])[row.name].overall_average,
        }
    curve = [(c.tokens, _loss(scores[c.key]), scores[c.key].overall_average) for c in serial.candidates]
    return {
        "corpus_tokens": corpus.train.n_tokens,
        "validation_documents": corpus.validation.n_documents,
        "fork_point": {"loss": _loss(fork), "accuracy": fork.overall_average},
        "skills": {t.name: [t.accuracy, t.chance] for t in fork.tasks},
        "raw": curve,
        "merged": merged,
        "alignment": float(spearmanr([-loss for _, loss, _ in curve], [a for _, _, a in curve]).statistic),
        "after": {t.name: t.accuracy for t in scores[serial.candidates[-1].key].tasks},
    }


def _loss(scores: Any) -> float:
    return scores.losses.loss()


def budget(cell: dict[str, Any]) -> int | None:
    """The smallest budget T at which the second half, and the last two thirds, of the serial run buy nothing."""
    merged = {int(t): found["loss"] for t, found in cell["merged"].items()}
    for tokens in sorted(merged):
        parts = [merged[tokens // n] for n in (2, 3) if tokens // n in merged and tokens % n == 0]
        if len(parts) == 2 and max(parts) - merged[tokens] <= FLAT:
            return tokens
    return None


def meets(cell: dict[str, Any]) -> bool:
    """The conditions of the rule, for the serial run of a cell."""
    tokens = budget(cell)
    if tokens is None:
        return False
    end = next(found for t, found in cell["merged"].items() if int(t) == tokens)
    fork = cell["fork_point"]
    return end["loss"] < fork["loss"] and end["accuracy"] > fork["accuracy"] and cell["alignment"] > 0


def table(path: Path) -> str:
    """The measured map as Markdown."""
    cells = [json.loads(text) for text in path.read_text().splitlines()]
    shown = [EVERY * count for count in HORIZONS]
    heads = [
        *("prose, bytes", "tokens", "learning rate", "batch", "weight decay", "fork point"),
        *(f"merged at {t / 1e6:.2f}M" for t in shown),
        *("best raw", "accuracy: fork point", "merged", "alignment", "T", "meets all"),
    ]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    good = [cell for cell in cells if meets(cell)]
    short = [cell for cell in good if (budget(cell) or 0) <= MOST]
    chosen = min(short, key=lambda c: c["merged"][str(budget(c))]["loss"]) if short else None
    for cell in cells:
        tokens = budget(cell)
        last = cell["merged"][str(tokens or max(map(int, cell["merged"])))]
        row = [
            f"{cell['train_bytes']:,}",
            f"{cell['corpus_tokens']:,}",
            f"{cell['lr']:g}",
            str(cell["batch"]),
            f"{cell['weight_decay']:g}",
            f"{cell['fork_point']['loss']:.4f}",
            *(_merged(cell["merged"].get(str(t))) for t in shown),
            f"{min(loss for _, loss, _ in cell['raw']):.4f}",
            f"{cell['fork_point']['accuracy']:.1%}",
            f"{last['accuracy']:.1%}",
            f"{cell['alignment']:+.2f}",
            "none" if tokens is None else f"{tokens / 1e6:.2f}M",
            ("**chosen**" if cell is chosen else "yes") if cell in good else "no",
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _merged(found: dict[str, Any] | None) -> str:
    return "" if found is None else f"{found['loss']:.4f} (K={found['k']})"


if __name__ == "__main__":
    main()
