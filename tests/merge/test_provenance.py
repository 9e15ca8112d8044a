import hashlib
import json
import shutil
import time

import pytest
import yaml
from blake3 import blake3

from tests.runs import write_run
from trajsoup import __version__
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.choice import Choice
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import explicit_row, plan_row, plan_soup
from trajsoup.store.digest import Algorithm, OrderedDigest
from trajsoup.store.known_digests import KnownDigests


@pytest.fixture(scope="module")
def soup(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "soup"
    study = scan_branches([runs / name for name in ("EXP1", "EXP2", "EXP3")], fork_point=runs / "base")
    make_soup(plan_soup(study, Choice(k=2)), out)
    return out


def read(soup):
    return json.loads((soup / "soup.json").read_text())


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_record_names_every_ingredient_with_weight_tokens_scores_and_digest(runs, soup):
    expected = [
        ("EXP1", 20, 2.4, 2.2, 0.2),
        ("EXP1", 30, 2.3, 2.1, 0.3),
        ("EXP2", 10, 2.5, 2.15, 0.4),
        ("EXP2", 40, 2.2, 2.05, 0.1),
    ]
    assert read(soup)["ingredients"] == [
        {
            "path": str(runs / branch / f"checkpoint-{step}"),
            "weight": 0.25,
            "branch": branch,
            "tokens": step * 1000,
            "train_loss": train_loss,
            "window_tokens": None,
            "val_loss": val_loss,
            "accuracy": accuracy,
            "blake3": {
                p.name: blake3(p.read_bytes()).hexdigest()
                for p in sorted((runs / branch / f"checkpoint-{step}").glob("*.safetensors"))
            },
        }
        for branch, step, train_loss, val_loss, accuracy in expected
    ]


def test_the_record_names_strategy_screen_versions_and_every_file_of_the_output(runs, soup):
    record = read(soup)
    assert record["format"] == "trajsoup/soup/1"
    assert record["trajsoup_version"] == __version__
    assert record["soup"] == "trajectory-soup"
    assert (
        record["choice"] | {"k": 2, "select": "top-k", "coefficients": "equal", "rank_by": "loss"} == record["choice"]
    )
    assert [(v["branch"], v["admitted"], round(v["loss_gap"], 9)) for v in record["screen"]] == [
        ("EXP1", True, 0.0),
        ("EXP2", True, 0.0),
        ("EXP3", False, 0.05),
    ]
    assert record["template"] == str(runs / "base")
    named = record["output"]["files"] | record["output"]["side_files"]
    there = {str(p.relative_to(soup)): sha256(p) for p in soup.rglob("*") if p.is_file() and p.name != "soup.json"}
    assert named == there
    assert record["output"]["bytes"] == (soup / "model.safetensors").stat().st_size


def test_the_card_names_every_ingredient_and_the_screen(soup):
    card = (soup / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\ntags:\n- trajectory-soup\n- merge\n---\n")
    assert "Recipe: strategy trajectory-soup, k 2, select top-k, coefficients equal, rank_by loss, " in card
    assert "`trajectory-soup` of 4 checkpoints from 2 branches" in card
    for line in (
        "| checkpoint-20 | EXP1 | 20,000 | 0.25 | 2.2000 | 0.2000 |",
        "| checkpoint-30 | EXP1 | 30,000 | 0.25 | 2.1000 | 0.3000 |",
        "| checkpoint-10 | EXP2 | 10,000 | 0.25 | 2.1500 | 0.4000 |",
        "| checkpoint-40 | EXP2 | 40,000 | 0.25 | 2.0500 | 0.1000 |",
        "- EXP3: +5.00% ± 0.00% at 40,000 tokens, rejected",
    ):
        assert line in card


def test_positions_that_are_steps_are_called_steps(tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        run = write_run(tmp_path / name, val_losses=[2.2, 2.1], seed=seed)
        (run / "metrics.csv").write_text("step,train_loss,val_loss\n10,2.5,2.2\n20,2.4,2.1\n")
    make_soup(plan_soup(scan_branches([tmp_path / "a", tmp_path / "b"]), Choice(k=1)), tmp_path / "soup")
    record, card = read(tmp_path / "soup"), (tmp_path / "soup" / "README.md").read_text()
    assert record["position_unit"] == "steps"
    assert [i["steps"] for i in record["ingredients"]] == [20, 20]
    assert [v["steps"] for v in record["screen"]] == [20, 20]
    assert not any("tokens" in entry for entry in (*record["ingredients"], *record["screen"]))
    assert "| ingredient | branch | steps |" in card
    assert "at the same steps" in card
    assert "at 20 steps, admitted" in card


def test_nothing_in_the_record_tells_the_time_or_the_output(soup):
    text = (soup / "soup.json").read_text() + (soup / "README.md").read_text()
    assert str(soup) not in text
    assert "unfinished" not in text


def test_explicit_ingredients_are_recorded_without_scores(runs, tmp_path):
    paths = [runs / "EXP1" / "checkpoint-10", runs / "EXP2" / "checkpoint-10"]
    row = explicit_row({str(paths[0]): 0.75, str(paths[1]): 0.25})
    make_soup(plan_row(row), tmp_path / "soup")
    record = read(tmp_path / "soup")
    assert record["choice"] is None
    assert record["position_unit"] is None
    assert [(i["path"], i["weight"], set(i)) for i in record["ingredients"]] == [
        (str(path), weight, {"path", "weight", "blake3"}) for path, weight in zip(paths, (0.75, 0.25), strict=True)
    ]
    assert "| checkpoint-10 |  |  | 0.75 |  |  |" in (tmp_path / "soup" / "README.md").read_text()


def test_a_pipe_in_a_name_does_not_break_the_table(runs, tmp_path):
    (tmp_path / "a|b").symlink_to(runs / "EXP1" / "checkpoint-10")
    make_soup(plan_row(explicit_row({str(tmp_path / "a|b"): 1.0})), tmp_path / "soup")
    assert r"| a\|b |" in (tmp_path / "soup" / "README.md").read_text()


@pytest.mark.parametrize(
    ("card", "inherited"),
    [
        ("---\nlicense: mit\ntags: [old]\nmodel-index: []\n---\ntext", {"license": "mit"}),
        ("---\nlicense: other\nlicense_name: x\n---\n", {"license": "other", "license_name": "x"}),
        ("no front matter --- license: mit", {}),
        ("---\n: [broken\n---\n", {}),
        ("---\n- a list\n---\n", {}),
        ("---\nlicense: mit\ndate: 2024-02-30\n---\n", {}),
        ("---\nlicense: !!int x\n---\n", {}),
    ],
)
def test_only_what_binds_the_soup_is_taken_from_an_older_card(runs, tmp_path, card, inherited):
    source = shutil.copytree(runs / "EXP1" / "checkpoint-10", tmp_path / "source")
    (source / "README.md").write_text(card)
    make_soup(plan_row(explicit_row({str(source): 1.0})), tmp_path / "soup")
    head = yaml.safe_load((tmp_path / "soup" / "README.md").read_text().split("---")[1])
    assert head == {"library_name": "transformers", **inherited, "tags": ["trajectory-soup", "merge"]}


@pytest.mark.parametrize(
    ("config", "card", "base_model"),
    [
        ({"_name_or_path": "lab/base-1b"}, "", "lab/base-1b"),
        ({}, "---\nbase_model: lab/base-2b\n---\n", "lab/base-2b"),
        ({"_name_or_path": "/home/me/base"}, "", None),
        ({"_name_or_path": "../base"}, "---\nbase_model: [a/b, c/d]\n---\n", None),
    ],
)
def test_the_card_names_the_base_model_where_config_or_card_do(runs, tmp_path, config, card, base_model):
    source = shutil.copytree(runs / "EXP1" / "checkpoint-10", tmp_path / "source")
    written = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(written | config))
    (source / "README.md").write_text(card)
    make_soup(plan_row(explicit_row({str(source): 1.0})), tmp_path / "soup")
    head = yaml.safe_load((tmp_path / "soup" / "README.md").read_text().split("---")[1])
    assert head.get("base_model") == base_model


@pytest.mark.parametrize("ingredients", [("EXP1",), ("EXP1", "EXP2")])
def test_ingredients_whose_digests_are_known_are_not_hashed_again_and_recorded_all_the_same(
    runs, tmp_path, monkeypatch, ingredients
):
    monkeypatch.setattr("trajsoup.store.known_digests.time.time", lambda: time.time_ns() / 1e9 + 60)
    plan = plan_soup(scan_branches([runs / "EXP1", runs / "EXP2"]), Choice(k=2))
    first = plan_soup(scan_branches([runs / name for name in ingredients]), Choice(k=2))
    make_soup(first, tmp_path / "first", known=KnownDigests(tmp_path / "digests.json"))
    hashed = []
    real = OrderedDigest.__init__
    monkeypatch.setattr(OrderedDigest, "__init__", lambda self, a, **rest: (hashed.append(a), real(self, a, **rest))[1])
    made = make_soup(plan, tmp_path / "again", known=KnownDigests(tmp_path / "digests.json"))
    new = {key for key in plan.checkpoints if not any(f"/{name}/" in key for name in ingredients)}
    files = sum(len(plan.checkpoints[key].files) for key in new)
    assert sorted(hashed) == [Algorithm.BLAKE3] * files + [Algorithm.SHA256] * len(made.layout.files)
    assert made.record()["ingredients"] == make_soup(plan, tmp_path / "alone").record()["ingredients"]
