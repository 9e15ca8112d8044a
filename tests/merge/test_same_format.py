"""A soup as a torch DCP folder: what `dcp.load` loads is the soup, and nothing of the optimizer is in it."""

import json
import pickle
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException

from tests.command import refused, succeeds, trajsoup
from tests.runs import equal, load, weights
from tests.training_checkpoints import training_state
from trajsoup.errors import OutputError, VerifyError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, explicit_row, plan_row
from trajsoup.merge.verify import verify_soup
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.formats.dcp_writer import _archive
from trajsoup.store.formats.torch_archive import Archive
from trajsoup.store.pickles import Name, Record, pickled, unpickle


@pytest.fixture(scope="module")
def soups(training_checkpoints, tmp_path_factory):
    """One soup of checkpoints in two shardings, as safetensors and as DCP in several files."""
    folder = tmp_path_factory.mktemp("same")
    inputs = [f"{training_checkpoints / 'dcp0' / 'step-1'}=0.5", f"{training_checkpoints / 'dcp1' / 'step-2'}=0.5"]
    succeeds("merge", *inputs, "-o", folder / "plain")
    succeeds("merge", *inputs, "--format", "same", "--shard-size", "5KB", "-o", folder / "same")
    return folder


def test_dcp_loads_the_soup_into_the_trainers_own_state(soups):
    state = {"model": {name: torch.zeros_like(t) for name, t in weights(1).items()}}
    dcp.load(state, checkpoint_id=soups / "same", no_dist=True)
    assert equal(state["model"], load(soups / "plain"))


def test_the_folder_holds_several_files_and_says_that_the_optimizer_is_absent(soups):
    names = {path.name for path in (soups / "same").iterdir()}
    assert {".metadata", "soup.json", "README.md", "__0_0.distcp", "__0_1.distcp"} <= names
    assert not any(name.endswith(".safetensors") for name in names)
    record = json.loads((soups / "same" / "soup.json").read_text())
    assert record["output"]["format"] == "torch DCP"
    assert record["output"]["optimizer_state"] == "absent"
    assert record["left_out"]["optimizer"] > 0


def test_verify_recomputes_it_and_notices_a_changed_number(soups, tmp_path):
    assert verify_soup(soups / "same", full=True).tensors == len(weights(1))
    shutil.copytree(soups / "same", tmp_path / "x")
    record = json.loads((tmp_path / "x" / "soup.json").read_text())
    record["output"]["files"] = dict.fromkeys(record["output"]["files"])  # as if nobody had hashed
    (tmp_path / "x" / "soup.json").write_text(json.dumps(record))
    box = open_checkpoint(tmp_path / "x").tensors["norm.weight"].boxes[0]
    path = open_checkpoint(tmp_path / "x").files[box.file]
    raw = bytearray(path.read_bytes())
    raw[box.offset] ^= 1
    path.write_bytes(raw)
    with pytest.raises(VerifyError, match=r"tensor 'norm.weight' .* is not the weighted sum"):
        verify_soup(tmp_path / "x")


def test_a_soup_of_soups_in_this_format_is_read_like_any_other(soups, tmp_path):
    make_soup(plan_row(explicit_row([(str(soups / "same"), 1.0)])), tmp_path / "again")
    assert equal(load(tmp_path / "again"), load(soups / "plain"))


def test_every_dtype_is_an_archive_that_torch_loads(tmp_path):
    for dtype in (torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint16, torch.float8_e4m3fn):
        for shape in ((3, 5), (), (0, 2), (7,)):
            kind = {"bfloat16": "BF16", "float64": "F64", "int64": "I64", "bool": "BOOL", "uint16": "U16"}
            name = kind.get(str(dtype).removeprefix("torch."), "F8_E4M3")
            lead, size, tail = _archive(name, shape)
            assert len(lead) % 4096 == 0
            (tmp_path / "x.pt").write_bytes(lead + bytes(size) + tail)
            found = torch.load(tmp_path / "x.pt", weights_only=True)
            assert (found.dtype, tuple(found.shape)) == (dtype, shape)
            assert Archive(tmp_path / "x.pt").place_of(Archive(tmp_path / "x.pt").tree)[:2] == (name, shape)


def test_a_tensor_beyond_four_gigabytes_has_the_wide_fields(tmp_path):
    lead, size, tail = _archive("BF16", (3 << 30,))
    with (tmp_path / "x.pt").open("wb") as file:
        file.write(lead)
        file.seek(size - 4, 1)
        file.write(b"\x80\x3f\x80\x3f" + tail)
    assert torch.load(tmp_path / "x.pt", weights_only=True, mmap=True)[-2:].tolist() == [1.0, 1.0]
    place = Archive(tmp_path / "x.pt").place_of(Archive(tmp_path / "x.pt").tree)
    assert place.nbytes == 6 << 30


def test_what_is_pickled_here_is_what_pickle_reads():
    value = {
        "a": [1, -(2**40), (True, None)],
        "n": Name("collections.OrderedDict"),
        "r": Record("pathlib.PurePath", ("x",)),
    }
    found = pickle.loads(pickled(value))
    assert (found["a"], found["n"].__name__, str(found["r"])) == ([1, -(2**40), (True, None)], "OrderedDict", "x")
    again = unpickle(pickled(value), known=frozenset({"collections.OrderedDict", "pathlib.PurePath"}), where="x")
    assert again["a"] == value["a"]


def test_what_cannot_be_the_same_is_refused(training_checkpoints, tmp_path):
    plain, folder = training_checkpoints / "plain" / "step-1", training_checkpoints / "dcp0" / "step-1"
    assert "writes torch DCP only" in refused("merge", f"{plain}=1", "--format", "same", "-o", tmp_path / "x")
    done = trajsoup("merge", f"{folder}=1", "--format", "same", "--like", plain, "-o", tmp_path / "x")
    assert (done.code, "keeps the" in done.err) == (2, True)
    plan = plan_row(explicit_row([(str(folder), 1.0)]), form=OutputForm(same_format=True))
    with pytest.raises(OutputError, match="writes to a file system"):
        make_soup(plan, "memory://bucket/soup")


def test_the_state_beside_the_model_is_not_loaded_with_it(soups):
    state = training_state({name: torch.zeros_like(t) for name, t in weights(1).items()}, step=0)
    with pytest.raises(CheckpointException, match=r"Missing key"):
        dcp.load({"optimizer": state["optimizer"]}, checkpoint_id=soups / "same", no_dist=True)


@pytest.fixture(scope="module")
def resumable(training_checkpoints, tmp_path_factory):
    """The same soup with the state of one of its ingredients."""
    folder = tmp_path_factory.mktemp("resumable")
    chosen = training_checkpoints / "dcp1" / "step-2"
    inputs = [f"{training_checkpoints / 'dcp0' / 'step-1'}=0.5", f"{chosen}=0.5"]
    succeeds("merge", *inputs, "--format", "same", "--state-from", chosen, "-o", folder / "same")
    return folder / "same"


def test_a_trainer_resumes_from_the_soup_with_the_state_of_a_named_checkpoint(resumable, soups, training_checkpoints):
    chosen = training_checkpoints / "dcp1" / "step-2"

    def loaded(folder):
        state = training_state({name: torch.zeros_like(t) for name, t in weights(1).items()}, step=0)
        for moments in state["optimizer"]["state"].values():
            moments["exp_avg"] += 7  # what is loaded is zero
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        return state

    ours, theirs = loaded(resumable), loaded(chosen)
    assert equal(ours["model"], load(soups / "plain"))
    assert not equal(ours["model"], theirs["model"])
    assert (ours["step"].item(), ours["lr_scheduler"]["last_epoch"]) == (2, 2)
    for name, moments in theirs["optimizer"]["state"].items():
        assert equal(ours["optimizer"]["state"][name], moments)
    assert ours["optimizer"]["param_groups"] == theirs["optimizer"]["param_groups"]


def test_the_record_names_whose_state_it_is_and_verify_checks_it(resumable, training_checkpoints, tmp_path):
    record = json.loads((resumable / "soup.json").read_text())
    assert record["output"]["optimizer_state"] == str(training_checkpoints / "dcp1" / "step-2")
    assert record["left_out"] == {}
    assert verify_soup(resumable, full=True).tensors == len(weights(1))
    (state,) = resumable.glob("__1_*.distcp")
    shutil.copytree(resumable, tmp_path / "x")
    raw = bytearray(state.read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "x" / state.name).write_bytes(raw)
    with pytest.raises(VerifyError, match=f"{state.name} has changed"):
        verify_soup(tmp_path / "x")


def test_a_state_that_does_not_fit_or_is_not_there_is_refused(training_checkpoints, tmp_path):
    folder, plain = training_checkpoints / "dcp0" / "step-1", training_checkpoints / "plain" / "step-1"
    done = trajsoup("merge", f"{folder}=1", "--state-from", folder, "-o", tmp_path / "x")
    assert (done.code, "--format same alone writes" in done.err) == (2, True)
    same = ("merge", f"{folder}=1", "--format", "same", "--state-from")
    assert "is safetensors, and --format same" in refused(*same, plain, "-o", tmp_path / "x")
    shutil.copytree(folder, tmp_path / "cut")
    for path in (tmp_path / "cut").glob("*.distcp"):
        path.write_bytes(path.read_bytes()[:-3000])
    assert "damaged" in refused(*same, tmp_path / "cut", "-o", tmp_path / "x") or not (tmp_path / "x").exists()
