"""`verify` says what it checked and no more, and a record that somebody else wrote breaks nothing."""

import json

import numpy as np
import pytest

from tests.plain_checkpoints import write_plain
from trajsoup.errors import StoreError, TrajsoupError, VerifyError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import explicit_row, mean_row, plan_row
from trajsoup.merge.soup_file import load_soup_file
from trajsoup.merge.verify import verify_soup
from trajsoup.store.remote import place


@pytest.fixture
def soup(tmp_path):
    for k in range(2):
        write_plain(tmp_path / f"c{k}", {"a": np.full(5, k, "f4")}, files={"config.json": "{}"})
    make_soup(plan_row(mean_row([tmp_path / "c0", tmp_path / "c1"])), tmp_path / "soup")
    return tmp_path / "soup"


def rewrite(soup, change):
    record = json.loads((soup / "soup.json").read_text())
    change(record)
    (soup / "soup.json").write_text(json.dumps(record))


def weights(*values):
    def change(record):
        for ingredient, value in zip(record["ingredients"], values, strict=True):
            ingredient["weight"] = value

    return change


def test_it_counts_what_has_its_hash(soup):
    checked = verify_soup(soup)
    assert (checked.files, checked.side_files, checked.unhashed, checked.unknown) == (1, 2, (), ())
    rewrite(soup, lambda record: record["output"]["files"].update({"model.safetensors": None}))
    checked = verify_soup(soup)
    assert (checked.files, checked.unhashed) == (0, ("model.safetensors",))


HOSTILE = {
    "no file listed": lambda r: r["output"]["files"].clear(),
    "a file too many": lambda r: r["output"]["files"].update(x="0" * 64),
    "other weights": weights(0.9, 0.1),
    "zero weights": weights(0, 0),
    "one zero weight": weights(0, 1),
    "huge weights": weights(1e308, 1e308),
    "a weight of 401 digits": weights(10**400, 1),
    "weights that sum to 2": lambda r: (weights(1.5, 0.5)(r), r.update(uniform=False)),
    "not uniform": lambda r: r.update(uniform=False),
    "twice the same": lambda r: r["ingredients"].append(r["ingredients"][0]),
    "no ingredient": lambda r: r["ingredients"].clear(),
    "NUL in a path": lambda r: r["ingredients"][0].update(path="a\0b"),
    "NUL in a name": lambda r: r["output"]["files"].update({"a\0b": None}),
    "a name that leads out": lambda r: r["output"]["side_files"].update({"../x": None}),
    "an absolute name": lambda r: r["output"]["side_files"].update({"/etc/passwd": None}),
    "exact_from nowhere": lambda r: r.update(exact_from="nowhere"),
    "names that are none": lambda r: r.update(names={"rules": [{"to": 3}]}),
    "groups that are none": lambda r: r.update(groups={"x": {}}),
    "half a surrogate": lambda r: r.update(soup="\ud800"),
    "another type": lambda r: r.update(ingredients={}),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_record_that_merge_would_not_write_is_refused_in_one_line(soup, change):
    rewrite(soup, change)
    with pytest.raises(TrajsoupError) as caught:
        verify_soup(soup)
    assert "\n" not in str(caught.value)


def test_a_changed_dtype_is_refused(soup):
    rewrite(soup, lambda record: record["output"]["files"].update({"model.safetensors": None}))
    raw = (soup / "model.safetensors").read_bytes()
    (soup / "model.safetensors").write_bytes(raw.replace(b'"F32"', b'"I32"'))
    with pytest.raises(VerifyError, match="is I32"):
        verify_soup(soup)


@pytest.mark.parametrize(
    "name", ["evil.py", "adapter_model.safetensors", "adapter_config.json", "deep/model.bin", "x.so"]
)
def test_an_added_file_that_loaders_read_is_refused(soup, name):
    (soup / name).parent.mkdir(exist_ok=True)
    (soup / name).write_text("x")
    with pytest.raises(VerifyError):
        verify_soup(soup)


def test_other_added_files_are_listed(soup):
    (soup / ".gitattributes").write_text("x")
    assert verify_soup(soup).unknown == (".gitattributes",)


def test_a_weighted_soup_is_still_as_recorded(tmp_path):
    for k in range(2):
        write_plain(tmp_path / f"c{k}", {"a": np.full(5, k, "f4")})
    make_soup(plan_row(explicit_row({str(tmp_path / "c0"): 0.25, str(tmp_path / "c1"): 0.75})), tmp_path / "soup")
    assert verify_soup(tmp_path / "soup", full=True).values == 5


# What a file names is not what its reader names.


@pytest.mark.parametrize(
    "url",
    [
        "zip://x::/etc/passwd",
        "s3://a/b::file:///etc/passwd",
        "ftp://host/x",
        "local:///etc",
        "reference://x",
        "jar://x",
    ],
)
def test_other_schemes_and_chains_of_urls_are_refused(url):
    with pytest.raises(StoreError, match=r"is a chain of URLs|is no store that is read here"):
        place(url)


def test_a_record_reaches_no_store_that_its_reader_did_not_name(soup):
    rewrite(soup, lambda record: record["ingredients"][0].update(path="memory://elsewhere/c0"))
    with pytest.raises(StoreError, match=r"contacted only if you say so: pass --allow-url memory://elsewhere"):
        verify_soup(soup)
    with pytest.raises(VerifyError, match="no checkpoint at memory://elsewhere/c0"):
        verify_soup(soup, allow_urls=["memory://elsewhere"])
    with pytest.raises(StoreError, match="contacted only"):
        verify_soup(soup, allow_urls=["memory://else"])  # no folder of that name


def test_a_soup_file_reaches_no_store_that_its_reader_did_not_name(tmp_path):
    (tmp_path / "soup.yaml").write_text("ingredients: [memory://bucket/a, b]\n")
    with pytest.raises(StoreError, match=r"pass --allow-url memory://bucket"):
        load_soup_file(tmp_path / "soup.yaml")
    row, _ = load_soup_file(tmp_path / "soup.yaml", allow_urls=["memory://bucket/a"])
    assert "memory://bucket/a" in row.weights
    (tmp_path / "soup.yaml").write_text("fork_point: memory://bucket/a\ningredients: [b]\n")
    with pytest.raises(StoreError, match="contacted only"):
        load_soup_file(tmp_path / "soup.yaml")
