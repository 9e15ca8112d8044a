import hashlib
import json
import shutil

import pytest
import safetensors.torch
import torch

from tests.checkpoints import write_checkpoint
from tests.runs import load
from trajsoup.errors import VerifyError
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.choice import Choice
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, explicit_row, plan_row, plan_soup
from trajsoup.merge.verify import verify_soup
from trajsoup.store.digest import Algorithm


def merged(runs, out, *, scheme="equal", digest=Algorithm.BLAKE3, fork="base", **options):
    study = scan_branches([runs / "EXP1", runs / "EXP2"], fork_point=runs / fork)
    make_soup(plan_soup(study, Choice(k=2, coefficients=scheme), form=OutputForm(**options)), out, digest=digest)
    return out


@pytest.fixture
def soup(runs, tmp_path):
    return merged(runs, tmp_path / "soup")


def flip(path, *, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def rehash(soup, name):
    """What a forger would do: change soup.json so that the changed file fits it."""
    record = json.loads((soup / "soup.json").read_text())
    for kind in ("files", "side_files"):
        if name in record["output"][kind]:
            record["output"][kind][name] = hashlib.sha256((soup / name).read_bytes()).hexdigest()
    (soup / "soup.json").write_text(json.dumps(record))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"scheme": "rank"}, {"dtype": "fp32"}, {"shard_bytes": 1000}, {"fork": "EXP2/checkpoint-10"}],
    ids=str,
)
def test_a_good_soup_passes(runs, tmp_path, options, full):
    result = verify_soup(merged(runs, tmp_path / "soup", **options), full=full)
    tensors = load(tmp_path / "soup")
    assert result.tensors == len(tensors)
    assert result.values == sum(t.numel() for t in tensors.values())  # all are smaller than a sample
    assert result.side_files >= 9
    assert result.unhashed == ()


def test_a_sample_of_every_tensor_is_recomputed_unless_full_is_asked_for(tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        chance = torch.Generator().manual_seed(seed)
        write_checkpoint(
            tmp_path / name, {"big": torch.randn(300, 100, generator=chance), "small": torch.ones(7) * seed}
        )
    make_soup(plan_row(explicit_row({str(tmp_path / n): 0.5 for n in "ab"})), tmp_path / "soup")
    assert verify_soup(tmp_path / "soup").values == 4096 + 7
    assert verify_soup(tmp_path / "soup", full=True).values == 30_007


def test_a_flipped_bit_in_the_weights_is_found_by_the_hash(soup):
    flip(soup / "model.safetensors")
    with pytest.raises(VerifyError, match=r"model\.safetensors has changed since the merge \(its sha256 differs"):
        verify_soup(soup)


def test_a_flipped_bit_is_found_by_recomputing_even_if_the_hash_was_forged(soup):
    flip(soup / "model.safetensors")
    rehash(soup, "model.safetensors")
    with pytest.raises(VerifyError, match=r"tensor 'norm\.weight' in model\.safetensors is not the weighted sum"):
        verify_soup(soup)


def test_a_flipped_bit_is_found_without_any_hash(runs, tmp_path):
    soup = merged(runs, tmp_path / "soup", digest=None)
    assert verify_soup(soup).unhashed == ("model.safetensors",)
    flip(soup / "model.safetensors")
    with pytest.raises(VerifyError, match=r"is not the weighted sum"):
        verify_soup(soup)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_changed_ingredient_is_found_by_the_digest_that_the_record_names(runs, tmp_path, algorithm):
    soup = merged(runs, tmp_path / "soup", digest=algorithm)
    record = json.loads((soup / "soup.json").read_text())
    assert all(algorithm in i and len({"blake3", "sha256"} & i.keys()) == 1 for i in record["ingredients"])
    verify_soup(soup, full=True)
    first = next(iter(record["ingredients"][0][algorithm]))
    record["ingredients"][0][algorithm][first] = "0" * 64
    (soup / "soup.json").write_text(json.dumps(record))
    with pytest.raises(VerifyError, match=rf"has changed since the merge \(its {algorithm} differs"):
        verify_soup(soup, full=True)


def test_ingredients_that_are_hashed_in_several_ways_are_no_record_of_ours(soup):
    record = json.loads((soup / "soup.json").read_text())
    record["ingredients"][0]["sha256"] = record["ingredients"][0].pop("blake3")
    (soup / "soup.json").write_text(json.dumps(record))
    with pytest.raises(VerifyError, match="hashed in several ways"):
        verify_soup(soup, full=True)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "README.md", "assets/notes.txt"])
def test_a_changed_side_file_is_named(soup, name):
    flip(soup / name)
    with pytest.raises(VerifyError, match=rf"{name} has changed since the merge"):
        verify_soup(soup)


@pytest.mark.parametrize("name", ["tokenizer.json", "LICENSE", "assets/notes.txt"])
def test_a_missing_side_file_is_named(soup, name):
    (soup / name).unlink()
    with pytest.raises(VerifyError, match=rf"{name} is missing: the folder is incomplete"):
        verify_soup(soup)


def test_missing_weights_are_named(runs, tmp_path):
    soup = merged(runs, tmp_path / "soup", shard_bytes=1000)
    next(iter(sorted(soup.glob("*.safetensors")))).unlink()
    with pytest.raises(VerifyError, match=r"model-00001-of-00003\.safetensors is missing: the folder is incomplete"):
        verify_soup(soup)


def test_a_stale_index_is_found(runs, tmp_path):
    soup = merged(runs, tmp_path / "soup", shard_bytes=1000)
    index = soup / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["metadata"]["total_size"] += 1
    index.write_text(json.dumps(content))
    with pytest.raises(VerifyError, match=r"index\.json has changed since the merge"):
        verify_soup(soup)
    rehash(soup, index.name)
    with pytest.raises(VerifyError, match=r"claims a total_size of \d+, the tensors have \d+ bytes: it is stale"):
        verify_soup(soup)


def copied(runs, folder):
    """A soup whose ingredients may be damaged."""
    shutil.copytree(runs, folder / "runs")
    return merged(folder / "runs", folder / "soup"), folder / "runs" / "EXP1" / "checkpoint-30"


def test_a_change_in_an_ingredient_that_changes_the_sum_is_found(runs, tmp_path):
    soup, ingredient = copied(runs, tmp_path)
    tensors = load(ingredient)
    tensors["layers.0.weight"][5] += 1
    safetensors.torch.save_file(tensors, ingredient / "model.safetensors")
    for full in (False, True):
        with pytest.raises(VerifyError, match=r"'layers\.0\.weight' .*the output or an ingredient has changed"):
            verify_soup(soup, full=full)


def test_a_bit_in_an_ingredient_that_the_rounding_hides_is_found_by_full(runs, tmp_path):
    soup, ingredient = copied(runs, tmp_path)
    tensors = load(ingredient)
    place = (tensors["layers.0.weight"].abs() < 1e-3).nonzero()[0]
    tensors["layers.0.weight"][tuple(place)] *= 1.01  # too little to be seen in the mean of four
    safetensors.torch.save_file(tensors, ingredient / "model.safetensors", metadata={"format": "pt"})
    verify_soup(soup)
    with pytest.raises(VerifyError, match=r"ingredient .*checkpoint-30/model\.safetensors has changed since the merge"):
        verify_soup(soup, full=True)


def test_ingredients_that_moved_are_found_where_the_user_says(runs, tmp_path):
    soup, _ = copied(runs, tmp_path)
    (tmp_path / "runs").rename(tmp_path / "archive")
    with pytest.raises(VerifyError, match=r"there is no checkpoint at .*runs/EXP1/checkpoint.*--relocate OLD=NEW"):
        verify_soup(soup)
    old, new = str(tmp_path / "runs"), str(tmp_path / "archive")
    assert verify_soup(soup, relocate={old: new}, full=True).full
    assert verify_soup(soup, relocate={old + "/": new + "/"})
    with pytest.raises(VerifyError, match=r"there is no checkpoint"):
        verify_soup(soup, relocate={old[:-1]: new})  # half a folder name is no folder


def test_a_soup_that_moved_still_passes(soup, tmp_path):
    soup.rename(tmp_path / "elsewhere")
    verify_soup(tmp_path / "elsewhere")


def test_a_tensor_dropped_or_added_is_named(soup):
    path = soup / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    norm = tensors.pop("norm.weight")
    safetensors.torch.save_file(tensors, path)
    rehash(soup, path.name)
    with pytest.raises(VerifyError, match=r"lacks tensor 'norm\.weight', which every ingredient has"):
        verify_soup(soup)
    safetensors.torch.save_file({**tensors, "norm.weight": norm, "new": norm.clone()}, path)
    rehash(soup, path.name)
    with pytest.raises(VerifyError, match=r"holds tensor 'new', which no ingredient has"):
        verify_soup(soup)


def test_a_folder_that_is_no_soup_is_said_so(runs, tmp_path):
    with pytest.raises(VerifyError, match=r"has no soup\.json .*it was not made by `trajsoup merge`"):
        verify_soup(runs / "base")
    with pytest.raises(VerifyError, match=r"there is no folder .*nowhere: check the path"):
        verify_soup(tmp_path / "nowhere")


def test_a_record_that_points_outside_is_not_trusted(soup):
    record = json.loads((soup / "soup.json").read_text())
    record["output"]["side_files"]["../secret"] = "0" * 64
    (soup / "soup.json").write_text(json.dumps(record))
    with pytest.raises(VerifyError, match=r"names '\.\./secret', which is outside the folder"):
        verify_soup(soup)


DAMAGED = [(field, value) for field in ("soup", "uniform", "output", "exact_from") for value in (3, [3], {})]


@pytest.mark.parametrize(
    ("field", "value"),
    [*DAMAGED, ("exact_from", "nowhere"), ("ingredients", []), ("ingredients", [3]), ("ingredients", [{"path": "x"}])],
)
def test_a_damaged_record_is_one_message(soup, field, value):
    record = json.loads((soup / "soup.json").read_text())
    record[field] = value
    (soup / "soup.json").write_text(json.dumps(record))
    with pytest.raises(VerifyError, match=r"soup\.json is damaged \(.*: make the soup again"):
        verify_soup(soup)


@pytest.mark.parametrize("weights", [{0: 0.3}, {0: 0.0, 1: 0.5}])
def test_forged_weights_that_no_merge_would_write_are_refused(runs, tmp_path, weights):
    soup = merged(runs, tmp_path / "soup", scheme="rank")
    forge(soup, lambda before: [weights.get(i, weight) for i, weight in enumerate(before)])
    with pytest.raises(VerifyError, match=r"soup\.json is damaged"):
        verify_soup(soup)


def test_a_forged_weight_is_found(runs, tmp_path):
    soup = merged(runs, tmp_path / "soup", scheme="rank")
    forge(soup, lambda before: before[::-1])
    with pytest.raises(VerifyError, match=r"is not the weighted sum"):
        verify_soup(soup)


def forge(soup, change):
    record = json.loads((soup / "soup.json").read_text())
    changed = change([ingredient["weight"] for ingredient in record["ingredients"]])
    for ingredient, weight in zip(record["ingredients"], changed, strict=True):
        ingredient["weight"] = weight
    (soup / "soup.json").write_text(json.dumps(record))
