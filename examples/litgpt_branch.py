"""Train one branch with `litgpt pretrain`: a Llama folder goes in, Hugging Face checkpoints come out.

litgpt trains; this script only writes its config and converts its weights both ways, because litgpt keeps them in pickles of
its own. Run it with the Python of an environment that has litgpt and litdata. The study is examples/litgpt.yaml.

litgpt shuffles in one fixed order whatever the seed, and decays along a cosine: perturb peak_lr, decay_to or the batch.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import yaml
from litgpt.config import Config
from litgpt.scripts.convert_hf_checkpoint import copy_weights_hf_llama
from litgpt.scripts.convert_lit_checkpoint import copy_weights_llama
from safetensors.torch import load_file, save_file


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument(
        "--train", type=Path, required=True, help="folder of .txt files; the first one is litgpt's own check"
    )
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--learning_rate", type=float, required=True)
    parser.add_argument("--min_lr", type=float, default=0.0)
    parser.add_argument("--weight_decay", type=float, default=0.1)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--block", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--save_steps", type=int, required=True)
    parser.add_argument("--warmup_steps", type=int, default=0)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    config = litgpt_config(args.model)
    work = args.output_dir / ".litgpt"
    start = work / "start"
    if not start.is_dir():
        start.mkdir(parents=True)
        weights = {}
        copy_weights_hf_llama(config, {}, weights, load_file(args.model / "model.safetensors"), dtype=torch.float32)
        torch.save(weights, start / "lit_model.pth")
    resuming = any(work.glob("step-*/lit_model.pth"))
    settings = {
        "model_name": config.name,
        "model_config": {name: getattr(config, name) for name in FIELDS},
        "out_dir": str(work),
        "precision": "32-true",
        "initial_checkpoint_dir": None if resuming else str(start),
        "resume": "auto" if resuming else False,
        "data": {
            "class_path": "litgpt.data.TextFiles",
            "init_args": {"train_data_path": str(args.train), "num_workers": 0},
        },
        "train": {
            "save_interval": args.save_steps,
            "log_interval": 1,
            "global_batch_size": args.batch,
            "micro_batch_size": args.batch,
            "max_tokens": args.tokens,
            "max_seq_length": args.block,
            "max_norm": args.clip,
            "min_lr": args.min_lr,
            "lr_warmup_steps": args.warmup_steps,
        },
        "eval": {"interval": 1_000_000_000, "max_iters": 1, "final_validation": False},
        "optimizer": {
            "class_path": "torch.optim.AdamW",
            "init_args": {"lr": args.learning_rate, "weight_decay": args.weight_decay, "betas": [0.9, 0.95]},
        },
        "devices": 1,
        "tokenizer_dir": str(args.model),
        "logger_name": "csv",
        "seed": args.seed,
    }
    (work / "pretrain.yaml").write_text(yaml.safe_dump(settings))
    subprocess.run([sys.executable, "-m", "litgpt", "pretrain", "--config", str(work / "pretrain.yaml")], check=True)
    for saved in sorted(work.glob("step-*/lit_model.pth")):
        convert(
            saved, args.output_dir / f"checkpoint-{int(saved.parent.name.removeprefix('step-'))}", config, args.model
        )
    write_metrics(work, args.output_dir / "metrics.jsonl")


FIELDS = (
    "name", "block_size", "vocab_size", "padded_vocab_size", "n_layer", "n_head", "n_embd", "n_query_groups",
    "rotary_percentage", "parallel_residual", "bias", "norm_class_name", "norm_eps", "mlp_class_name", "intermediate_size",
    "rope_base",
)  # fmt: skip


def litgpt_config(model):
    hf = json.loads((model / "config.json").read_text())
    if hf["model_type"] != "llama":
        raise SystemExit(f"{model} is a {hf['model_type']} model: this example converts llama")
    rope = hf.get("rope_parameters") or hf
    return Config(
        name="fork-point",
        block_size=hf["max_position_embeddings"],
        vocab_size=hf["vocab_size"],
        padded_vocab_size=hf["vocab_size"],
        n_layer=hf["num_hidden_layers"],
        n_head=hf["num_attention_heads"],
        n_embd=hf["hidden_size"],
        n_query_groups=hf["num_key_value_heads"],
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        norm_eps=hf["rms_norm_eps"],
        mlp_class_name="LLaMAMLP",
        intermediate_size=hf["intermediate_size"],
        rope_base=int(rope.get("rope_theta", 10000)),
    )


def convert(saved, out, config, model):
    """Write one checkpoint in the fork point's format: whole, or not at all."""
    if out.is_dir():
        return
    state = torch.load(saved, map_location="cpu", weights_only=False)["model"]  # litgpt's own file, written just now
    weights = {}
    copy_weights_llama(config, weights, {name.removeprefix("_orig_mod."): tensor for name, tensor in state.items()})
    unfinished = out.with_name(f".{out.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()},
        unfinished / "model.safetensors",
        {"format": "pt"},
    )
    for path in model.iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            shutil.copyfile(path, unfinished / path.name)
    unfinished.rename(out)


def write_metrics(work, out):
    """One line for each step; litgpt's `step` counts from 0, and `iter` is the step where a pass is one. The last counts."""
    rows = {}
    for log in sorted(work.glob("logs/csv/version_*/metrics.csv")):
        with log.open() as file:
            rows |= {int(float(row["iter"])): row for row in csv.DictReader(file) if row.get("loss")}
    with out.open("w") as file:
        for step, row in sorted(rows.items()):
            line = {
                "step": step,
                "tokens": int(float(row["total_tokens"])),
                "train_loss": float(row["loss"]),
            }
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
