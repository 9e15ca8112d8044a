"""Small synthetic runs with a known loss: noisy gradient descent on a quadratic bowl, as in sec:local-model.

The loss of any point is exact, so what averaging gains can be read off without training a network. A branch is a
recipe (seed, learning rate); its checkpoints hover around the minimum as far as its noise carries them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trajsoup.store.formats.safetensors import build_header

SHAPES = {"embed.weight": (64, 32), "layers.0.weight": (32, 32), "layers.1.weight": (32, 32), "norm.weight": (32,)}
SIZE = sum(int(np.prod(shape)) for shape in SHAPES.values())
FLOOR = 2.0  # the loss at the bottom of the bowl
TOKENS_PER_STEP = 1000


@dataclass(frozen=True, slots=True)
class Bowl:
    """loss(x) = FLOOR + 1/2 sum h (x - minimum)^2."""

    curvature: NDArray[np.float64]
    minimum: NDArray[np.float64]
    start: NDArray[np.float64]

    def loss(self, point: NDArray[np.float64]) -> float:
        """The exact validation loss."""
        return FLOOR + 0.5 * float(self.curvature @ (point - self.minimum) ** 2)


def make_bowl(seed: int = 0) -> Bowl:
    """A bowl whose curvatures spread over two decades, and a fork point on its slope."""
    rng = np.random.default_rng(seed)
    minimum = rng.standard_normal(SIZE) * 0.5
    return Bowl(10 ** rng.uniform(-2, 0, SIZE), minimum, minimum + rng.standard_normal(SIZE) * 0.03)


def write_run(folder: Path, bowl: Bowl, *, seed: int, learning_rate: float, steps: int = 600, every: int = 50) -> None:
    """Descend with noisy gradients, saving fp32 checkpoints and a metrics.csv as a training run would."""
    rng = np.random.default_rng(seed)
    point = bowl.start.copy()
    recent: list[float] = []
    folder.mkdir(parents=True)
    with (folder / "metrics.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["step", "tokens", "train_loss", "val_loss"])
        for step in range(1, steps + 1):
            gradient = bowl.curvature * (point - bowl.minimum)
            point -= learning_rate * (gradient + rng.standard_normal(SIZE) * 0.05)
            recent.append(bowl.loss(point))
            if step % every == 0:
                write_point(folder / f"checkpoint-{step}", point)
                table.writerow([step, step * TOKENS_PER_STEP, np.mean(recent), bowl.loss(point)])
                recent = []


def write_point(folder: Path, point: NDArray[np.float64]) -> None:
    """Save a point as a checkpoint folder."""
    folder.mkdir(parents=True)
    lead, _ = build_header([(name, "F32", shape) for name, shape in SHAPES.items()], metadata={"format": "pt"})
    (folder / "model.safetensors").write_bytes(lead + point.astype("<f4").tobytes())
    (folder / "config.json").write_text('{"model_type": "synthetic"}\n')


def read_point(tensors: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """Flatten the tensors of a checkpoint or soup back into a point."""
    return np.concatenate([tensors[name].reshape(-1) for name in SHAPES]).astype(np.float64)
