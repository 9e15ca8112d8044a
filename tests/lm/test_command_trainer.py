from pathlib import Path

import pytest

from trajsoup.core.positions import Positions
from trajsoup.core.recipe import Recipe
from trajsoup.errors import StudyError
from trajsoup.lm.command_trainer import PLACEHOLDERS, command_fields, render

POSITIONS = Positions(checkpoint_every=10_240, count=4)


def fields(**changes):
    return command_fields(
        Recipe(global_batch=8, **changes),
        branch="EXP3",
        output_dir=Path("/out dir/EXP3"),
        fork_point=Path("/fork"),
        positions=POSITIONS,
        sequence_length=128,
    )


def test_the_issues_command_is_filled_in_from_the_recipe():
    command = "torchrun --nproc 2 train.py --lr {peak_lr} --seed {seed} --out {output_dir}"
    assert render(command, fields(), where="c") == [
        "torchrun", "--nproc", "2", "train.py", "--lr", "0.000339", "--seed", "1234", "--out", "/out dir/EXP3",
    ]  # fmt: skip


def test_every_placeholder_is_documented_and_every_documented_one_is_there():
    assert list(fields()) == list(PLACEHOLDERS)


def test_steps_follow_from_tokens():
    values = fields()
    assert values["total_steps"] == "40"
    assert values["checkpoint_steps"] == "10"
    assert values["tokens_per_step"] == "1024"


def test_a_value_cannot_become_another_word_or_command():
    evil = {"branch": "x; rm -rf / --all"}
    assert render("train --name {branch}", evil, where="c") == ["train", "--name", "x; rm -rf / --all"]


def test_other_braces_are_left_alone():
    assert render("""train --json '{"a": {"b": 1}}' {seed}""", {"seed": "1"}, where="c")[2] == '{"a": {"b": 1}}'


def test_an_unknown_field_is_refused_with_the_nearest():
    with pytest.raises(StudyError, match=r"\{peak_rl\}, which is unknown: did you mean \{peak_lr\}\?"):
        render("train --lr {peak_rl}", fields(), where="trainer.command")


@pytest.mark.parametrize("command", ["", "   ", "train 'open quote"])
def test_a_command_that_is_no_command_is_refused(command):
    with pytest.raises(StudyError, match=r"trainer\.command"):
        render(command, {}, where="trainer.command")
