"""gram against the definition in fp64, in its limit cases, and under every way of running it."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trajsoup.core.gram import WHOLE
from trajsoup.core.tensor_groups import tensor_groups
from trajsoup.engine import stretches as module
from trajsoup.engine.gram import gram
from trajsoup.engine.workers import Options
from trajsoup.errors import CheckpointError, GeometryError
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.store.formats.safetensors import build_header

SHAPES = {
    "model.embed_tokens.weight": (101, 64),
    "model.layers.0.self_attn.q_proj.weight": (64, 64),
    "model.layers.0.mlp.up_proj.weight": (300, 64),
    "model.layers.0.input_layernorm.weight": (64,),
    "model.layers.1.self_attn.q_proj.weight": (64, 64),
    "model.norm.weight": (64,),
}


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Bits of bf16, by truncation: any bf16 numbers will do."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def values_of(bits: np.ndarray, dtype: str) -> np.ndarray:
    """What stored bits mean, in fp64."""
    if dtype == "BF16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.astype(np.float64)


def write(path: Path, tensors: dict[str, tuple[str, np.ndarray]], *, shards: int = 1) -> Checkpoint:
    """Write a checkpoint of (dtype, stored array) in shards."""
    path.mkdir()
    names = list(tensors)
    files = [names[i::shards] for i in range(shards)]
    weight_map = {}
    for i, group in enumerate(files):
        name = "model.safetensors" if shards == 1 else f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        lead, _ = build_header([(n, tensors[n][0], tensors[n][1].shape) for n in group], metadata={}, align=8)
        (path / name).write_bytes(lead + b"".join(tensors[n][1].tobytes() for n in group))
        weight_map |= dict.fromkeys(group, name)
    if shards > 1:
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return open_checkpoint(path)


def run_of(folder: Path, *, count: int = 5, step: float = 1e-3, dtype: str = "BF16", shards: int = 1):
    """Checkpoints near one fork point, and their weights in fp64 as a matrix."""
    rng = np.random.default_rng(0)
    base = {name: rng.standard_normal(shape) * 0.02 for name, shape in SHAPES.items()}
    checkpoints, rows = {}, []
    for i in range(count):
        moved = {name: value + i * step * rng.standard_normal(value.shape) for name, value in base.items()}
        store = {"BF16": to_bf16, "F16": np.float16, "F32": np.float32, "F64": np.float64}[dtype]
        tensors = {name: (dtype, store(value)) for name, value in moved.items()}
        checkpoints[f"c{i}"] = write(folder / f"c{i}", tensors, shards=shards)
        rows.append({name: values_of(bits, dtype).ravel() for name, (_, bits) in tensors.items()})
    return checkpoints, rows


def flat(rows: list[dict[str, np.ndarray]], keep=lambda name: True) -> np.ndarray:
    return np.array([np.concatenate([row[name] for name in SHAPES if keep(name)]) for row in rows])


def distances(inner: np.ndarray) -> np.ndarray:
    square = np.diag(inner)
    return np.sqrt(np.maximum(square[:, None] + square[None, :] - 2 * inner, 0))


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F64"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("accelerate", [True, False])
def test_distances_from_the_fork_point_are_those_of_the_definition_in_fp64(tmp_path, dtype, shards, accelerate):
    checkpoints, rows = run_of(tmp_path, dtype=dtype, shards=shards)
    x = flat(rows)
    found = gram(checkpoints, centre="c0", options=Options(accelerate=accelerate))
    exact = (x - x[0]) @ (x - x[0]).T
    assert np.allclose(distances(found.whole.inner), distances(exact), rtol=1e-6, atol=0)
    assert np.allclose(found.whole.raw(), x @ x.T, rtol=1e-6, atol=0)
    assert not found.whole.inner[0].any()
    assert found.whole.elements == x.shape[1]


@pytest.mark.parametrize("accelerate", [True, False])
def test_centred_at_the_mean_rows_sum_to_zero_and_raw_products_are_recovered(tmp_path, accelerate):
    checkpoints, rows = run_of(tmp_path)
    x = flat(rows)
    found = gram(checkpoints, options=Options(accelerate=accelerate))
    exact = (x - x.mean(axis=0)) @ (x - x.mean(axis=0)).T
    assert found.centre is None
    assert np.allclose(found.whole.inner, exact, rtol=0, atol=1e-6 * np.abs(exact).max())
    assert np.abs(found.whole.inner.sum(axis=0)).max() < 1e-12 * np.abs(exact).max()
    assert np.allclose(found.whole.raw(), x @ x.T, rtol=1e-6, atol=0)


def test_groups_have_their_own_matrices_which_add_up_to_the_whole(tmp_path):
    checkpoints, rows = run_of(tmp_path)
    found = gram(checkpoints, centre="c0", groups=tensor_groups)
    for group in found.groups:
        x = flat(rows, lambda name, group=group: group == WHOLE or group in tensor_groups(name, ()))
        exact = (x - x[0]) @ (x - x[0]).T
        assert np.allclose(distances(found.group(group).inner), distances(exact), rtol=1e-6, atol=0), group
        assert found.group(group).elements == x.shape[1]
    kinds = ("embeddings", "attention", "mlp", "norms")
    assert np.allclose(sum(found.group(k).inner for k in kinds), found.whole.inner, rtol=1e-12)
    with pytest.raises(GeometryError, match=r"no tensor group 'router'.*attention"):
        found.group("router")


@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("centre", ["c0", None])
def test_threads_blocks_and_io_path_change_no_bit(tmp_path, monkeypatch, centre, accelerate):
    monkeypatch.setattr(module, "CHUNK_BYTES", 4096)
    checkpoints, _ = run_of(tmp_path)
    plain = Options(workers=1, accelerate=accelerate)
    first = gram(checkpoints, centre=centre, groups=tensor_groups, options=plain)
    for changes in (
        {"workers": 4, "block_bytes": 4096},
        {"workers": 3, "block_bytes": 12288},
        {"workers": 2, "direct": True},
        {"workers": 5, "buffer_bytes": 1 << 16},
    ):
        again = gram(checkpoints, centre=centre, groups=tensor_groups, options=replace(plain, **changes))
        for name, products in first.groups.items():
            assert np.array_equal(products.inner, again.group(name).inner)
            assert np.array_equal(products.along_centre, again.group(name).along_centre)


def test_centring_at_the_fork_point_keeps_distances_that_uncentred_products_lose(tmp_path):
    checkpoints, rows = run_of(tmp_path, step=2e-5, dtype="F32")
    x = flat(rows)
    raw = (x.astype(np.float32) @ x.astype(np.float32).T).astype(np.float64)
    exact = distances((x - x[0]) @ (x - x[0]).T)
    found = distances(gram(checkpoints, centre="c0").whole.inner)
    worst = [np.max(np.abs(d / (exact + np.eye(5)) - 1 + np.eye(5))) for d in (found, distances(raw))]
    assert worst[0] < 1e-6 < 1e-4 < worst[1]


@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("centre", ["c0", None])
def test_nan_is_reported_and_leaves_the_other_checkpoints_alone(tmp_path, centre, accelerate):
    checkpoints, _ = run_of(tmp_path)
    clean = gram({key: checkpoints[key] for key in ("c0", "c1", "c3", "c4")}, centre=centre)
    rng = np.random.default_rng(1)
    tensors = {name: ("BF16", to_bf16(rng.standard_normal(shape))) for name, shape in SHAPES.items()}
    tensors["model.norm.weight"][1][7] = 0x7FC0
    tensors["model.layers.0.mlp.up_proj.weight"][1][-1, -1] = 0xFF80
    checkpoints["c2"] = write(tmp_path / "diverged", tensors)
    found = gram(checkpoints, centre=centre, options=Options(accelerate=accelerate))
    assert [(bad.key, bad.file, bad.tensor) for bad in found.nonfinite] == [
        ("c2", "model.safetensors", "model.layers.0.mlp.up_proj.weight"),
        ("c2", "model.safetensors", "model.norm.weight"),
    ]
    assert found.bad_keys() == {"c2"}
    others = [0, 1, 3, 4]
    assert np.isfinite(found.whole.inner).all()
    assert np.allclose(
        distances(found.whole.inner)[np.ix_(others, others)], distances(clean.whole.inner), rtol=1e-5, atol=1e-9
    )


def test_a_fork_point_with_nan_drops_only_the_chunks_that_need_it(tmp_path):
    checkpoints, rows = run_of(tmp_path, dtype="F32")
    bad = {name: ("F32", rows[0][name].astype(np.float32).reshape(shape)) for name, shape in SHAPES.items()}
    bad["model.norm.weight"][1][0] = np.nan
    checkpoints["c0"] = write(tmp_path / "bad", bad)
    found = gram(checkpoints, centre="c0", groups=tensor_groups)
    x = flat(rows, lambda name: name == "model.embed_tokens.weight")
    exact = (x - x[0]) @ (x - x[0]).T
    assert [(n.key, n.tensor) for n in found.nonfinite] == [("c0", "model.norm.weight")]
    assert np.allclose(distances(found.group("embeddings").inner), distances(exact), rtol=1e-6, atol=0)


def test_finite_weights_whose_squares_overflow_fp32_are_multiplied_in_fp64(tmp_path):
    tensors = [np.full(8, value, np.float32) for value in (1e30, 2e30)]
    checkpoints = {f"c{i}": write(tmp_path / f"c{i}", {"w": ("F32", value)}) for i, value in enumerate(tensors)}
    found = gram(checkpoints, centre="c0")
    assert found.nonfinite == ()
    assert found.whole.inner[1, 1] == pytest.approx(8e60, rel=1e-6)


def test_integer_tensors_are_left_out(tmp_path):
    counts = {"w": ("F32", np.arange(4, dtype=np.float32)), "steps": ("I64", np.array([1, 2, 3]))}
    more = {"w": ("F32", np.arange(4, dtype=np.float32) + 1), "steps": ("I64", np.array([4, 5, 6]))}
    found = gram({"a": write(tmp_path / "a", counts), "b": write(tmp_path / "b", more)}, centre="a")
    assert found.whole.elements == 4
    assert found.whole.inner[1, 1] == 4


def test_one_checkpoint_and_identical_checkpoints_are_answered_with_zeros(tmp_path):
    checkpoints, _ = run_of(tmp_path, count=1)
    alone = gram(checkpoints)
    assert alone.whole.inner == 0
    twins = gram({"a": checkpoints["c0"], "b": checkpoints["c0"]}, centre="a")
    assert not twins.whole.inner.any()


def test_what_cannot_be_measured_is_said(tmp_path):
    checkpoints, _ = run_of(tmp_path, count=2)
    with pytest.raises(GeometryError, match="no checkpoint"):
        gram({})
    with pytest.raises(GeometryError, match="fork point c9 is not among the 2"):
        gram(checkpoints, centre="c9")
    integers = write(tmp_path / "integers", {"steps": ("I64", np.array([1]))})
    with pytest.raises(GeometryError, match="no floating tensor"):
        gram({"a": integers})


def test_progress_hears_of_every_byte_once(tmp_path):
    checkpoints, rows = run_of(tmp_path)
    heard: list[int] = []
    gram(checkpoints, centre="c0", progress=heard.append, options=Options(workers=1))
    assert sum(heard) == flat(rows).size * 2


def test_a_file_that_shrinks_under_the_pass_stops_it_with_its_name(tmp_path):
    checkpoints, _ = run_of(tmp_path)
    path = checkpoints["c3"].files[0]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(CheckpointError, match=r"c3.*became shorter"):
        gram(checkpoints, centre="c0")


@pytest.mark.parametrize("accelerate", [True, False])
def test_adding_checkpoints_later_gives_what_one_pass_gives(tmp_path, accelerate):
    checkpoints, _ = run_of(tmp_path, count=7)
    options = Options(accelerate=accelerate)
    whole = gram(checkpoints, centre="c0", groups=tensor_groups)
    first = gram({key: checkpoints[key] for key in ("c4", "c0", "c2")}, centre="c0", groups=tensor_groups)
    added = gram(checkpoints, centre="c0", groups=tensor_groups, known=first, options=options)
    assert added.keys == whole.keys
    for name, products in whole.groups.items():
        assert np.allclose(distances(added.group(name).inner), distances(products.inner), rtol=1e-6, atol=0)
        assert np.allclose(added.group(name).raw(), products.raw(), rtol=1e-6, atol=0)
        assert np.array_equal(added.group(name).inner, added.group(name).inner.T)
        assert added.group(name).elements == products.elements
    old = [2, 4]
    assert np.array_equal(added.whole.inner[np.ix_(old, old)], first.whole.inner[np.ix_([2, 0], [2, 0])])


def test_nothing_is_read_when_nothing_is_new(tmp_path):
    checkpoints, _ = run_of(tmp_path)
    known = gram(checkpoints, centre="c0")
    heard: list[int] = []
    some = {key: checkpoints[key] for key in ("c3", "c0")}
    found = gram(some, centre="c0", known=known, progress=heard.append)
    assert heard == []
    assert found.keys == ("c3", "c0")
    assert found.whole.inner[0, 0] == known.whole.inner[3, 3]


def test_nan_of_known_and_new_checkpoints_are_both_kept(tmp_path):
    checkpoints, rows = run_of(tmp_path, dtype="F32")
    for key, name in (("c1", "model.norm.weight"), ("c3", "model.embed_tokens.weight")):
        bad = {n: ("F32", rows[0][n].astype(np.float32).reshape(shape)) for n, shape in SHAPES.items()}
        bad[name][1].flat[0] = np.inf
        checkpoints[key] = write(tmp_path / f"bad-{key}", bad)
    first = gram({key: checkpoints[key] for key in ("c0", "c1")}, centre="c0")
    added = gram(checkpoints, centre="c0", known=first)
    assert [(n.key, n.tensor) for n in added.nonfinite] == [
        ("c1", "model.norm.weight"),
        ("c3", "model.embed_tokens.weight"),
    ]
    assert np.isfinite(added.whole.inner).all()


def test_only_matrices_about_one_fork_point_and_groups_are_extended(tmp_path):
    checkpoints, _ = run_of(tmp_path)
    known = gram({"c0": checkpoints["c0"], "c1": checkpoints["c1"]}, centre="c0")
    with pytest.raises(GeometryError, match="centred at c0, this one at c1"):
        gram(checkpoints, centre="c1", known=known)
    with pytest.raises(GeometryError, match="centred at c0, this one at a mean"):
        gram(checkpoints, known=known)
    with pytest.raises(GeometryError, match="tensor groups all, this one all, embeddings"):
        gram(checkpoints, centre="c0", groups=tensor_groups, known=known)


def test_sums_are_taken_in_file_order_even_if_the_first_block_comes_last(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 4096)
    values = np.zeros(4096)
    values[:512], values[512::512] = 1e8 / np.sqrt(512), 1.0  # 1e16 + 1 + 1 + ... depends on its order in fp64
    first = write(tmp_path / "a", {"w": ("F64", np.zeros(4096))})
    checkpoints = {"a": first, "b": write(tmp_path / "b", {"w": ("F64", values)})}
    alone = gram(checkpoints, centre="a", options=Options(workers=1, block_bytes=4096))
    others_done = threading.Event()
    add = module._Pass._add

    def late(self, number, products):
        if number == 0:
            assert others_done.wait(timeout=30)
        add(self, number, products)
        if number == 7:
            others_done.set()

    monkeypatch.setattr(module._Pass, "_add", late)
    together = gram(checkpoints, centre="a", options=Options(workers=2, block_bytes=4096))
    assert together.whole.inner[1, 1] == alone.whole.inner[1, 1]
