"""FP8 with block scales by torch: what the tool is compared with."""

from __future__ import annotations

from collections.abc import Mapping

import torch

QUANTIZATION = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
CONFIG = {"model_type": "toy", "dtype": "bfloat16", "quantization_config": QUANTIZATION}
QUANTISED = ("layers.0.down.weight", "layers.0.up.weight")


def wide(scales: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    rows, columns = like.shape
    repeated = scales.float().repeat_interleave(128, 0).repeat_interleave(128, 1)
    return repeated[:rows, :columns]


def dequantised(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return codes.float() * wide(scales, codes)


def quantised(
    weight: torch.Tensor, *, scales: torch.dtype = torch.float32, power_of_two: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = weight.shape
    padded = torch.zeros(-(-rows // 128) * 128, -(-columns // 128) * 128)
    padded[:rows, :columns] = weight.abs()
    found = padded.reshape(padded.shape[0] // 128, 128, -1, 128).amax(dim=(1, 3)) / 448
    if power_of_two:
        found = torch.exp2(torch.ceil(torch.log2(found)))
    found[found == 0] = 1
    found = found.to(scales)
    return (weight / wide(found, weight)).clamp(-448, 448).to(torch.float8_e4m3fn), found


def weights(seed: int, **how: object) -> dict[str, torch.Tensor]:
    """Two quantised matrices, one of uneven blocks and one with a block of zeros, among what is not quantised."""
    chance = torch.Generator().manual_seed(seed)
    up = torch.randn(200, 300, generator=chance) * torch.rand(200, 1, generator=chance)
    down = torch.randn(300, 256, generator=chance) * 0.02
    down[:128, 128:] = 0
    found: dict[str, torch.Tensor] = {
        "embed.weight": torch.randn(40, 256, generator=chance).bfloat16(),
        "layers.0.gate.e_score_correction_bias": torch.randn(6, generator=chance),
        "norm.weight": torch.randn(256, generator=chance).bfloat16(),
    }
    for name, weight in zip(QUANTISED, (down, up), strict=True):
        found[name], found[f"{name}_scale_inv"] = quantised(weight, **how)  # type: ignore[arg-type]
    return found


def soup(ingredients: Mapping[int, float], *, uniform: bool, **how: object) -> dict[str, torch.Tensor]:
    """The reference: dequantise to fp32, average in fp64, round to fp32 once, quantise anew."""
    each = [weights(seed, **how) for seed in ingredients]
    found: dict[str, torch.Tensor] = {}
    for name in QUANTISED:
        found[name], found[f"{name}_scale_inv"] = quantised(mean(each, ingredients, name, uniform=uniform), **how)  # type: ignore[arg-type]
    return found


def mean(
    each: list[dict[str, torch.Tensor]], ingredients: Mapping[int, float], name: str, *, uniform: bool
) -> torch.Tensor:
    values = [dequantised(one[name], one[f"{name}_scale_inv"]).double() for one in each]
    if uniform:
        return (sum(values) / len(values)).float()  # type: ignore[union-attr]
    return sum(v * w for v, w in zip(values, ingredients.values(), strict=True)).float()  # type: ignore[union-attr]
