"""FP8 checkpoints with block scales: dequantised, averaged, quantised anew; exact against torch."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import fp8
from tests.checkpoints import write_checkpoint
from trajsoup.engine.gram import gram
from trajsoup.engine.workers import Options
from trajsoup.errors import CheckpointError, MismatchError, NonfiniteError, OutputError, VerifyError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, explicit_row, mean_row, plan_row
from trajsoup.merge.verify import verify_soup
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.fp8 import DECODED, Blocks, encoded, quantised

SEEDS = {1: 0.5, 2: 0.3, 3: 0.2}


@pytest.fixture
def folders(tmp_path):
    return [
        write_checkpoint(tmp_path / f"m{seed}", fp8.weights(seed), config=fp8.CONFIG, shards=2 if seed == 1 else 1)
        for seed in SEEDS
    ]


def bits(tensors):
    return {name: t.view(torch.uint8) if t.dtype is torch.float8_e4m3fn else t for name, t in tensors.items()}


def load(folder):
    return {name: t for file in folder.glob("*.safetensors") for name, t in load_file(file).items()}


def test_every_code_is_torchs_number_and_every_number_torchs_code():
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(codes, DECODED, equal_nan=True)
    middles = (DECODED[1:127] + DECODED[:126]) / 2
    drawn = np.random.default_rng(0).normal(0, 1, 20000) * 10.0 ** np.random.default_rng(1).integers(-4, 3, 20000)
    values = np.concatenate([middles, -middles, np.nextafter(middles, 9), drawn, [0.0, -0.0, 448, 465, -1e9]]).astype(
        "f4"
    )
    expected = torch.from_numpy(values).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(encoded(values), expected)


@pytest.mark.parametrize("how", [{}, {"scales": torch.bfloat16}, {"power_of_two": True}])
@pytest.mark.parametrize("uniform", [True, False])
def test_the_soup_is_that_of_torch_bit_by_bit(tmp_path, how, uniform):
    quantization = fp8.QUANTIZATION | ({"scale_fmt": "ue8m0"} if "power_of_two" in how else {})
    config = fp8.CONFIG | {"quantization_config": quantization}
    folders = [write_checkpoint(tmp_path / f"m{s}", fp8.weights(s, **how), config=config) for s in SEEDS]
    row = mean_row(folders) if uniform else explicit_row(list(zip(folders, SEEDS.values(), strict=True)))
    made = make_soup(plan_row(row), tmp_path / "soup", options=Options(block_bytes=4096, workers=3))
    found, expected = load(tmp_path / "soup"), fp8.soup(SEEDS, uniform=uniform, **how)
    assert found.keys() == fp8.weights(1, **how).keys()
    for name, tensor in bits(expected).items():
        assert torch.equal(bits(found)[name], tensor), name
        assert found[name].dtype == expected[name].dtype
    assert json.loads((tmp_path / "soup" / "config.json").read_text()) == config
    error = 0.0
    for name in fp8.QUANTISED:
        exact = fp8.mean([fp8.weights(s, **how) for s in SEEDS], SEEDS, name, uniform=uniform)
        again = fp8.dequantised(found[name], found[f"{name}_scale_inv"])
        normal = (exact / fp8.wide(found[f"{name}_scale_inv"], exact)).abs() >= 2**-6
        error = max(error, float(((again - exact).abs() / exact.abs())[normal].max()))
    assert made.requantised is not None
    assert made.requantised["max_relative_error"] == pytest.approx(error, rel=1e-5)
    assert 0 < made.requantised["mean_relative_error"] < error <= 1 / 16


def test_compiled_and_plain_quantisation_have_the_same_bits():
    compiled = pytest.importorskip("trajsoup.engine.accelerated_fp8")
    values = np.random.default_rng(0).normal(0, 1, (200, 300)).astype(np.float32) ** 5
    for blocks in (Blocks(rows=128, columns=128, dtype="F32"), Blocks(rows=64, columns=32, dtype="BF16")):
        plain, fast = quantised(values, blocks), compiled.quantised(values, blocks)
        assert np.array_equal(plain.codes, fast.codes)
        assert np.array_equal(plain.scales, fast.scales)
        assert plain.largest == fast.largest
        assert plain.error == pytest.approx(fast.error)


def test_to_bf16_the_scales_and_the_quantisation_of_the_config_disappear(folders, tmp_path):
    make_soup(plan_row(mean_row(folders), form=OutputForm(dtype="bf16")), tmp_path / "soup")
    found = load(tmp_path / "soup")
    assert not any(name.endswith("_scale_inv") for name in found)
    assert "quantization_config" not in json.loads((tmp_path / "soup" / "config.json").read_text())
    each = [fp8.weights(seed) for seed in SEEDS]
    for name in fp8.QUANTISED:
        assert torch.equal(found[name], fp8.mean(each, SEEDS, name, uniform=True).bfloat16())
    assert found["layers.0.gate.e_score_correction_bias"].dtype is torch.float32  # in 16 bits it chooses other experts
    verify_soup(tmp_path / "soup", full=True)


def test_the_soup_of_one_precision_is_that_of_the_same_weights_in_fp32(folders, tmp_path):
    plain = []
    for seed in SEEDS:
        own = fp8.weights(seed)
        for name in fp8.QUANTISED:
            own[name] = fp8.dequantised(own[name], own.pop(f"{name}_scale_inv"))
        plain.append(write_checkpoint(tmp_path / f"plain{seed}", own, config={"model_type": "toy"}))
    for name, inputs in (("fp8", folders), ("plain", plain)):
        make_soup(plan_row(mean_row(inputs), form=OutputForm(dtype="fp32")), tmp_path / name / "soup")
    a, b = load(tmp_path / "fp8" / "soup"), load(tmp_path / "plain" / "soup")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    first, second = (gram({str(p): open_checkpoint(p) for p in given}) for given in (folders, plain))
    assert np.allclose(first.whole.inner, second.whole.inner, rtol=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_verify_quantises_again_and_sees_a_changed_code_or_scale(folders, tmp_path, full):
    make_soup(plan_row(mean_row(folders), form=OutputForm(shard_bytes=100_000)), tmp_path / "soup", digest=None)
    assert len(list((tmp_path / "soup").glob("*.safetensors"))) > 1
    result = verify_soup(tmp_path / "soup", full=full)
    assert result.tensors == 5
    for name in (fp8.QUANTISED[0], fp8.QUANTISED[0] + "_scale_inv"):
        for file in (tmp_path / "soup").glob("*.safetensors"):
            tensors = load_file(file)
            if name in tensors:
                whole = file.read_bytes()
                changed = tensors | {name: (tensors[name].view(torch.uint8) ^ 1).view(tensors[name].dtype)}
                save_file(changed, file, metadata={"format": "pt"})
                with pytest.raises(VerifyError, match="is not the weighted sum"):
                    verify_soup(tmp_path / "soup", full=full)
                file.write_bytes(whole)


def test_a_fork_point_in_bf16_gives_side_files_and_the_soup_is_fp8_still(folders, tmp_path):
    own = fp8.weights(0)
    for name in fp8.QUANTISED:
        own[name] = fp8.dequantised(own[name], own.pop(f"{name}_scale_inv")).bfloat16()
    config = {key: value for key, value in fp8.CONFIG.items() if key != "quantization_config"}
    base = write_checkpoint(tmp_path / "base", own, config=config, files={"tokenizer.json": "{}"})
    make_soup(plan_row(mean_row(folders), fork_point=base), tmp_path / "soup")
    assert json.loads((tmp_path / "soup" / "config.json").read_text()) == fp8.CONFIG
    assert load(tmp_path / "soup").keys() == fp8.weights(0).keys()
    with pytest.raises(MismatchError, match=r"has dtype F32 and BF16"):
        plan_row(mean_row([folders[0], base]))


def test_fp8_is_written_by_one_machine(folders, tmp_path):
    plan = plan_row(mean_row(folders))
    with pytest.raises(OutputError, match=r"FP8 \(not --dtype bf16\) is written by one machine"):
        make_soup(plan, tmp_path / "soup", executor=object())  # type: ignore[arg-type]


def written(folder, change):
    tensors = fp8.weights(1)
    change(tensors)
    return write_checkpoint(folder, tensors, config=fp8.CONFIG)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("layers.0.up.weight_scale_inv"), "is F8_E4M3, which cannot be averaged"),
        (lambda t: t.update({"layers.0.up.weight_scale_inv": torch.ones(3, 3)}), "which is not one for each 128 x 128"),
        (lambda t: t.update({"layers.0.up.weight_scale_inv": torch.ones(2, 3).long()}), "has scales of I64"),
        (
            lambda t: t.update({"layers.0.up.weight": torch.zeros(2, 3, 4).to(torch.float8_e4m3fn)}),
            "which is not one for each",
        ),
    ],
)
def test_scales_that_do_not_fit_are_refused(tmp_path, change, says):
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(written(tmp_path / "m", change))


def test_blocks_of_other_sizes_need_sizes(tmp_path):
    for wrong in ([128], [0, 128], "128", [128, 1.5]):
        config = fp8.CONFIG | {"quantization_config": {"quant_method": "fp8", "weight_block_size": wrong}}
        folder = write_checkpoint(tmp_path / str(wrong), fp8.weights(1), config=config)
        with pytest.raises(CheckpointError, match="weight_block_size"):
            open_checkpoint(folder)


def test_nan_among_codes_or_scales_is_named(tmp_path):
    def poisoned(tensors):
        tensors["layers.0.up.weight"].view(torch.uint8)[7, 9] = 0x7F

    good = write_checkpoint(tmp_path / "good", fp8.weights(2), config=fp8.CONFIG)
    for number, change in enumerate((poisoned, lambda t: t["layers.0.up.weight_scale_inv"].fill_(float("inf")))):
        bad = written(tmp_path / f"bad{number}", change)
        with pytest.raises(NonfiniteError, match=r"'layers\.0\.up\.weight' holds NaN or Inf"):
            make_soup(plan_row(mean_row([bad, good])), tmp_path / f"soup{number}")
        assert not (tmp_path / f"soup{number}").exists()
