"""Make the fork point that comes with the package: pretrained on the builtin corpus's code and tasks, shipped as bf16.

    python benchmarks/fork_point.py [--tokenizer]        about half an hour on one core; goes on where it was

`--tokenizer` first learns the tokenizer anew, from the documents that are trained on. The model is that of the `paper`
preset's first seed. config.json says float32: that is what it is loaded as, and what checkpoints are saved as.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import yaml

from trajsoup.lm.builtin import FORK_POINT
from trajsoup.study.cache import cache_folder
from trajsoup.study.file.presets import Preset, preset_study
from trajsoup.study.file.study import load_training_study

MOST_BYTES = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", action="store_true")
    if parser.parse_args().tokenizer:
        learn_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        ship(pretrained(Path(folder)))


def learn_tokenizer() -> None:
    """A vocabulary of 512 tokens from all documents that may be trained on."""
    from trajsoup.lm.corpus import CorpusSpec, load_corpus

    corpus = load_corpus(CorpusSpec(vocab_size=512), cache=cache_folder())
    FORK_POINT.mkdir(exist_ok=True)
    for path in corpus.tokenizer.iterdir():
        shutil.copy(path, FORK_POINT / path.name)


def pretrained(folder: Path) -> Path:
    """The fork point of the paper preset, from the cache if it was pretrained before."""
    from trajsoup.lm.train import train_branch
    from trajsoup.study.train.data import load_data
    from trajsoup.study.train.fork_point import ensure_fork_point

    (folder / "study.yaml").write_text(yaml.safe_dump(preset_study(Preset.PAPER)))
    study = load_training_study(folder / "study.yaml")
    corpus = load_data(study, cache=cache_folder())
    return ensure_fork_point(
        study,
        corpus,
        sequence_length=study.sequence_length or 128,
        cache=cache_folder(),
        run=lambda job: print(train_branch(job.write())),
    )


def ship(model: Path) -> None:
    """Write the weights as bf16 into the package."""
    import torch
    from safetensors.torch import load_file, save_file

    weights = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(model / "model.safetensors").items()}
    save_file(weights, FORK_POINT / "model.safetensors", metadata={"format": "pt"})
    (FORK_POINT / "model.safetensors").chmod(0o644)
    config = json.loads((model / "config.json").read_text())
    config.pop("_name_or_path", None)
    (FORK_POINT / "config.json").write_text(json.dumps(config | {"dtype": "float32"}, indent=2) + "\n")
    size = sum(path.stat().st_size for path in FORK_POINT.iterdir())
    assert size < MOST_BYTES, f"{size:,} bytes, more than the package should carry"
    print(f"{FORK_POINT}: {size:,} bytes")


if __name__ == "__main__":
    main()
