"""Make the fork points that come with the package: pretrained on the builtin corpus's code and tasks, shipped as bf16.

    python benchmarks/fork_points.py [--seeds 0 3] [--tokenizer]        15 minutes of one core each; goes on where it was

`--tokenizer` first learns the tokenizer anew, from the documents that are trained on. Each has the fresh weights and the
data order of its seed. config.json says float32: that is what it is loaded as, and what checkpoints are saved as.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import yaml

from trajsoup.lm.builtin import FORK_POINT, FORK_POINTS
from trajsoup.study.cache import cache_folder
from trajsoup.study.file.presets import Preset, preset_study, with_own_fork_point
from trajsoup.study.file.study import Study, load_training_study, with_seed

MOST_BYTES = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="*", default=range(5))
    arguments = parser.parse_args()
    if arguments.tokenizer:
        learn_tokenizer()
    for seed in arguments.seeds:
        with tempfile.TemporaryDirectory() as folder:
            ship(pretrained(Path(folder), seed=seed), FORK_POINTS / str(seed))


def learn_tokenizer() -> None:
    """A vocabulary of 512 tokens from all documents that may be trained on."""
    from trajsoup.lm.corpus import CorpusSpec, load_corpus

    corpus = load_corpus(CorpusSpec(vocab_size=512), cache=cache_folder())
    FORK_POINT.mkdir(parents=True, exist_ok=True)
    for path in corpus.tokenizer.iterdir():
        shutil.copy(path, FORK_POINT / path.name)


def pretrained(folder: Path, *, seed: int) -> Path:
    """The fork point of a seed, from the cache if it was pretrained before."""
    from trajsoup.lm.train import train_branch
    from trajsoup.study.train.data import load_data
    from trajsoup.study.train.fork_point import ensure_fork_point

    (folder / "study.yaml").write_text(yaml.safe_dump(with_own_fork_point(preset_study(Preset.QUICK))))
    study = load_training_study(folder / "study.yaml")
    study = with_seed(study, seed)
    assert isinstance(study, Study)
    corpus = load_data(study, cache=cache_folder())
    return ensure_fork_point(
        study,
        corpus,
        sequence_length=study.sequence_length or 128,
        cache=cache_folder(),
        run=lambda job: print(train_branch(job.write())),
    )


def ship(model: Path, out: Path) -> None:
    """Write the weights as bf16 into the package, with the config and the tokenizer that all have."""
    import torch
    from safetensors.torch import load_file, save_file

    weights = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(model / "model.safetensors").items()}
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    config = json.loads((model / "config.json").read_text())
    config.pop("_name_or_path", None)
    (out / "config.json").write_text(json.dumps(config | {"dtype": "float32"}, indent=2) + "\n")
    if out != FORK_POINT:
        for path in FORK_POINT.glob("tokenizer*"):
            shutil.copy(path, out / path.name)
    size = sum(path.stat().st_size for path in out.iterdir())
    assert size < MOST_BYTES, f"{size:,} bytes, more than the package should carry"
    print(f"{out}: {size:,} bytes")


if __name__ == "__main__":
    main()
