"""The embedded suite of mid-training: two configurations for each of the five categories of app:evaluation-protocol.

Each category has one configuration scored by options and one by exact match. All are within reach of a model of a
hundred thousand parameters, and none can be answered from the format alone: every answer is drawn before its prompt.
"""

from __future__ import annotations

from random import Random

from trajsoup.lm.tasks.items import Item, Metric, Task
from trajsoup.lm.tasks.world import (
    ATTRIBUTES,
    FACTS,
    METHODS,
    NAMES,
    PEOPLE,
    PLACES,
    THINGS,
    WORDS,
    neighbours,
    with_others,
)

CATEGORIES = ("general", "language", "professional", "mathematics", "coding")
CLOSING = {"(": ")", "[": "]", "{": "}"}


def ordering(random: Random) -> Item:
    """Three people in order, one of three questions."""
    people = random.sample(PEOPLE, 3)  # oldest first
    asked = random.randrange(3)
    options = tuple(f" {name}" for name in random.sample(people, 3))
    told = f"{people[0]} is older than {people[1]}, {people[1]} than {people[2]}."
    prompt = f"{told} The {('oldest', 'middle', 'youngest')[asked]} is"
    return Item(prompt=prompt, answer=f" {people[asked]}", options=options)


def pattern(random: Random) -> Item:
    """Continue a repeated sequence of words."""
    period = random.sample(WORDS, random.choice((3, 4)))
    length = len(period) + random.randrange(2, len(period) + 2)
    shown = [period[i % len(period)] for i in range(length)]
    return Item(prompt=f"Next: {' '.join(shown)} ->", answer=f" {period[length % len(period)]}")


def reading(random: Random) -> Item:
    """Find in a short list what one person has."""
    people, things = random.sample(PEOPLE, 3), random.sample(THINGS, 3)
    text = ", ".join(f"{name} {thing}" for name, thing in zip(people, things, strict=True))
    asked = random.randrange(3)
    options = tuple(f" {thing}" for thing in random.sample(things, 3))
    return Item(prompt=f"Who has what: {text}. So {people[asked]}", answer=f" {things[asked]}", options=options)


def agreement(random: Random) -> Item:
    """The verb that number and time ask for, with a noun of either number in between."""
    plural, past = random.random() < 0.5, random.random() < 0.5
    first, second = random.sample(THINGS, 2)
    noun = f"{first}s" if plural else first
    other = f"{second}s" if random.random() < 0.5 else second
    place = random.choice(("near", "behind", "under", "with", "by"))
    time = "Yesterday" if past else "Today"
    verb = (("is", "are"), ("was", "were"))[past][plural]
    return Item(prompt=f"{time} the {noun} {place} the {other}", answer=f" {verb}")


def facts(random: Random) -> Item:
    """What is remembered of a place; the number only makes the item a new one."""
    attribute = random.choice(tuple(ATTRIBUTES))
    value = random.choice(ATTRIBUTES[attribute])
    place = random.choice([p for p in PLACES if FACTS[p, attribute] == value])
    options = tuple(f" {v}" for v in with_others(random, value, ATTRIBUTES[attribute]))
    prompt = f"Fact {random.randrange(100)}: the {attribute} of {place} is"
    return Item(prompt=prompt, answer=f" {value}", options=options)


def methods(random: Random) -> Item:
    """Which builtin type has a method."""
    kind = random.choice(tuple(METHODS))
    name, argument = random.sample(NAMES, 2)
    call = f"{name}.{random.choice(METHODS[kind])}({argument})"
    return Item(prompt=f"In {call}, {name} is a", answer=f" {kind}")


def addition(random: Random) -> Item:
    """A number of two digits plus 1, 2 or 3."""
    options = neighbours(random, low=10, high=99)
    total = random.choice(options)
    second = random.randrange(1, 4)
    prompt = f"{random.choice(THINGS)}s: {total - second}+{second}="
    return Item(prompt=prompt, answer=str(total), options=tuple(map(str, options)))


def comparison(random: Random) -> Item:
    """The largest or smallest of four digits."""
    numbers = random.sample(range(10), 4)
    largest = random.random() < 0.5
    answer = max(numbers) if largest else min(numbers)
    listed = ", ".join(map(str, numbers))
    return Item(prompt=f"The {'largest' if largest else 'smallest'} of {listed} is", answer=f" {answer}")


def execution(random: Random) -> Item:
    """What a three-line program prints."""
    result, change = random.randrange(10), random.choice((1, 2))
    x, y = random.sample(NAMES, 2)
    adds = result + change > 9 or (result >= change and random.random() < 0.5)
    start, sign = (result - change, "+") if adds else (result + change, "-")
    options = with_others(random, str(result), tuple("0123456789"))
    return Item(prompt=f"{x} = {start}\n{y} = {x} {sign} {change}\nprint({y})  # ", answer=str(result), options=options)


def brackets(random: Random) -> Item:
    """Close what was opened."""
    opened = [random.choice("([{") for _ in range(random.choice((2, 3)))]
    names = random.sample(NAMES, len(opened))
    text = "".join(f"{name}{bracket}" for name, bracket in zip(names, opened, strict=True))
    closing = "".join(CLOSING[bracket] for bracket in reversed(opened))
    return Item(prompt=f"close {text} ->", answer=f" {closing}")


def _task(category: str, metric: Metric, chance: float, draw) -> Task:  # noqa: ANN001
    return Task(name=f"{category}/{draw.__name__}", category=category, metric=metric, chance=chance, draw=draw)


SUITE = (
    _task("general", Metric.OPTIONS, 1 / 3, ordering),
    _task("general", Metric.EXACT, 1 / 4, pattern),
    _task("language", Metric.OPTIONS, 1 / 3, reading),
    _task("language", Metric.EXACT, 1 / 4, agreement),
    _task("professional", Metric.OPTIONS, 1 / 4, facts),
    _task("professional", Metric.EXACT, 1 / 4, methods),
    _task("mathematics", Metric.OPTIONS, 1 / 4, addition),
    _task("mathematics", Metric.EXACT, 1 / 4, comparison),
    _task("coding", Metric.OPTIONS, 1 / 4, execution),
    _task("coding", Metric.EXACT, (1 / 9 + 1 / 27) / 2, brackets),
)
SCORED = tuple(
    task for task in SUITE if task.draw in (ordering, reading, agreement)
)  # docs/regime.md: neither guessed nor known
