"""The embedded suite of post-training: the six scenarios of app:evaluation-protocol, asked as a user asks.

The same items, of the training split, are what supervised fine-tuning learns from. They ask for skills that mid-training
has taught: 3,000 pairs are enough for the chat, not for a skill.
"""

from __future__ import annotations

from random import Random

from trajsoup.lm.tasks.items import Item, Metric, Task
from trajsoup.lm.tasks.mid_training import CLOSING
from trajsoup.lm.tasks.world import (
    ATTRIBUTES,
    FACTS,
    NAMES,
    PEOPLE,
    PLACES,
    ROOMS,
    THINGS,
    WORDS,
    neighbours,
    with_others,
)
from trajsoup.lm.tokenizer import ASSISTANT, USER

SCENARIOS = ("coding", "mathematics", "reasoning", "knowledge", "instruction following", "function calling")


def chat(question: str, answer: str, options: tuple[str, ...] = ()) -> Item:
    """An item in the tokenizer's chat template."""
    return Item(prompt=f"{USER}{question}\n{ASSISTANT}", answer=answer, options=options)


def brackets(random: Random) -> Item:
    """Close what was opened, three to five deep."""
    opened = [random.choice("([{") for _ in range(random.choice((3, 4, 5)))]
    names = random.sample(NAMES, len(opened))
    text = "".join(f"{name}{bracket}" for name, bracket in zip(names, opened, strict=True))
    return chat(f"close {text}", "".join(CLOSING[bracket] for bracket in reversed(opened)))


def addition(random: Random) -> Item:
    """A number of two digits and a few more."""
    options = neighbours(random, low=10, high=99)
    total = random.choice(options)
    more = random.randrange(1, 4)
    question = f"How many {random.choice(THINGS)}s: {total - more}+{more}?"
    return chat(question, str(total), tuple(map(str, options)))


def pattern(random: Random) -> Item:
    """What a repeated sequence of words goes on with."""
    period = random.sample(WORDS, random.choice((3, 4)))
    length = len(period) + random.randrange(2, len(period) + 2)
    shown = " ".join(period[i % len(period)] for i in range(length))
    return chat(f"What is next: {shown} ->", period[length % len(period)])


def fact_question(random: Random) -> Item:
    """What mid-training taught of a place."""
    attribute = random.choice(tuple(ATTRIBUTES))
    value = random.choice(ATTRIBUTES[attribute])
    place = random.choice([p for p in PLACES if FACTS[p, attribute] == value])
    question = f"Fact {random.randrange(100)}: the {attribute} of {place} is what?"
    return chat(question, value, with_others(random, value, ATTRIBUTES[attribute]))


def directed(random: Random) -> Item:
    """Of four digits the one that the instruction says."""
    digits = random.sample(range(10), 4)
    by_word = {"largest": max(digits), "smallest": min(digits), "first": digits[0], "last": digits[-1]}
    word = random.choice(tuple(by_word))
    return chat(f"Write the {word} of {', '.join(map(str, digits))}.", str(by_word[word]))


def call(random: Random) -> Item:
    """Turn a request into the call of one of four functions."""
    room, color, person, thing = (random.choice(pool) for pool in (ROOMS, ATTRIBUTES["color"], PEOPLE, THINGS))
    question, answer = random.choice(
        (
            (f"Make the lamp of the {room} {color}.", f'set_lamp(room="{room}", color="{color}")'),
            (f"Tell {person} to bring the {thing}.", f'send(to="{person}", bring="{thing}")'),
            (f"Put the {thing} into the {room}.", f'move(item="{thing}", room="{room}")'),
            (f"Buy a {color} {thing} for {person}.", f'buy(item="{thing}", color="{color}", to="{person}")'),
        )
    )
    return chat(question, answer)


def _task(category: str, metric: Metric, chance: float, draw) -> Task:  # noqa: ANN001
    return Task(name=f"{category}/{draw.__name__}", category=category, metric=metric, chance=chance, draw=draw)


SUITE = (
    _task("coding", Metric.EXACT, (1 / 27 + 1 / 81 + 1 / 243) / 3, brackets),
    _task("mathematics", Metric.OPTIONS, 1 / 4, addition),
    _task("reasoning", Metric.EXACT, 1 / 4, pattern),
    _task("knowledge", Metric.OPTIONS, 1 / 4, fact_question),
    _task("instruction following", Metric.EXACT, 1 / 4, directed),
    _task("function calling", Metric.EXACT, 1 / 32, call),
)
SCORED = tuple(task for task in SUITE if task.draw is not pattern)  # docs/scores.md: neither guessed nor known
