import collections
import math
from random import Random

import pytest

from trajsoup.core.splits import Split
from trajsoup.errors import ScoreError
from trajsoup.lm.tasks import mid_training, post_training
from trajsoup.lm.tasks.items import Item, Metric, Task, items, items_digest, require_answerable
from trajsoup.lm.tasks.training import fine_tuning_items, task_documents, tasks_digest

ALL = mid_training.SUITE + post_training.SUITE
OPTIONS = [task for task in ALL if task.metric is Metric.OPTIONS]
EXACT = [task for task in ALL if task.metric is Metric.EXACT]


def named(task):
    return task.name


@pytest.mark.parametrize("task", ALL, ids=named)
def test_items_of_different_splits_never_overlap(task):
    found = {split: {item.prompt for item in items(task, split=split, count=150)} for split in Split}
    for a in Split:
        assert len(found[a]) == 150
        for b in Split:
            assert a is b or not found[a] & found[b]


@pytest.mark.parametrize("task", ALL, ids=named)
def test_there_are_enough_test_items_for_narrow_intervals(task):
    assert len(items(task, split=Split.TEST, count=500)) == 500


@pytest.mark.parametrize("task", ALL, ids=named)
def test_items_are_seeded_and_a_larger_count_only_adds(task):
    few, many = (items(task, split=Split.TEST, count=count, seed=3) for count in (20, 40))
    assert many[:20] == few
    assert items(task, split=Split.TEST, count=20, seed=4) != few


@pytest.mark.parametrize("task", ALL, ids=named)
def test_a_prompt_has_one_answer(task):
    random, answers = Random(0), {}
    for _ in range(3000):
        item = task.draw(random)
        assert answers.setdefault(item.prompt, item.answer) == item.answer


@pytest.mark.parametrize("task", OPTIONS, ids=named)
def test_options_give_nothing_away(task):
    """Answerers that ignore the prompt: by how often an option was right in training, by length, by place, by size."""
    train = items(task, split=Split.TRAIN, count=1500)
    test = items(task, split=Split.TEST, count=500)
    right = collections.Counter(item.answer for item in train)
    offered = collections.Counter(option for item in train for option in item.options)
    answerers = {
        "frequent": lambda item: max(item.options, key=lambda o: right[o]),
        "frequent when offered": lambda item: max(item.options, key=lambda o: right[o] / max(offered[o], 1)),
        "longest": lambda item: max(item.options, key=len),
        "shortest": lambda item: min(item.options, key=len),
        "first": lambda item: item.options[0],
        "last": lambda item: item.options[-1],
        "smallest": lambda item: min(item.options),
        "largest": lambda item: max(item.options),
    }
    noise = 4 * math.sqrt(task.chance * (1 - task.chance) / len(test))
    for name, answer in answerers.items():
        accuracy = sum(answer(item) == item.answer for item in test) / len(test)
        assert accuracy <= task.chance + noise, name


@pytest.mark.parametrize("task", OPTIONS, ids=named)
def test_chance_is_one_over_the_number_of_options(task):
    assert {len(item.options) for item in items(task, split=Split.TEST, count=100)} == {round(1 / task.chance)}


@pytest.mark.parametrize("task", EXACT, ids=named)
def test_no_constant_answer_beats_chance(task):
    train = collections.Counter(item.answer for item in items(task, split=Split.TRAIN, count=1500))
    test = items(task, split=Split.TEST, count=500)
    top = train.most_common(1)[0][0]
    noise = 4 * math.sqrt(task.chance * (1 - task.chance) / len(test))
    assert sum(item.answer == top for item in test) / len(test) <= task.chance + noise


def test_categories_and_scenarios_are_the_papers():
    assert {task.category for task in mid_training.SUITE} == set(mid_training.CATEGORIES)
    assert {task.category for task in post_training.SUITE} == set(post_training.SCENARIOS)
    assert len({task.name for task in mid_training.SUITE}) == len(mid_training.SUITE) == 10
    for category in mid_training.CATEGORIES:
        assert {t.metric for t in mid_training.SUITE if t.category == category} == set(Metric)


def test_an_item_with_no_correct_option_or_a_free_point_is_refused():
    with pytest.raises(
        ScoreError, match=r"item 0 of task 'sums' has no correct option: the answer '4' is not among '3', '5'"
    ):
        require_answerable([Item(prompt="2+2=", answer="4", options=("3", "5"))], task="sums")
    with pytest.raises(ScoreError, match="empty answer, a free point"):
        require_answerable([Item(prompt="2+2=", answer="\n")], task="sums")
    for options in (("4",), ("4", "4")):
        with pytest.raises(ScoreError, match="repeats an option or has only one"):
            require_answerable([Item(prompt="2+2=", answer="4", options=options)], task="sums")


def test_a_task_too_small_for_the_wanted_items_says_so():
    tiny = Task(
        name="tiny",
        category="x",
        metric=Metric.EXACT,
        chance=0.1,
        draw=lambda r: Item(prompt=str(r.randrange(9)), answer="a"),
    )
    with pytest.raises(ScoreError, match="'tiny' has only about"):
        items(tiny, split=Split.TRAIN, count=50)


def test_training_documents_hold_training_items_only():
    held = {i.prompt for t in mid_training.SUITE for i in items(t, split=Split.TEST, count=300)}
    for document in task_documents(Split.TRAIN, characters=100_000):
        assert not any(document.text.startswith(prompt) or f"\n{prompt}" in document.text for prompt in held)


def test_fine_tuning_items_cover_all_scenarios_and_no_test_item():
    held = {i.prompt for t in post_training.SUITE for i in items(t, split=Split.TEST, count=300)}
    found = fine_tuning_items(count=600)
    assert len(found) == 600
    assert not held & {item.prompt for item in found}
    assert fine_tuning_items(count=600) == found


def test_digests_notice_every_change():
    item = Item(prompt="a", answer="b", options=("b", "c"))
    changed = Item(prompt="a", answer="c", options=("b", "c"))
    assert items_digest([item]) != items_digest([changed])
    assert tasks_digest() == tasks_digest()
