import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from tests.checkpoints import write_checkpoint
from tests.command import refused, succeeds, trajsoup
from tests.runs import CONFIG, SIDE_FILES, average, equal, fingerprint, load, mean, weights, write_run
from trajsoup.engine import workers
from trajsoup.merge.plan import explicit_row, plan_row


def both(runs):
    return runs / "EXP1", runs / "EXP2"


def at(runs, *names):
    return [runs / name.split("@")[0] / f"checkpoint-{name.split('@')[1]}" for name in names]


def chosen(printed):
    """The ingredients that --json names, with their weights."""
    return {"@".join(Path(i["path"]).parts[-2:]).replace("checkpoint-", ""): i["weight"] for i in printed}


def row(*args):
    """The row of W that a dry run prints."""
    printed = succeeds("merge", *args, "--dry-run", "--json").json["row"]
    return {"@".join(Path(path).parts[-2:]).replace("checkpoint-", ""): w for path, w in printed.items()}


def test_the_default_is_the_mean_of_the_k_best_of_each_admitted_branch(runs, tmp_path):
    done = succeeds("merge", runs / "EXP1", runs / "EXP2", runs / "EXP3", "--k", 2, "-o", tmp_path / "soup")
    best = at(runs, "EXP1@30", "EXP1@20", "EXP2@40", "EXP2@10")
    assert equal(load(tmp_path / "soup"), mean(*best))
    assert "EXP3" in done.out
    assert "rejected" in done.out
    assert f"soup written to {tmp_path / 'soup'}" in done.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--k", 1], {"EXP1@30": 0.5, "EXP2@40": 0.5}),
        (
            ["--k", 2, "--method", "trajectory-soup"],
            dict.fromkeys(["EXP1@30", "EXP1@20", "EXP2@40", "EXP2@10"], 0.25),
        ),
        (["--k", 2, "--method", "single-merge"], {"EXP2@40": 0.5, "EXP2@10": 0.5}),
        (["--k", 2, "--method", "single-merge", "--branch", "EXP1"], {"EXP1@30": 0.5, "EXP1@20": 0.5}),
        (["--method", "model-soup"], {"EXP1@40": 0.5, "EXP2@40": 0.5}),
        (["--method", "full-soup"], dict.fromkeys([f"EXP{n}@{s}0" for n in (1, 2) for s in (1, 2, 3, 4)], 0.125)),
        (["--method", "lawa", "--window", 2], dict.fromkeys(["EXP1@30", "EXP1@40", "EXP2@30", "EXP2@40"], 0.25)),
        (["--method", "lawa", "--window", "10k", "--branch", "EXP2"], {"EXP2@40": 1.0}),
        (
            ["--method", "ema", "--param", "decay=0.75", "--window", "20k", "--branch", "EXP1"],
            {"EXP1@30": 0.75, "EXP1@40": 0.25},
        ),
        (
            ["--method", "wsm", "--param", "decay=cosine", "--branch", "EXP1"],
            {"EXP1@10": 0.14645, "EXP1@20": 0.35355, "EXP1@30": 0.35355, "EXP1@40": 0.14645},
        ),
        (["--select", "global", "--k", 1], {"EXP2@40": 0.5, "EXP1@30": 0.5}),
        (["--select", "global", "--k", 2], dict.fromkeys(["EXP2@40", "EXP1@30", "EXP2@10", "EXP1@20"], 0.25)),
        (["--select", "tail-k", "--k", 2], dict.fromkeys(["EXP1@40", "EXP1@30", "EXP2@40", "EXP2@30"], 0.25)),
        (["--select", "final"], {"EXP1@40": 0.5, "EXP2@40": 0.5}),
        (["--select", "all"], dict.fromkeys([f"EXP{n}@{s}0" for n in (1, 2) for s in (1, 2, 3, 4)], 0.125)),
        (["--k", 2, "--rank-by", "accuracy"], dict.fromkeys(["EXP1@40", "EXP1@30", "EXP2@10", "EXP2@20"], 0.25)),
        (["--k", 1, "--horizon", "20k"], {"EXP1@20": 0.5, "EXP2@10": 0.5}),
        (["--k", 1, "--horizon", "0.02M"], {"EXP1@20": 0.5, "EXP2@10": 0.5}),
        (["--k", 1, "--horizon", "20,000"], {"EXP1@20": 0.5, "EXP2@10": 0.5}),
        (["--k", 1, "--horizon", "1T"], {"EXP1@30": 0.5, "EXP2@40": 0.5}),
    ],
)
def test_strategies_selections_signals_and_horizons_choose_as_the_paper_says(runs, options, expected):
    assert row(*both(runs), *options) == pytest.approx(expected, abs=1e-5)


def test_the_soup_records_the_parameters_of_its_method_and_the_old_spelling_still_works(runs, tmp_path):
    args = ("--param", "kind=wma", "--window", 3, "-o", tmp_path / "soup", "--json")
    done = succeeds("merge", *both(runs), "--strategy", "pma", *args)
    choice = done.json["choice"]
    assert (choice["strategy"], choice["params"]) == ("pma", {"kind": "wma", "alpha": 0.2})
    assert choice["window"] == {"checkpoints": 3, "tokens": None}
    assert chosen(done.json["ingredients"])["EXP1@40"] == pytest.approx(0.25)
    succeeds("verify", tmp_path / "soup")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "lawa", "--window", 9], "a window of 9 checkpoints is longer than branch 'EXP1'"),
        (["--method", "model-soup", "--window", 2], "--window is the end of a branch"),
        (["--method", "ema", "--param", "alpha=1"], "ema has no parameter 'alpha'"),
        (["--method", "wsm", "--param", "start=fork-point"], "needs the fork point: pass --fork-point"),
        (["--method", "greedy-soup"], "greedy-soup asks how 1 merged models score"),
        (["--method", "extra-merge", "--param", "merged=2"], "extra-merge asks how 1 merged models score"),
        (["--method", "learned-soup"], "asks for gradients, and nobody trains here: hand over documents (--validation"),
        (["--method", "trainable-averaging"], "asks for gradients, and nobody trains here"),
        (["--method", "model-stock"], "model-stock needs the fork point"),
    ],
)
def test_what_a_method_cannot_do_is_said_before_anything_is_read(runs, tmp_path, options, message, monkeypatch):
    monkeypatch.setattr(workers.Workers, "run", lambda *args, **kwargs: pytest.fail("weights were read"))
    assert message in refused("merge", *both(runs), *options, "-o", tmp_path / "soup")
    assert not list(tmp_path.iterdir())


def test_model_stock_and_extra_merge_write_verify_and_say_what_they_are(runs, tmp_path):
    args = ("--method", "model-stock", "--fork-point", runs / "base")
    done = succeeds("merge", *both(runs), *args, "-o", tmp_path / "stock", "--json")
    record = done.json
    assert set(record["groups"]) == {n for n, t in load(runs / "base").items() if t.is_floating_point()}
    base, ends = load(runs / "base"), [load(path) for path in at(runs, "EXP1@40", "EXP2@40")]
    a, b = ((end["layers.0.weight"].double() - base["layers.0.weight"].double()).flatten() for end in ends)
    cos = float(a @ b / (a.norm() * b.norm()))
    assert record["groups"]["layers.0.weight"][str(runs / "base")] == pytest.approx(1 - 2 * cos / (1 + cos), abs=1e-5)
    assert "5 groups" not in (tmp_path / "stock" / "README.md").read_text()
    assert "4 groups of tensors have weights of their own" in (tmp_path / "stock" / "README.md").read_text()
    succeeds("verify", tmp_path / "stock", "--full")
    args = ("--method", "extra-merge", "--param", "steps=1", "--param", "merged=2")
    weights = row(*both(runs), *args)
    assert sum(weights.values()) == pytest.approx(1)
    assert min(weights.values()) < 0
    assert "needs the fork point" in refused("merge", *both(runs), "--method", "model-stock", "-o", tmp_path / "x")


def test_a_parameter_is_written_name_equals_value_once(runs):
    for given in (["decay"], ["=1"], ["decay=0.5", "--param", "decay=0.6"]):
        done = trajsoup("merge", *both(runs), "--method", "ema", "--param", *given, "--dry-run")
        assert done.code == 2
        assert "write NAME=VALUE" in done.err


def test_help_lists_the_parameters_of_every_method():
    shown = " ".join(succeeds("merge", "--help").out.replace("│", " ").split())
    for words in ("ema: decay=", "half_life=", "kind=sma|wma|ema", "decay=linear|cosine|1-sqrt"):
        assert words in shown


@pytest.mark.parametrize(
    ("scheme", "better", "worse"),
    [("equal", 1, 1), ("1sqrt", 1, 2**0.5), ("rank", 1, 2), ("rsqrt", 1, 2**-0.5)],
)
def test_coefficients_weigh_by_rank_and_the_soup_is_that_sum_rounded_once(runs, tmp_path, scheme, better, worse):
    total = 2 * (better + worse)
    expected = {"EXP1@30": better, "EXP1@20": worse, "EXP2@40": better, "EXP2@10": worse}
    expected = {name: weight / total for name, weight in expected.items()}
    done = succeeds("merge", *both(runs), "--k", 2, "--weights", scheme, "-o", tmp_path / "soup", "--json")
    assert chosen(done.json["ingredients"]) == pytest.approx(expected)
    recorded = {Path(i["path"]): i["weight"] for i in done.json["ingredients"]}
    wanted = mean(*recorded) if scheme == "equal" else average(recorded)
    assert equal(load(tmp_path / "soup"), wanted)


def test_the_screen_can_be_widened_moved_or_left_out(runs):
    every = [runs / name for name in ("EXP1", "EXP2", "EXP3")]
    admitted = {"EXP1@40", "EXP2@40"}
    assert row(*every, "--method", "model-soup").keys() == admitted
    assert row(*every, "--method", "model-soup", "--tolerance", 0.06).keys() == admitted | {"EXP3@40"}
    assert row(*every, "--method", "model-soup", "--no-screen").keys() == admitted | {"EXP3@40"}
    assert row(*every, "--method", "model-soup", "--baseline", "EXP3").keys() == admitted | {"EXP3@40"}


def test_the_dry_run_says_everything_and_writes_nothing(runs, tmp_path):
    before = os.listdir(tmp_path)
    done = succeeds("merge", *both(runs), "--k", 2, "-o", tmp_path / "soup", "--dry-run")
    for word in ("admitted", "checkpoint-30", "0.25", "reads", "writes", "memory", "time", "nothing was written"):
        assert word in done.out
    told = succeeds("merge", *both(runs), "--k", 2, "--dry-run", "--json").json
    names = at(runs, "EXP1@30", "EXP1@20", "EXP2@40", "EXP2@10")
    sizes = [file.stat().st_size for name in names for file in name.glob("*.safetensors")]
    assert told["read_bytes"] == sum(sizes)
    assert sum(told["row"].values()) == 1
    assert told["buffer_bytes"] > 0
    assert told["read_seconds"] > 0
    assert [v["branch"] for v in told["screen"]] == ["EXP1", "EXP2"]
    assert os.listdir(tmp_path) == before


def test_the_dry_run_foresees_that_the_output_cannot_be_made(runs, tmp_path):
    (tmp_path / "soup").mkdir()
    message = refused("merge", *both(runs), "--k", 2, "-o", tmp_path / "soup", "--dry-run")
    assert "soup exists, and existing output is never replaced" in message


def test_explicit_ingredients_with_weights(runs, tmp_path):
    a, b = at(runs, "EXP1@10", "EXP2@40")
    succeeds("merge", f"{a}=0.75", f"{b}=.25", "-o", tmp_path / "soup")
    assert equal(load(tmp_path / "soup"), average({a: 0.75, b: 0.25}))
    succeeds("merge", f"{a}=1.5", f"{b}=-5e-1", "-o", tmp_path / "beyond")
    assert equal(load(tmp_path / "beyond"), average({a: 1.5, b: -0.5}))


def test_weights_that_do_not_sum_to_one_are_refused_or_normalised(runs, tmp_path):
    a, b = at(runs, "EXP1@10", "EXP2@40")
    message = refused("merge", f"{a}=3", f"{b}=1", "-o", tmp_path / "soup")
    assert "the weights sum to 4, not 1: correct them, or pass --normalize" in message
    assert not list(tmp_path.iterdir())
    done = succeeds("merge", f"{a}=3", f"{b}=1", "--normalize", "-o", tmp_path / "soup", "--json")
    assert chosen(done.json["ingredients"]) == {"EXP1@10": 0.75, "EXP2@40": 0.25}
    assert "cannot be normalised" in refused("merge", f"{a}=1", f"{b}=-1", "--normalize", "-o", tmp_path / "x")


def test_a_soup_file(runs, tmp_path):
    a, b = at(runs, "EXP1@10", "EXP2@40")
    file = tmp_path / "soup.yaml"
    file.write_text(f"fork_point: {runs / 'base'}\ningredients: [{a}, {os.path.relpath(b, tmp_path)}]\n")
    done = succeeds("merge", file, "-o", tmp_path / "soup", "--json")
    assert equal(load(tmp_path / "soup"), mean(a, b))
    assert done.json["template"] == str(runs / "base")


def test_a_study_file_that_scan_wrote(runs, tmp_path):
    succeeds("scan", *both(runs), "-o", tmp_path / "study.yaml")
    succeeds("merge", tmp_path / "study.yaml", "--k", 2, "-o", tmp_path / "from-study")
    succeeds("merge", *both(runs), "--k", 2, "-o", tmp_path / "from-runs")
    assert fingerprint(tmp_path / "from-study") == fingerprint(tmp_path / "from-runs")


def test_a_run_whose_name_looks_like_a_weight_is_a_run(tmp_path):
    write_run(tmp_path / "lr=0.1", val_losses=[2.2], seed=1)
    write_run(tmp_path / "lr=3e-4", val_losses=[2.1], seed=2)
    assert row(tmp_path / "lr=0.1", tmp_path / "lr=3e-4", "--k", 1).keys() == {"lr=0.1@10", "lr=3e-4@10"}


def test_the_layout_is_the_fork_points_and_side_files_survive_byte_for_byte(runs, tmp_path):
    succeeds("merge", *both(runs), "--k", 2, "-o", tmp_path / "plain", "--fork-point", runs / "base")
    assert sorted(p.name for p in (tmp_path / "plain").glob("*.safetensors")) == ["model.safetensors"]
    for name, text in SIDE_FILES.items():
        assert (tmp_path / "plain" / name).read_bytes() == text.encode()
    assert json.loads((tmp_path / "plain" / "config.json").read_text()) == CONFIG
    succeeds(
        "merge", *both(runs), "--k", 2, "-o", tmp_path / "sharded", "--fork-point", runs / "EXP2" / "checkpoint-10"
    )
    index = json.loads((tmp_path / "sharded" / "model.safetensors.index.json").read_text())
    original = json.loads((runs / "EXP2" / "checkpoint-10" / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == dict(sorted(original["weight_map"].items()))
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in load(tmp_path / "sharded").values())
    assert equal(load(tmp_path / "plain"), load(tmp_path / "sharded"))


def test_what_belongs_to_training_does_not_travel(runs, tmp_path):
    run = shutil.copytree(runs / "EXP1", tmp_path / "run")
    for name in ("optimizer.pt", "rng_state.pth", "training_args.bin", "trainer_state.json"):
        (run / "checkpoint-40" / name).write_text('{"log_history": []}')
    (run / "checkpoint-40" / "README.md").write_text("---\nlicense: apache-2.0\nlanguage: en\n---\n# Mine\n")
    succeeds("merge", run, "--select", "tail-k", "--k", 2, "-o", tmp_path / "soup")
    names = {p.name for p in (tmp_path / "soup").iterdir()}
    assert names == {"model.safetensors", "config.json", "soup.json", "README.md", "assets"} | {
        name for name in SIDE_FILES if "/" not in name
    }
    card = (tmp_path / "soup" / "README.md").read_text()
    assert "license: apache-2.0" in card  # it binds the soup too
    assert "# Mine" not in card


@pytest.mark.parametrize(
    ("dtype", "kind"), [("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_a_new_dtype_is_in_the_tensors_and_in_the_config(runs, tmp_path, dtype, kind):
    succeeds("merge", *both(runs), "--k", 2, "--dtype", dtype, "-o", tmp_path / "soup")
    best = at(runs, "EXP1@30", "EXP1@20", "EXP2@40", "EXP2@10")
    assert equal(load(tmp_path / "soup"), mean(*best, dtype=kind))
    config = json.loads((tmp_path / "soup" / "config.json").read_text())
    assert config == {**CONFIG, "dtype": str(kind).removeprefix("torch.")}


@pytest.mark.parametrize("size", ["1kB", "1KiB", "1000"])
def test_shards_of_a_given_size(runs, tmp_path, size):
    succeeds("merge", *both(runs), "--k", 2, "--shard-size", size, "-o", tmp_path / "soup")
    index = json.loads((tmp_path / "soup" / "model.safetensors.index.json").read_text())
    files = sorted(p.name for p in (tmp_path / "soup").glob("*.safetensors"))
    assert files == [f"model-{i + 1:05d}-of-{len(files):05d}.safetensors" for i in range(len(files))]
    assert set(index["weight_map"].values()) == set(files)
    assert len(files) == 3  # 640 B and 24 B and 40 B fit one, 4,800 B need their own, 16 B come after them
    assert equal(load(tmp_path / "soup"), mean(*at(runs, "EXP1@30", "EXP1@20", "EXP2@40", "EXP2@10")))


def test_integers_that_differ_are_refused_unless_their_source_is_named(tmp_path):
    for seed, name in ((1, "a"), (2, "b"), (3, "c")):
        tensors = {**weights(seed), "layers.0.position_ids": torch.tensor([seed] * 5)}
        write_checkpoint(tmp_path / name, tensors, config=CONFIG)
    pair = (f"{tmp_path / 'a'}=0.5", f"{tmp_path / 'b'}=0.5")
    message = refused("merge", *pair, "-o", tmp_path / "soup")
    assert "the I64 tensor 'layers.0.position_ids' differs between" in message
    assert "pass --exact-from" in message
    assert not (tmp_path / "soup").exists()
    succeeds("merge", *pair, "-o", tmp_path / "soup", "--exact-from", tmp_path / "b")
    assert load(tmp_path / "soup")["layers.0.position_ids"].tolist() == [2] * 5
    done = succeeds("merge", *pair, "-o", tmp_path / "other", "--exact-from", tmp_path / "c", "--json")
    assert load(tmp_path / "other")["layers.0.position_ids"].tolist() == [3] * 5
    assert [i["weight"] for i in done.json["ingredients"]] == [0.5, 0.5, 0.0]
    assert "| c |" not in (tmp_path / "other" / "README.md").read_text()  # it gave integers, no weight
    succeeds("verify", tmp_path / "other", "--full")


def test_the_same_merge_twice_gives_the_same_bytes(runs, tmp_path):
    for name in ("once", "again"):
        succeeds("merge", *both(runs), "--k", 2, "--weights", "rank", "-o", tmp_path / name)
    assert fingerprint(tmp_path / "once") == fingerprint(tmp_path / "again")
    assert "soup.json" in fingerprint(tmp_path / "once")


def test_without_hashes_the_weights_are_the_same_and_the_record_says_null(runs, tmp_path):
    succeeds("merge", *both(runs), "--k", 1, "-o", tmp_path / "hashed")
    done = succeeds("merge", *both(runs), "--k", 1, "-o", tmp_path / "soup", "--no-hash", "--json")
    assert equal(load(tmp_path / "soup"), load(tmp_path / "hashed"))
    assert set(done.json["ingredients"][0]["blake3"].values()) == {None}
    assert set(done.json["output"]["files"].values()) == {None}
    assert "not hashed" in succeeds("verify", tmp_path / "soup").out


def test_notes_go_to_stderr_and_json_stays_alone_on_stdout(runs, tmp_path):
    done = succeeds("merge", runs / "EXP1", "--method", "full-soup", "--k", 3, "--dry-run")
    assert "note: --k 3 has no effect on selection 'all'" in done.err
    assert "note" not in done.out
    done = succeeds("merge", *both(runs), "--k", 1, "-o", tmp_path / "soup", "--json")
    assert done.json["output"] is not None
    assert done.err == ""


def test_a_diverged_branch_leaves_valid_json(tmp_path):
    write_run(tmp_path / "a", val_losses=[2.0, 2.1], seed=1)
    nan = float("nan")
    write_run(tmp_path / "b", val_losses=[nan, nan], train_losses=[nan, nan], seed=2)
    done = succeeds("merge", tmp_path / "a", tmp_path / "b", "--select", "all", "-o", tmp_path / "soup", "--json")
    assert [v["admitted"] for v in done.json["screen"]] == [True, False]
    assert done.json["screen"][1]["loss"] is None
    assert json.loads((tmp_path / "soup" / "soup.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "args",
    [
        ["--k", "0", "-o", "x"],
        ["--k", "two", "-o", "x"],
        ["--select", "best", "-o", "x"],
        ["--weights", "linear", "-o", "x"],
        ["--method", "greedy", "-o", "x"],
        ["--dtype", "fp8", "-o", "x"],
        ["--horizon", "soon", "-o", "x"],
        ["--horizon", "5Q", "-o", "x"],
        ["--shard-size", "0", "-o", "x"],
        ["--shard-size", "-5GB", "-o", "x"],
        ["--nonsense", "-o", "x"],
        [],
    ],
)
def test_wrong_usage_ends_with_2(runs, args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = trajsoup("merge", runs / "EXP1", *args)
    assert done.code == 2
    assert "Usage:" in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.iterdir())


def test_a_weight_for_some_ingredients_only_is_wrong_usage(runs, tmp_path):
    a, b = at(runs, "EXP1@10", "EXP2@40")
    done = trajsoup("merge", f"{a}=0.5", b, "-o", tmp_path / "soup")
    assert done.code == 2
    assert "give every ingredient a weight" in done.err


@pytest.mark.parametrize(
    "options",
    [
        ["--k", "4"],
        ["--method", "trajectory-soup"],
        ["--select", "final"],
        ["--weights", "equal"],
        ["--rank-by", "accuracy"],
        ["--horizon", "5B"],
        ["--branch", "EXP1"],
        ["--no-screen"],
        ["--tolerance", "0.1"],
        ["--baseline", "EXP1"],
        ["--tokens-per-step", "100"],
    ],
)
def test_options_that_choose_are_refused_where_every_ingredient_is_named(runs, tmp_path, options):
    a, b = at(runs, "EXP1@10", "EXP2@40")
    listed = tmp_path / "soup.yaml"
    listed.write_text(f"ingredients: [{a}, {b}]\n")
    for inputs in ([f"{a}=0.5", f"{b}=0.5"], [listed]):
        done = trajsoup("merge", *inputs, "-o", tmp_path / "soup", *options)
        assert done.code == 2
        assert f"leave out {options[0]}" in done.err.replace("--screen/", "")
        assert not (tmp_path / "soup").exists()


def test_options_without_effect_on_runs_are_refused(runs, tmp_path):
    done = trajsoup("merge", *both(runs), "--k", 1, "--normalize", "-o", tmp_path / "soup")
    assert done.code == 2
    assert "leave out --normalize" in done.err
    done = trajsoup("merge", *both(runs), "--k", 1, "--no-screen", "--tolerance", 1, "-o", tmp_path / "soup")
    assert done.code == 2
    assert "leave out --tolerance" in done.err
    succeeds("scan", *both(runs), "-o", tmp_path / "study.yaml")
    assert "scan the runs again" in refused(
        "merge", tmp_path / "study.yaml", "--tokens-per-step", 5, "--k", 1, "-o", tmp_path / "soup"
    )


def test_no_input_at_all_is_wrong_usage():
    assert trajsoup("merge", "-o", "x").code == 2


def test_the_order_in_which_runs_are_named_decides_nothing_and_a_branch_left_out_is_in_the_last_lines(tmp_path):
    a, b = (
        write_run(tmp_path / name, val_losses=[2.2, 2.1, 2.0], train_losses=[level] * 3, seed=seed)
        for seed, (name, level) in enumerate((("a", 2.0), ("b", 2.042)), start=1)
    )
    assert row(a, b, "--k", 1) == row(b, a, "--k", 1) == {"a@30": 1.0}
    done = succeeds("merge", b, a, "--k", 1, "-o", tmp_path / "soup")
    assert done.out.splitlines()[-2] == (
        "1 of 2 branches are in it: b has J +2.10% ± 0.00%, above 1.0% (--force b takes all)"
    )


def test_a_branch_whose_gap_is_noise_is_merged_and_marked(tmp_path):
    a, b = (
        write_run(tmp_path / name, val_losses=[2.3, 2.2, 2.1, 2.0], train_losses=levels, seed=seed)
        for seed, (name, levels) in enumerate((("a", [2.0] * 4), ("b", [2.04, 1.97, 2.05, 2.042])), start=1)
    )
    done = succeeds("merge", a, b, "--k", 1, "-o", tmp_path / "soup")
    assert "undecided: admitted" in done.out
    assert "b is undecided, so it is admitted: J is +2.10% ±" in done.err
    assert "more checkpoints, or training on until J settles would decide it" in done.err
    record = json.loads((tmp_path / "soup" / "soup.json").read_text())
    assert {v["branch"]: v["undecided"] for v in record["screen"]} == {"a": False, "b": True}


def test_several_checkpoints_are_averaged_as_they_are_without_k_or_scores(runs, tmp_path):
    three = at(runs, "EXP1@10", "EXP2@40", "EXP3@20")
    done = succeeds("merge", *three, "-o", tmp_path / "soup")
    assert equal(load(tmp_path / "soup"), mean(*three))
    assert "mean: 3 ingredients" in done.out
    assert "K" not in done.err
    succeeds("verify", tmp_path / "soup")
    files = [folder / "model.safetensors" for folder in at(runs, "EXP1@10", "EXP1@20")]
    succeeds("merge", *files, "-o", tmp_path / "of-files")
    assert equal(load(tmp_path / "of-files"), mean(*at(runs, "EXP1@10", "EXP1@20")))


def test_a_run_with_its_last_model_at_the_top_is_still_a_run(runs, tmp_path):
    shutil.copytree(runs / "EXP1", tmp_path / "EXP1")
    for file in (runs / "EXP1" / "checkpoint-40").iterdir():
        shutil.copy(file, tmp_path / "EXP1") if file.is_file() else None
    assert row(tmp_path / "EXP1", runs / "EXP2", "--k", 1) == {"EXP1@30": 0.5, "EXP2@40": 0.5}


def test_without_a_k_the_curves_choose_one_and_it_is_recorded(tmp_path):
    flat = write_run(tmp_path / "flat", val_losses=[2.01, 2.0, 2.005, 2.002], seed=1)
    other = write_run(tmp_path / "other", val_losses=[2.3, 2.01, 2.0, 2.0], seed=2)
    steep = write_run(tmp_path / "steep", val_losses=[3.14, 2.8, 2.6, 2.48], seed=3)
    done = succeeds("merge", flat, other, "-o", tmp_path / "soup")
    assert "K = 3: the most whose members lie within 1% of the best on average" in done.err
    assert json.loads((tmp_path / "soup" / "soup.json").read_text())["choice"]["k"] == 3
    assert row(flat, steep, "--k", "auto") == {"flat@20": 0.5, "steep@40": 0.5}
    said = "K = 4 reaches back to 3.14 on steep, the best single is 2.48"
    assert said in succeeds("merge", flat, steep, "--k", 4, "--dry-run").err
    assert said in succeeds("doctor", flat, steep).err
    assert "reaches back" not in succeeds("doctor", flat).err


def test_long_spellings_of_dtypes_are_understood(runs, tmp_path):
    succeeds("merge", *at(runs, "EXP1@10", "EXP2@10"), "--dtype", "float32", "-o", tmp_path / "soup")
    assert {t.dtype for name, t in load(tmp_path / "soup").items() if "ids" not in name} == {torch.float32}


def test_positions_in_steps_say_so_in_the_record_and_only_scan_asks_for_tokens(tmp_path):
    for seed, name in ((1, "a"), (2, "b")):
        run = write_run(tmp_path / name, val_losses=[2.0, 2.0], seed=seed)
        losses = "".join(f"{step},{2.0},\n" for step in range(1, 20)) + "10,2.0,2.0\n20,2.0,2.0\n"
        (run / "metrics.csv").write_text("step,train_loss,val_loss\n" + losses)
    done = succeeds("merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "soup")
    assert "tokens seen are not recorded" not in done.err
    assert "tokens seen are not recorded" in succeeds("scan", tmp_path / "a", "-o", tmp_path / "study.yaml").err
    record = (tmp_path / "soup" / "soup.json").read_text()
    assert '"window_steps": 10' in record
    assert "window_tokens" not in record


def test_a_plan_prints_in_one_line(runs):
    plan = plan_row(explicit_row({str(path): 0.5 for path in at(runs, "EXP1@10", "EXP2@10")}))
    assert repr(plan) == "<SoupPlan 'explicit': 2 checkpoints, 9.6 kB out, 1 notes>"


def test_a_hub_id_as_fork_point_is_answered_with_the_command_that_fetches_it(runs, tmp_path):
    message = refused("merge", runs / "EXP1", "--k", 1, "--fork-point", "org/model", "-o", tmp_path / "soup")
    assert message.endswith(
        "if it is a model of the Hugging Face hub, fetch it: hf download org/model --local-dir org/model"
    )
