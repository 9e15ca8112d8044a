import os

import pytest
import torch

from tests.checkpoints import write_checkpoint
from tests.runs import equal, fingerprint, load, mean, write_run
from trajsoup.core.soup import Row
from trajsoup.engine.workers import Options
from trajsoup.errors import BlendError, CheckpointError, MismatchError, OutputError
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.choice import Choice
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, explicit_row, plan_row, plan_soup, read_rate, require_output
from trajsoup.merge.verify import verify_soup


@pytest.fixture
def plan(runs):
    return plan_soup(scan_branches([runs / "EXP1", runs / "EXP2"]), Choice(k=2))


def test_the_plan_knows_all_before_a_weight_is_read(runs, plan):
    assert set(plan.checkpoints) == set(plan.row.weights) == set(plan.candidates)
    files = [file for key in plan.row.weights for file in (runs / key).glob("*.safetensors")]
    assert plan.read_bytes == sum(file.stat().st_size for file in files)
    assert plan.template.path == runs / "EXP1" / "checkpoint-30"  # the first ingredient, without a fork point
    assert read_rate(plan) > 0


def test_a_plan_made_twice_gives_the_same_folder_whatever_the_threads(plan, tmp_path):
    make_soup(plan, tmp_path / "a")
    make_soup(plan, tmp_path / "b", options=Options(workers=1, direct=True, accelerate=False, block_bytes=4096))
    make_soup(plan, tmp_path / "c", options=Options(workers=5, direct=False))
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b") == fingerprint(tmp_path / "c")


def test_progress_hears_of_every_byte(plan, tmp_path):
    heard: list[int] = []
    make_soup(plan, tmp_path / "soup", progress=heard.append)
    assert sum(heard) == sum(t.nbytes for c in plan.checkpoints.values() for t in c.tensors.values())


def test_an_exception_on_the_way_leaves_nothing(plan, tmp_path):
    def stumble(nbytes):
        raise RuntimeError("the progress bar broke")

    with pytest.raises(RuntimeError, match=r"the progress bar broke"):
        make_soup(plan, tmp_path / "soup", progress=stumble)
    assert os.listdir(tmp_path) == []


def test_an_ingredient_that_vanishes_after_planning_leaves_nothing(tmp_path):
    run = write_run(tmp_path / "run", val_losses=[2.2, 2.1])
    plan = plan_soup(scan_branches([run]), Choice(k=2))
    (run / "checkpoint-20" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"reading .*checkpoint-20/model\.safetensors failed: No such file"):
        make_soup(plan, tmp_path / "soup")
    assert os.listdir(tmp_path) == ["run"]


def test_an_ingredient_that_shrinks_after_planning_leaves_nothing(tmp_path):
    run = write_run(tmp_path / "run", val_losses=[2.2, 2.1])
    plan = plan_soup(scan_branches([run]), Choice(k=2))
    os.truncate(run / "checkpoint-20" / "model.safetensors", 1000)
    with pytest.raises(CheckpointError, match=r"became shorter while it was read"):
        make_soup(plan, tmp_path / "soup")
    assert os.listdir(tmp_path) == ["run"]


def test_an_output_is_refused_before_planning_ends_in_work(runs, plan):
    with pytest.raises(OutputError, match=r"base exists"):
        require_output(plan, runs / "base")
    with pytest.raises(OutputError, match=r"lies inside the input"):
        require_output(plan, runs / "EXP1" / "checkpoint-30" / "soup")


def test_a_soup_of_one_checkpoint_is_that_checkpoint(runs, tmp_path):
    source = runs / "EXP1" / "checkpoint-10"
    make_soup(plan_row(explicit_row({str(source): 1.0})), tmp_path / "soup")
    assert equal(load(tmp_path / "soup"), load(source))


def test_loose_files_are_merged_with_the_files_beside_them(tmp_path):
    for name, value in (("step_1", 1.0), ("step_2", 3.0)):
        folder = write_checkpoint(tmp_path / name, {"w": torch.full((3,), value)})
        (folder / "model.safetensors").rename(tmp_path / f"{name}.safetensors")
        folder.rmdir()
    (tmp_path / "config.json").write_text("{}")
    row = explicit_row({str(tmp_path / "step_1.safetensors"): 0.5, str(tmp_path / "step_2.safetensors"): 0.5})
    make_soup(plan_row(row), tmp_path / "soup")
    assert load(tmp_path / "soup")["w"].tolist() == [2.0] * 3
    assert (tmp_path / "soup" / "config.json").read_text() == "{}"
    assert [p.name for p in (tmp_path / "soup").glob("*.safetensors")] == ["model.safetensors"]


def test_explicit_rows_check_their_sum_and_names(runs):
    a, b = (str(runs / "EXP1" / f"checkpoint-{n}") for n in (10, 20))
    with pytest.raises(BlendError, match=r"sum to 0\.9, not 1"):
        plan_row(explicit_row({a: 0.5, b: 0.4}))
    with pytest.raises(BlendError, match=r"is given twice"):
        explicit_row([(a, 0.5), (a + "/", 0.5)])
    with pytest.raises(BlendError, match=r"has no ingredient"):
        explicit_row({})
    assert explicit_row({a: 2, b: 6}, normalize=True).weights == {a: 0.25, b: 0.75}


def test_weights_written_with_seven_digits_count_as_a_sum_of_one(runs, tmp_path):
    paths = [str(runs / "EXP1" / f"checkpoint-{n}0") for n in (1, 2, 3)]
    plan = plan_row(Row(name="thirds", weights=dict.fromkeys(paths, 0.3333333)), fork_point=runs / "base")
    make_soup(plan, tmp_path / "soup")
    assert plan.row.uniform
    assert equal(load(tmp_path / "soup"), mean(*(runs / p for p in paths)))


def test_the_fork_point_must_be_of_the_same_model(runs, tmp_path):
    write_checkpoint(tmp_path / "fork", {"w": torch.ones(2)})
    with pytest.raises(MismatchError, match=r"fork and .*checkpoint-10 cannot be averaged"):
        plan_row(explicit_row({str(runs / "EXP1" / "checkpoint-10"): 1.0}), fork_point=tmp_path / "fork")
    with pytest.raises(MismatchError, match=r"cannot be averaged"):
        plan_row(
            explicit_row({str(runs / "EXP1" / "checkpoint-10"): 1.0}),
            form=OutputForm(exact_from=str(tmp_path / "fork")),
        )


def test_an_output_may_be_a_path_a_string_or_a_url(plan, tmp_path, monkeypatch):
    pytest.importorskip("fsspec", reason="needs the extra [cloud]")
    monkeypatch.chdir(tmp_path)
    make_soup(plan, tmp_path / "a")
    make_soup(plan, str(tmp_path / "b"))
    make_soup(plan, "memory://bucket/soup")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]  # and no folder `memory:`
    for soup in ("a", "memory://bucket/soup"):
        verify_soup(soup)
    with pytest.raises(OutputError, match="exists"):
        require_output(plan, "memory://bucket/soup")
