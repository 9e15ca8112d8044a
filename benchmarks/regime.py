"""Where a small study shows the paper's conditions: learning rate x corpus x model size, horizons read from each run.

    python benchmarks/regime.py OUT [--cells 1,2,...]        one line of JSON per cell in OUT/map.jsonl

The criterion looks at validation alone and at no soup of several branches (docs/regime.md states it): the merged
serial curve is flat, and the perturbed branch passes the screen on a probe of training documents.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path

TINY = {
    "hidden_size": 16, "intermediate_size": 48, "moe_intermediate_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "n_routed_experts": 4, "q_lora_rank": 8, "kv_lora_rank": 8,
}  # fmt: skip
SMALL = {
    **TINY,
    "hidden_size": 32,
    "intermediate_size": 96,
    "moe_intermediate_size": 16,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
}
VOCAB = 320  # bytes and a few merges: most of the parameters are in the layers, and a step is short
STEP = 32 * 128
EVERY, COUNT = 60 * STEP, 32  # a checkpoint every 245,760 tokens, horizon 7,864,320
HORIZONS = (4, 8, 12, 16, 20, 24, 28, 32)  # checkpoints of the serial run
SHOWN = (8, 12, 16, 24, 32)  # of the table
ENDS = (24, 32)  # horizons that the criterion is read at
KS = (1, 2, 3, 4, 6, 8, 12, 16)
FLAT = 0.002  # nats: the merged serial run gains at most this from the second half of its horizon

CELLS = [
    {"model": model, "pretrain": pretrain, "bytes": 12_000_000, "lr": lr}
    for model in ("tiny", "small")
    for pretrain in (6_000_000, 24_000_000)
    for lr in (1.5e-3, 4e-3, 5e-4, 1e-2)
] + [{"model": "tiny", "pretrain": 9_000_000, "bytes": 12_000_000, "lr": 1.5e-3}]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", action="store_true", help="print OUT/map.jsonl as Markdown and do nothing else")
    parser.add_argument("--cells", default=",".join(str(i) for i in range(len(CELLS))))
    args = parser.parse_args()
    if args.table:
        print(table(args.out / "map.jsonl"))
        return
    os.environ.setdefault("TRAJSOUP_CACHE", str(args.out / "cache"))
    from trajsoup.lm.cpu_isa import isa_environment

    args.out.mkdir(parents=True, exist_ok=True)
    os.environ |= isa_environment(cache=args.out / "cache")
    for number in map(int, args.cells.split(",")):
        begin = time.perf_counter()
        result = CELLS[number] | measure(CELLS[number], args.out / f"cell-{number}")
        result["seconds"] = round(time.perf_counter() - begin, 1)
        print(json.dumps(result), flush=True)
        with (args.out / "map.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")


def table(path: Path) -> str:
    """The measured map as Markdown."""
    heads = [
        *("model", "pretraining", "learning rate", "fork point"),
        *(f"merged at {count * EVERY / 1e6:.1f}M" for count in SHOWN),
        *("best raw", *(f"gain of second half, t = {t * EVERY / 1e6:.1f}M" for t in ENDS), "J of EXP3", "meets both"),
    ]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for text in path.read_text().splitlines():
        cell = json.loads(text)
        merged = {int(tokens) // EVERY: found for tokens, found in cell["merged"].items()}
        gains = [merged[t // 2]["loss"] - merged[t]["loss"] for t in ENDS]
        gap = cell["loss_gap"]["EXP3"]
        cells = [
            cell["model"],
            f"{cell['pretrain'] / 1e6:g}M",
            f"{cell['lr']:g}",
            f"{cell['fork_point']:.4f}",
            *(f"{merged[count]['loss']:.4f} (K={merged[count]['k']})" for count in SHOWN),
            f"{merged[COUNT]['raw']:.4f}",
            *(f"{gain:+.4f}" for gain in gains),
            f"{gap:+.2%}",
            "yes" if min(gains) <= FLAT and cell["screened"] else "no",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def measure(cell: dict, folder: Path) -> dict:
    """Train baseline and EXP3 of one cell; the merged serial curve and J."""
    import torch

    from trajsoup.core.choosing import choose, with_scores
    from trajsoup.core.screening import screen
    from trajsoup.core.soup import Row, soup_row
    from trajsoup.lm.probe import probe_of
    from trajsoup.merge.branches import scan_branches
    from trajsoup.store.checkpoint import open_checkpoint
    from trajsoup.study.cache import cache_folder
    from trajsoup.study.file.study import load_training_study
    from trajsoup.study.score.rows import ScoreSettings
    from trajsoup.study.score.scorer import Scorer
    from trajsoup.study.train.branches import train_study
    from trajsoup.study.train.data import load_data

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(json.dumps(study(cell)))  # JSON is YAML
    loaded = load_training_study(folder / "study.yaml")
    corpus = load_data(loaded, cache=cache_folder())
    trained = train_study(loaded, corpus=corpus)
    validation = probe_of(corpus.validation, max_tokens=60_000)
    probe = probe_of(corpus.train, max_tokens=60_000)
    branches = scan_branches([folder / "branches" / name for name in loaded.recipes])
    pools = branches.pools()
    checkpoints = {c.key: open_checkpoint(c.key) for pool in pools for c in pool.candidates}

    def score(rows, tokens, name):
        there = dataclasses.replace(corpus, validation=tokens)
        place = folder / "scores" / name
        return Scorer(checkpoints=checkpoints, corpus=there, folder=place, settings=ScoreSettings()).validate(rows)

    singles = [Row(name=key, weights={key: 1.0}) for key in checkpoints]
    pools = with_scores(pools, score(singles, validation, "validation"))
    last = [Row(name=p.candidates[-1].key, weights={p.candidates[-1].key: 1.0}) for p in pools]
    on_probe = score(last, probe, "probe")
    probed = [
        dataclasses.replace(
            p, candidates=(dataclasses.replace(p.candidates[-1], train_loss=on_probe[r.name].losses.loss()),)
        )
        for p, r in zip(pools, last, strict=True)
    ]
    verdicts = screen(probed, baseline="EXP1")
    serial = pools[0]
    merged = {}
    for horizon in (count * EVERY for count in HORIZONS):
        have = sum(c.tokens <= horizon for c in serial.candidates)
        rows = [soup_row([serial], k=k, horizon=horizon, name=f"{k}@{horizon}") for k in KS if k <= have]
        scores = score(rows, validation, "validation")
        best = choose(scores)
        merged[horizon] = {
            "loss": best.score,
            "k": int(best.name.split("@")[0]),
            "raw": scores[f"1@{horizon}"].losses.loss(),
        }
    fork = open_checkpoint(trained.fork_point)
    checkpoints["fork"] = fork
    start = score([Row(name="fork", weights={"fork": 1.0})], validation, "validation")["fork"].losses.loss()
    half, full = merged[COUNT // 2 * EVERY]["loss"], merged[COUNT * EVERY]["loss"]
    return {
        "epochs": round(EVERY * COUNT / len(corpus.train.tokens), 2),
        "fork_point": start,
        "merged": merged,
        "gain_of_second_half": half - full,
        "loss_gap": {v.branch: v.loss_gap for v in verdicts},
        "flat": half - full <= FLAT,
        "screened": all(v.admitted for v in verdicts),
    }


def study(cell: dict) -> dict:
    model = {"small": SMALL, "tiny": TINY}[cell["model"]]
    lr = cell["lr"]
    return {
        "pretrain": {
            "model": {"family": "deepseek_v3", **model},
            "tokens": cell["pretrain"],
            "recipe": {"peak_lr": 1e-2, "momentum": 0.9, "schedule": {"shape": "linear", "decay_to": 2e-4}},
        },
        "corpus": {"vocab_size": VOCAB, "limit_bytes": cell["bytes"]},
        "sequence_length": 128,
        "horizon": EVERY * COUNT,
        "checkpoint_every": EVERY,
        "max_epochs": 50,
        "baseline": {"peak_lr": lr, "global_batch": 32},
        "branches": {"EXP1": {}, "EXP3": {"peak_lr": lr / 2**0.5, "global_batch": 16}},
    }


if __name__ == "__main__":
    main()
