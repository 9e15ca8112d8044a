"""What a published soup says of its ingredients: enough to know them, nothing of the machine."""

import json
import shutil

import numpy as np
import pytest

from tests.checkpoints import write_checkpoint
from tests.merge.test_merge_together import plan_of
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import explicit_row, plan_row
from trajsoup.merge.published import published
from trajsoup.merge.verify import verify_soup


def replaced(soup, shown, target):
    """The folder as it lies on the Hub."""
    shutil.copytree(soup, target)
    for name, data in shown.files.items():
        (target / name).write_bytes(data)
    return target


def test_a_soup_with_rows_of_its_own_for_some_tensors_is_the_same_sum_under_its_published_names(tmp_path):
    plan = plan_of(tmp_path, groups={"t1": (1.5, -0.25, -0.25)})
    make_soup(plan, tmp_path / "soup")
    shown = published(tmp_path / "soup")
    assert str(tmp_path) not in shown.files["soup.json"].decode()
    assert shown.places == {".": str(tmp_path)}
    there = replaced(tmp_path / "soup", shown, tmp_path / "there")
    assert verify_soup(there, full=True, relocate=shown.places).full
    assert published(there).places == {}  # published again, it says the same
    assert published(there).files["soup.json"] == shown.files["soup.json"]


def test_a_config_that_says_where_its_model_lay_names_the_folder_alone(tmp_path):
    for number, name in enumerate("ab"):
        config = {"_name_or_path": "/home/somebody/secret/base", "hidden_size": 3}
        write_checkpoint(tmp_path / name, {"t": np.array([1.0, number])}, config=config)
    make_soup(plan_row(explicit_row([(str(tmp_path / name), 0.5) for name in "ab"])), tmp_path / "soup")
    shown = published(tmp_path / "soup")
    assert json.loads(shown.files["config.json"]) == {"_name_or_path": "./base", "hidden_size": 3}
    verify_soup(replaced(tmp_path / "soup", shown, tmp_path / "there"), relocate=shown.places)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (
            ["/home/me/x/a/checkpoint-9", "/home/me/x/a/checkpoint-10", "/home/me/x/b/checkpoint-9"],
            ["./a/checkpoint-9", "./a/checkpoint-10", "./b/checkpoint-9"],
        ),
        (["/home/me/x/a/checkpoint-9"], ["./checkpoint-9"]),
        (["/home/me/a/step_1", "/home/you/a/step_1"], ["./1/a/step_1", "./2/a/step_1"]),  # whose home it is stays here
        (["/mnt/z/step_1", "s3://lab/a/step_1"], ["./step_1", "s3://lab/a/step_1"]),
    ],
    ids=["runs", "one", "homes", "store"],
)
def test_ingredients_keep_run_and_step_and_the_order_of_their_sum(tmp_path, paths, names):
    write_record(tmp_path, paths)
    told = json.loads(published(tmp_path).files["soup.json"])
    assert [i["path"] for i in told["ingredients"]] == names
    assert told["template"] == names[0]
    assert told["exact_from"] == names[-1]
    by_path = sorted(range(len(paths)), key=paths.__getitem__)
    assert by_path == sorted(range(len(paths)), key=names.__getitem__)


def test_a_fork_point_elsewhere_is_named_by_its_folder(tmp_path):
    write_record(tmp_path, ["/home/me/x/a/step_1"], template="/opt/models/base", lora_base="/opt/models/base")
    shown = published(tmp_path)
    told = json.loads(shown.files["soup.json"])
    assert (told["template"], told["lora_base"]) == ("./base", "./base")
    assert shown.places == {".": "/home/me/x/a", "./base": "/opt/models/base"}


def write_record(folder, paths, **fields):
    record = {
        "ingredients": [{"path": path, "weight": 1 / len(paths)} for path in paths],
        "template": paths[0],
        "exact_from": paths[-1],
        "output": {"optimizer_state": "absent", "side_files": {}},
    }
    (folder / "soup.json").write_text(json.dumps(record | fields))
