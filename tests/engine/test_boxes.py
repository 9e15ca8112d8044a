"""Weights in any boxes, files and encodings make the bits that they make in plain safetensors."""

import numpy as np
import pytest
import torch

from tests.checkpoints import write_checkpoint
from tests.engine.passes import soup
from tests.toy_format import change_listing, write_toy
from trajsoup.core.gram import WHOLE
from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.executor import LocalExecutor
from trajsoup.engine.gram import gram
from trajsoup.engine.layout import make_layout, sample_spans, spans
from trajsoup.engine.shards import blend_shards
from trajsoup.engine.sinks import MemorySink
from trajsoup.engine.workers import Options
from trajsoup.errors import CheckpointError, NonfiniteError
from trajsoup.store.checkpoint import open_checkpoint, require_same
from trajsoup.store.digest import Algorithm, sha256_file
from trajsoup.store.identity import Identities
from trajsoup.store.stored import ITEM_BYTES

ROWS = [
    Row(name="mean", weights=dict.fromkeys(("c0", "c1", "c2", "c3"), 1 / 4)),
    Row(name="weighted", weights={"c0": 0.6, "c1": 0.3, "c2": -0.1, "c3": 0.2}),
]
BOXES = [  # c0 is plain in both pools
    {"axis": 0, "pieces": 3},
    {"axis": 1, "pieces": 4},
    {"axis": 1, "pieces": 2, "codec": "zlib"},
]


def weights(seed):
    rng = np.random.default_rng(seed)
    return {
        "embed": torch.from_numpy(rng.normal(size=(70, 33))).to(torch.bfloat16),
        "ids": np.arange(11),
        "none": np.zeros((0, 3), np.float32),
        "router": rng.normal(size=(5, 6, 7)).astype(np.float32),
        "scale": np.float32(rng.normal()),
        "wide": rng.normal(size=(3, 4000)),
    }


@pytest.fixture
def pools(toy_format, tmp_path):
    """The same four checkpoints: all in safetensors, and all but one in boxes."""
    plain = {f"c{i}": open_checkpoint(write_checkpoint(tmp_path / f"p{i}", weights(i))) for i in range(4)}
    boxed = {"c0": plain["c0"]} | {
        f"c{i + 1}": open_checkpoint(write_toy(tmp_path / f"b{i + 1}", weights(i + 1), **how))
        for i, how in enumerate(BOXES)
    }
    for key in plain:
        require_same(plain[key], boxed[key])
    return plain, boxed


@pytest.fixture(scope="module")
def executor():
    """Processes in which nobody has registered the format."""
    with LocalExecutor(2) as executor:
        yield executor


def assert_same_bits(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert mine[name].tobytes() == theirs[name].tobytes(), name


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("block_bytes", [4096, None])
def test_a_blend_of_boxes_is_bit_by_bit_that_of_plain_files(pools, direct, block_bytes):
    plain, boxed = pools
    options = Options(workers=3, direct=direct, block_bytes=block_bytes)
    assert_same_bits(soup(boxed, *ROWS, options=options), soup(plain, *ROWS))


@pytest.mark.parametrize(
    "how", [{"axis": 2, "pieces": 2}, {"axis": 9, "codec": "zlib"}, {"pieces": 100}, {"pieces": 1}]
)
def test_boxes_alone_come_back_as_the_tensors_they_hold(toy_format, tmp_path, how):
    boxed = open_checkpoint(write_toy(tmp_path / "b", weights(1), **how))
    plain = open_checkpoint(write_checkpoint(tmp_path / "p", weights(1)))
    row = Row(name="it", weights={"x": 1.0})
    assert_same_bits(soup({"x": boxed}, row), soup({"x": plain}, row))


def test_each_encoded_box_is_decoded_once_for_all_rows_and_workers(pools, monkeypatch):
    from tests import toy_format

    calls = []
    decode = toy_format.Zlib.decode
    monkeypatch.setattr(
        toy_format.Zlib, "decode", lambda self, stored, **n: calls.append(bytes(stored)) or decode(self, stored, **n)
    )
    _, boxed = pools
    soup(boxed, *ROWS, options=Options(workers=4, block_bytes=4096))
    wanted = [box for (box, _) in boxed["c3"].encoded if 0 not in box.shape]
    assert len(calls) == len(wanted)


def test_the_gram_matrix_of_boxes_is_that_of_plain_files(pools, executor):
    expected, found = (gram(pool, centre="c0").group(WHOLE).inner for pool in pools)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    shared = gram(pools[1], centre="c0", executor=executor).group(WHOLE).inner
    assert np.array_equal(shared, found)


@pytest.mark.parametrize("stretch_bytes", [1 << 30, 20_000])
def test_machines_that_share_a_blend_of_boxes_write_the_bytes_of_one(pools, executor, tmp_path, stretch_bytes):
    files = {}
    for name, pool in zip(("plain", "boxed"), pools, strict=True):
        (tmp_path / name).mkdir()
        hashes, _ = blend_shards(
            pool,
            ROWS[1],
            tmp_path / name,
            layout=make_layout(pool["c0"]),
            executor=executor,
            stretch_bytes=stretch_bytes,
        )
        files[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert files["boxed"] == files["plain"]
    assert not hashes  # boxes in another order than the output's are hashed by a read of their own


def test_a_sample_covers_the_same_numbers_whatever_the_boxes(pools):
    layout = make_layout(pools[0]["c0"])
    plain, boxed = (sample_spans(layout, list(pool.values()), items=50, seed=3) for pool in pools)
    assert numbers(boxed) == numbers(plain)
    assert len(boxed) > len(plain) == 5  # of six tensors, one is empty
    assert numbers(sample_spans(layout, list(pools[1].values()), items=50, seed=4)) != numbers(plain)


def numbers(found):
    """Which bytes of the output some spans make."""
    return sorted(s.offset + k for s in found for k in range(s.items * ITEM_BYTES[s.out_dtype]))


def test_spans_cover_every_number_once_and_end_where_a_box_does(pools):
    plain, boxed = pools
    layout = make_layout(plain["c0"])
    alone, among = spans(layout, [plain["c0"]]), spans(layout, list(boxed.values()))
    assert numbers(among) == numbers(alone)
    assert len(among) > len(alone)


def test_a_template_in_another_format_makes_ordinary_files_in_shards_of_a_usual_size(pools):
    layout = make_layout(pools[1]["c2"])
    assert [file.name for file in layout.files] == ["model.safetensors"]
    assert list(layout.files[0].header.tensors) == list(weights(0))
    assert len(make_layout(pools[1]["c2"], shard_bytes=5000).files) > 1


def test_a_number_that_is_not_finite_is_named_with_the_file_of_its_box(toy_format, tmp_path):
    for codec in (None, "zlib"):
        bad = {"w": np.full((4, 3), 1.0, np.float32)}
        bad["w"][3, 2] = np.nan
        good = open_checkpoint(write_checkpoint(tmp_path / f"good{codec}", {"w": np.ones((4, 3), np.float32)}))
        pool = {"a": good, "b": open_checkpoint(write_toy(tmp_path / f"bad{codec}", bad, pieces=2, codec=codec))}
        with pytest.raises(NonfiniteError, match=r"bad\w+/data/1.raw: tensor 'w' holds NaN or Inf"):
            soup(pool, Row(name="mean", weights={"a": 0.5, "b": 0.5}))
        assert [n.key for n in gram(pool, centre="a").nonfinite] == ["b"]


def test_a_damaged_box_stops_the_pass_with_its_file_and_place(toy_format, tmp_path):
    folder = write_toy(tmp_path / "x", {"w": np.ones((50, 3), np.float32)}, codec="zlib")
    raw = bytearray((folder / "data" / "1.raw").read_bytes())
    raw[0] ^= 255
    (folder / "data" / "1.raw").write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"data/1.raw is damaged: the \d+ bytes at 0 cannot be decoded"):
        soup({"x": open_checkpoint(folder)}, Row(name="it", weights={"x": 1.0}))
    change_listing(folder, "w", lambda boxes: boxes[0].__setitem__(5, None))
    with pytest.raises(CheckpointError, match=r"which needs 192 bytes and has \d+"):
        open_checkpoint(folder)


@pytest.mark.parametrize("how", [{"pieces": 1}, {"pieces": 2}])
def test_boxes_that_a_pass_meets_in_the_order_of_their_files_are_hashed_on_the_way(toy_format, tmp_path, how):
    boxed = open_checkpoint(write_toy(tmp_path / "x", weights(1), **how))
    assert hashed(boxed) == tuple(sha256_file(file) for file in boxed.files)


@pytest.mark.parametrize("how", [{"codec": "zlib"}, {"axis": 1, "pieces": 2}])
def test_encoded_and_interleaved_boxes_are_hashed_by_a_read_of_their_own(toy_format, tmp_path, how):
    assert hashed(open_checkpoint(write_toy(tmp_path / "x", weights(1), **how))) is None


def hashed(checkpoint):
    layout = make_layout(checkpoint)
    options = Options(workers=3, block_bytes=4096)
    row = Row(name="it", weights={"x": 1.0})
    return blend(
        {"x": checkpoint}, [row], [MemorySink(layout)], layout=layout, digest=Algorithm.SHA256, options=options
    ).get("x")


def test_the_identity_of_a_checkpoint_covers_its_listing(toy_format, tmp_path):
    one, two = (write_toy(tmp_path / n, {"w": np.arange(6, dtype=np.float32)}, pieces=2) for n in ("one", "two"))
    known = Identities(tmp_path / "hashes.json")
    assert known.checkpoint(open_checkpoint(one)) == known.checkpoint(open_checkpoint(two))

    def swap(boxes):
        boxes[0][:3], boxes[1][:3] = boxes[1][:3], boxes[0][:3]

    change_listing(two, "w", swap)
    assert known.checkpoint(open_checkpoint(one)) != known.checkpoint(open_checkpoint(two))
