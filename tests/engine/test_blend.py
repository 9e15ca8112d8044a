"""One read, many soups: exact, and the same for every way of running."""

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints import bf16, bits_of, stored_bytes, trajectory, write_checkpoint, write_in_order, write_raw
from tests.engine.passes import mean_of, soup
from tests.exact import exact_row
from trajsoup.core.soup import Row
from trajsoup.engine.blend import Options, blend
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import FileSink, MemorySink
from trajsoup.errors import BlendError, CheckpointError, MismatchError
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.store.digest import Algorithm, digest_file, sha256_file

PAGE = 4096


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array.reshape(-1).view(np.uint8), expected[name].reshape(-1).view(np.uint8))


def opened(folder: Path, **tensors) -> dict[str, Checkpoint]:
    """One checkpoint per key, each a mapping of tensors."""
    return {key: open_checkpoint(write_checkpoint(folder / key, values)) for key, values in tensors.items()}


MEANS = [mean_of("c00", "c01"), mean_of("c00", "c01", "c02", "c03", "c04"), mean_of("c03")]
WEIGHTED = [
    Row(name="w1", weights={"c00": 0.7, "c04": 0.3}),
    Row(name="w2", weights={"c01": 1.5, "c02": -0.75, "c00": 0.25}),
]
ROWS = [*MEANS, *WEIGHTED]


def test_a_mean_of_files_is_the_exact_mean_rounded_once(tmp_path):
    checkpoints = trajectory(tmp_path, count=5, items=600)
    (found,) = soup(checkpoints, MEANS[1])
    for name in ("embed", "layer.w"):
        inputs = np.stack([next(iter(soup({k: c}, mean_of(k))))[name].reshape(-1) for k, c in checkpoints.items()])
        expected = exact_row(inputs, [Fraction(1, 5)] * 5, dtype="BF16", out_dtype="BF16")
        np.testing.assert_array_equal(found[name].reshape(-1), expected)


def test_one_ingredient_of_weight_one_comes_back_bit_by_bit(tmp_path):
    for dtype in ("BF16", "F16", "F32", "F64"):
        checkpoints = trajectory(tmp_path / dtype, count=1, dtype=dtype)
        (found,) = soup(checkpoints, mean_of("c00"))
        for name in checkpoints["c00"].tensors:
            assert found[name].tobytes() == stored_bytes(checkpoints["c00"], name)


@pytest.fixture(scope="module")
def branch(tmp_path_factory):
    """Five checkpoints in four layouts: one file, two shards, three, and one file whose numbers are not aligned."""
    folder = tmp_path_factory.mktemp("branch")
    rng = np.random.default_rng(1)
    start = rng.normal(0, 0.02, 40_001)
    found = {}
    for i in range(5):
        weights = start + rng.normal(0, 0.002, 40_001)
        tensors = {
            "odd": np.arange(3, dtype=np.uint8),
            "w.bf16": bf16(weights),
            "w.f32": weights[:5001].astype(np.float32),
            "w.f16": weights[:3001].astype(np.float16),
            "w.f64": weights[:701],
            "ids": np.arange(1001),
        }
        if i == 3:  # three odd bytes first: no number in this file is aligned
            found[f"c{i:02d}"] = open_checkpoint(write_in_order(folder / "3.safetensors", tensors))
            continue
        found[f"c{i:02d}"] = open_checkpoint(write_checkpoint(folder / str(i), tensors, shards=[1, 3, 2, 1, 2][i]))
    return found


@pytest.fixture(scope="module")
def reference(branch):
    return soup(branch, *ROWS, options=Options(workers=1, direct=False, accelerate=False))


@pytest.mark.parametrize(
    "options",
    [
        Options(workers=workers, block_bytes=block_bytes, direct=direct, accelerate=accelerate)
        for workers, block_bytes, direct, accelerate in itertools.product(
            [1, 5], [PAGE, 3 * PAGE + 5, 1 << 20], [False, True], [False, True]
        )
    ]
    + [Options(), Options(buffer_bytes=1)],
    ids=lambda o: f"{o.workers}-{o.block_bytes}-{'direct' if o.direct else 'buffered'}-{o.accelerate}",
)
def test_no_way_of_running_changes_a_bit(branch, reference, options):
    for found, expected in zip(soup(branch, *ROWS, options=options), reference, strict=True):
        assert_same(found, expected)


def test_the_order_of_ingredients_and_rows_changes_no_bit(branch, reference):
    backwards = dict(reversed(branch.items()))
    rows = [Row(name=row.name, weights=dict(reversed(row.weights.items()))) for row in ROWS]
    found = soup(backwards, *reversed(rows), template="c00")
    for tensors, expected in zip(reversed(found), reference, strict=True):
        assert_same(tensors, expected)


@pytest.mark.parametrize("template", ["c01", "c02", "c03"])
def test_the_shard_layout_changes_no_number(branch, reference, template):
    for found, expected in zip(soup(branch, *ROWS, template=template), reference, strict=True):
        assert_same(found, expected)


def test_many_rows_at_once_equal_separate_merges(branch, reference):
    for row, expected in zip(ROWS, reference, strict=True):
        (found,) = soup(branch, row, template="c00")
        assert_same(found, expected)


@pytest.mark.parametrize(
    "options", [Options(workers=1), Options(workers=4, block_bytes=PAGE), Options(direct=True)], ids="abc"
)
@pytest.mark.parametrize("shards", [1, 2])
def test_the_digests_are_those_of_the_files(tmp_path, options, shards):
    checkpoints = trajectory(tmp_path, count=3, items=30_000, shards=shards)
    layout = make_layout(checkpoints["c00"])
    digests = blend(
        checkpoints,
        [mean_of(*checkpoints)],
        [MemorySink(layout)],
        layout=layout,
        digest=Algorithm.BLAKE3,
        options=options,
    )
    assert digests == {
        key: tuple(digest_file(path, Algorithm.BLAKE3) for path in c.files) for key, c in checkpoints.items()
    }


def test_digests_are_had_on_the_way_from_different_shards_but_never_made_up(branch):
    """c03 holds its tensors in another order than c00, so one pass cannot meet the bytes of both in file order."""
    layout = make_layout(branch["c00"])
    several = {key: branch[key] for key in ("c00", "c01", "c02")}
    for workers in (1, 4):
        options = Options(workers=workers, block_bytes=PAGE)
        call = {"layout": layout, "digest": Algorithm.BLAKE3, "options": options}
        found = blend(several, [mean_of(*several)], [MemorySink(layout)], **call)
        assert found == {
            key: tuple(digest_file(path, Algorithm.BLAKE3) for path in c.files) for key, c in several.items()
        }
        assert blend(branch, [mean_of("c00", "c03")], [MemorySink(layout)], **call) == {}


def test_files_and_memory_receive_the_same(branch, reference, tmp_path):
    layout = make_layout(branch["c00"], shard_bytes=30_000)
    for row, expected in zip(ROWS, reference, strict=True):
        folder = tmp_path / row.name / str(len(row.weights))
        folder.mkdir(parents=True)
        with FileSink(folder, layout) as sink:
            blend(branch, [row], [sink], layout=layout, options=Options(workers=3, block_bytes=PAGE))
            assert sink.finish() == {file.name: sha256_file(folder / file.name) for file in layout.files}
        assert_same(soup({"x": open_checkpoint(folder)}, mean_of("x"))[0], expected)


def test_progress_hears_of_every_byte_once(branch):
    heard: list[int] = []
    soup(branch, *ROWS, options=Options(workers=2, block_bytes=PAGE), progress=heard.append)
    assert sum(heard) == sum(t.nbytes for c in branch.values() for t in c.tensors.values())


def test_a_row_reads_only_its_own_ingredients(tmp_path):
    checkpoints = trajectory(tmp_path, count=3)
    checkpoints["c02"].files[0].unlink()
    soup(checkpoints, mean_of("c00", "c01"))


# --- dtypes and special tensors


def test_an_fp32_router_bias_among_bf16_weights_keeps_its_dtype_and_precision(tmp_path):
    biases = np.random.default_rng(0).normal(0, 1, (3, 64)).astype(np.float32)
    checkpoints = opened(tmp_path, **{k: {"w": bf16(b), "router.bias": b} for k, b in zip("abc", biases, strict=True)})
    (found,) = soup(checkpoints, mean_of("a", "b", "c"))
    assert found["router.bias"].dtype == np.float32
    expected = exact_row(biases.view(np.uint32), [Fraction(1, 3)] * 3, dtype="F32", out_dtype="F32")
    np.testing.assert_array_equal(found["router.bias"].view(np.uint32), expected)
    assert (found["router.bias"] != (found["w"].astype(np.uint32) << 16).view(np.float32)).any()


def test_zero_size_and_scalar_tensors_are_averaged_like_any_other(tmp_path):
    checkpoints = opened(
        tmp_path,
        a={"scalar": np.float32(1), "none": np.zeros((0, 3), np.float32), "empty_ids": np.zeros(0, np.int64)},
        b={"scalar": np.float32(4), "none": np.zeros((0, 3), np.float32), "empty_ids": np.zeros(0, np.int64)},
    )
    (found,) = soup(checkpoints, mean_of("a", "b"), digest=Algorithm.BLAKE3)
    assert found["scalar"] == 2.5
    assert found["scalar"].shape == ()
    assert found["none"].shape == (0, 3)
    assert found["empty_ids"].dtype == np.int64


def test_a_checkpoint_of_nothing_but_empty_tensors_is_blended_too(tmp_path):
    checkpoints = opened(tmp_path, a={"none": np.zeros(0, np.float32)}, b={"none": np.zeros(0, np.float32)})
    (found,) = soup(checkpoints, mean_of("a", "b"), digest=Algorithm.BLAKE3)
    assert found["none"].size == 0


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F64"])
def test_another_output_dtype_is_rounded_from_the_exact_mean_not_from_the_bf16_one(tmp_path, dtype):
    checkpoints = trajectory(tmp_path, count=3, items=300)
    (found,) = soup(checkpoints, mean_of(*checkpoints), dtype=dtype)
    inputs = np.stack([soup({k: c}, mean_of(k))[0]["layer.w"] for k, c in checkpoints.items()])
    expected = exact_row(inputs, [Fraction(1, 3)] * 3, dtype="BF16", out_dtype=dtype)
    bits = found["layer.w"].view(expected.dtype)
    np.testing.assert_allclose(
        bits.astype(np.float64), expected.astype(np.float64), rtol=0, atol=1 if dtype == "F64" else 0
    )


def test_integers_that_agree_are_copied_even_where_a_mean_would_lose_them(tmp_path):
    exact = {"ids": np.array([2**62 + 1, -5]), "mask": np.array([True, False]), "bytes": np.array([255], np.uint8)}
    checkpoints = opened(tmp_path, a={**exact, "w": bf16([1])}, b={**exact, "w": bf16([3])})
    for row in (mean_of("a", "b"), Row(name="w", weights={"a": 0.3, "b": 0.7})):
        (found,) = soup(checkpoints, row)
        for name, expected in exact.items():
            np.testing.assert_array_equal(found[name], expected)


@pytest.mark.parametrize("place", ["first", "second"])
def test_integers_that_differ_are_refused_naming_tensor_files_and_flag(tmp_path, place):
    ids = {"first": np.arange(9), "second": np.arange(9), "w": bf16([1])}
    checkpoints = opened(tmp_path, a=ids, b=ids, c={**ids, place: np.arange(9) * 2})
    with pytest.raises(MismatchError, match=rf"I64 tensor '{place}' differs .*/a and .*/c.*pass --exact-from"):
        soup(checkpoints, mean_of("a", "b", "c"))


@pytest.mark.parametrize("key", ["a", "b", "elsewhere"])
def test_the_named_source_of_integers_is_honoured_even_if_it_is_no_ingredient(tmp_path, key):
    numbers = {"a": 1, "b": 2, "elsewhere": 3}
    checkpoints = opened(tmp_path, **{k: {"ids": np.int64([n]), "w": bf16([n])} for k, n in numbers.items()})
    (found,) = soup(checkpoints, mean_of("a", "b"), exact_from=key)
    assert found["ids"] == [numbers[key]]
    assert found["w"] == bits_of(bf16([1.5]))


# --- what must not be averaged


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("key", ["a", "b"])
@pytest.mark.parametrize("accelerate", [False, True])
def test_nan_or_inf_is_an_error_that_names_file_and_tensor(tmp_path, poison, key, accelerate):
    clean = {"first": np.ones(5000, np.float32), "second": np.ones(5000, np.float32)}
    bad = {**clean, "second": np.where(np.arange(5000) == 4321, np.float32(poison), np.float32(1))}
    checkpoints = opened(tmp_path, **{k: bad if k == key else clean for k in "ab"})
    for row in (mean_of("a", "b"), Row(name="w", weights={"a": 0.1, "b": 0.9})):
        for options in (Options(workers=3, block_bytes=PAGE, accelerate=accelerate), Options(accelerate=accelerate)):
            with pytest.raises(CheckpointError, match=rf"/{key}/model.safetensors: tensor 'second' holds NaN or Inf"):
                soup(checkpoints, row, options=options)


@pytest.mark.parametrize("dtype", ["F32", "F16"])
@pytest.mark.parametrize("out_dtype", ["BF16", "F16", "F32"])
def test_nan_of_all_ones_is_noticed_on_the_way_to_any_dtype(tmp_path, dtype, out_dtype):
    """A file filled with 0xFF, as a broken disk leaves it: rounding such a NaN up carries it over to zero."""
    width = {"F32": 4, "F16": 2}[dtype]
    header = {"w": {"dtype": dtype, "shape": [8], "data_offsets": [0, 8 * width]}}
    path = write_raw(tmp_path / "x.safetensors", header, b"\xff" * (8 * width))
    for accelerate in (False, True):
        for row in (mean_of("x"), Row(name="w", weights={"x": -1.0})):
            with pytest.raises(CheckpointError, match="tensor 'w' holds NaN or Inf"):
                soup({"x": open_checkpoint(path)}, row, dtype=out_dtype, options=Options(accelerate=accelerate))


@pytest.mark.parametrize("accelerate", [False, True])
def test_a_sum_that_overflows_its_dtype_names_the_tensor_and_blames_no_ingredient(tmp_path, accelerate):
    tensors = {"first": np.ones(50, np.float32), "second": np.full(50, 1e5, np.float32)}
    checkpoints = opened(tmp_path, a=tensors, b=tensors)
    with pytest.raises(BlendError, match=r"tensor 'second' overflows F16 although every ingredient is finite"):
        soup(checkpoints, mean_of("a", "b"), dtype="F16", options=Options(accelerate=accelerate))


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("weight", [None, 0.6])
def test_an_overflow_of_a_short_row_is_noticed_though_a_longer_row_that_shares_it_is_finite(
    tmp_path, accelerate, weight
):
    checkpoints = opened(tmp_path, a={"w": np.float32([1e5])}, b={"w": np.float32([-1e5])})
    short, long = mean_of("a"), mean_of("a", "b")
    if weight is not None:
        short, long = Row(name="s", weights={"a": 0.9}), Row(name="l", weights={"a": 0.9, "b": 0.8})
    with pytest.raises(BlendError, match="'w' overflows F16"):
        soup(checkpoints, short, long, dtype="F16", options=Options(accelerate=accelerate))
