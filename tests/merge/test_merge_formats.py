"""A merge does not care in which format its ingredients are."""

import json

import pytest
import torch

from tests.checkpoints import write_checkpoint
from tests.runs import CONFIG, SIDE_FILES, equal, fingerprint, load, weights
from tests.toy_format import write_toy
from trajsoup.errors import BlendError, VerifyError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, explicit_row, plan_row
from trajsoup.merge.verify import verify_soup
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.digest import Algorithm, digest_file

pytestmark = pytest.mark.usefixtures("toy_format")
HOW = {"b": {"axis": 0, "pieces": 3}, "c": {"axis": 1, "pieces": 4, "codec": "zlib"}}


@pytest.fixture
def folders(tmp_path):
    """Checkpoints a, b and c, in safetensors below `plain` and two of them in boxes below `boxed`."""
    for number, name in enumerate("abc", start=1):
        tensors = weights(number)
        write_checkpoint(tmp_path / "plain" / name, tensors, config=CONFIG, files=SIDE_FILES)
        if name in HOW:
            write_toy(tmp_path / "boxed" / name, tensors, config=CONFIG, files=SIDE_FILES, **HOW[name])
        else:
            write_checkpoint(tmp_path / "boxed" / name, tensors, config=CONFIG, files=SIDE_FILES)
    return tmp_path


def merged(folder, out, *, fork_point=None, **options):
    row = explicit_row([(str(folder / "a"), 0.5), (str(folder / "b"), 0.3), (str(folder / "c"), 0.2)])
    make_soup(plan_row(row, fork_point=fork_point, form=OutputForm(**options)), out)
    return out


def test_the_soup_of_boxes_has_the_bytes_of_the_soup_of_plain_files(folders):
    before = fingerprint(folders / "boxed")
    plain, boxed = (merged(folders / kind, folders / f"{kind}-soup") for kind in ("plain", "boxed"))
    first, second = fingerprint(plain), fingerprint(boxed)
    assert first.keys() == second.keys()
    assert {name for name in first if first[name] != second[name]} <= {"soup.json", "README.md"}
    assert fingerprint(folders / "boxed") == before


def test_a_fork_point_in_boxes_gives_the_side_files_and_ordinary_weights(folders):
    soup = merged(folders / "boxed", folders / "soup", fork_point=folders / "boxed" / "b")
    plain = merged(folders / "plain", folders / "plain-soup", fork_point=folders / "plain" / "b")
    assert equal(load(soup), load(plain))
    assert {p.name for p in soup.iterdir()} == {p.name for p in plain.iterdir()}


def test_the_record_hashes_every_file_of_every_ingredient(folders):
    soup = merged(folders / "boxed", folders / "soup")
    listed = {i["path"]: i["blake3"] for i in json.loads((soup / "soup.json").read_text())["ingredients"]}
    for path, hashes in listed.items():
        checkpoint = open_checkpoint(path)
        assert hashes == {
            n: digest_file(f, Algorithm.BLAKE3) for n, f in zip(checkpoint.names, checkpoint.files, strict=True)
        }
    assert set(listed[str(folders / "boxed" / "c")]) == {"pieces.json", "data/0.raw", "data/1.raw"}


@pytest.mark.parametrize("full", [False, True])
def test_verify_recomputes_from_boxes(folders, full):
    soup = merged(folders / "boxed", folders / "soup")
    result = verify_soup(soup, full=full)
    if full:
        assert result.values == sum(t.numel() for t in load(soup).values())
    piece = folders / "boxed" / "b" / "data" / "0.raw"
    raw = bytearray(piece.read_bytes())
    raw[4:204:2] = bytes(b ^ 64 for b in raw[4:204:2])  # in the first tensor, half of each number's mantissa
    piece.write_bytes(raw)
    with pytest.raises(VerifyError, match=r"'embed.weight' .* is not the weighted sum of the recorded ingredients"):
        verify_soup(soup, full=full)


def test_a_checkpoint_in_boxes_counts_once(folders):
    (folders / "boxed" / "again").mkdir()
    write_toy(folders / "boxed" / "again" / "x", weights(2), config=CONFIG, files=SIDE_FILES, **HOW["b"])
    with pytest.raises(BlendError, match="are the same checkpoint"):
        plan_row(explicit_row({str(folders / "boxed" / n): 0.5 for n in ("b", "again/x")}))


def test_another_dtype_and_shards_are_the_same_for_boxes(folders):
    options = {"dtype": "fp32", "shard_bytes": 4000}
    plain, boxed = (merged(folders / kind, folders / f"{kind}-soup", **options) for kind in ("plain", "boxed"))
    assert equal(load(plain), load(boxed))
    assert {t.dtype for t in load(boxed).values()} == {torch.float32, torch.int64}
