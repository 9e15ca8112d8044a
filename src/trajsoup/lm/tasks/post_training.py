"""The embedded suite of post-training: the six scenarios of app:evaluation-protocol, asked as a user asks.

The same items, of the training split, are what supervised fine-tuning learns from.
"""

from __future__ import annotations

from random import Random

from trajsoup.lm.tasks.items import Item, Metric, Task
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
EXPRESSIONS = {
    "the sum of {a} and {b}": "{a} + {b}",
    "the product of {a} and {b}": "{a} * {b}",
    "whether {a} equals {b}": "{a} == {b}",
    "the larger of {a} and {b}": "max({a}, {b})",
    "the item {b} of {a}": "{a}[{b}]",
    "{a} called with {b}": "{a}({b})",
}


def chat(question: str, answer: str, options: tuple[str, ...] = ()) -> Item:
    """An item in the tokenizer's chat template."""
    return Item(prompt=f"{USER}{question}\n{ASSISTANT}", answer=answer, options=options)


def expression(random: Random) -> Item:
    """Turn words into a Python expression."""
    words = random.choice(tuple(EXPRESSIONS))
    a, b = random.sample(NAMES, 2)
    return chat(f"Write {words.format(a=a, b=b)} in Python.", EXPRESSIONS[words].format(a=a, b=b))


def word_problem(random: Random) -> Item:
    """One step of counting."""
    options = neighbours(random, low=0, high=19)
    result = random.choice(options)
    name, thing = random.choice(PEOPLE), random.choice(THINGS)
    change = random.randrange(1, 10)
    gains = result >= change and random.random() < 0.5
    before, verb = (result - change, "gets") if gains else (result + change, "loses")
    question = f"{name} has {before} {thing}s and {verb} {change}. How many are left?"
    return chat(question, str(result), tuple(map(str, options)))


def ordering_question(random: Random) -> Item:
    """Three people in order, one question."""
    people = random.sample(PEOPLE, 3)
    asked = random.randrange(3)
    rank = ("tallest", "in the middle", "shortest")[asked]
    told = f"{people[0]} is taller than {people[1]}, {people[1]} than {people[2]}."
    return chat(f"{told} Who is {rank}?", people[asked], tuple(random.sample(people, 3)))


def fact_question(random: Random) -> Item:
    """What mid-training taught of a place."""
    attribute = random.choice(tuple(ATTRIBUTES))
    value = random.choice(ATTRIBUTES[attribute])
    place = random.choice([p for p in PLACES if FACTS[p, attribute] == value])
    question = f"Question {random.randrange(100)}: what is the {attribute} of {place}?"
    return chat(question, value, with_others(random, value, ATTRIBUTES[attribute]))


def rewrite(random: Random) -> Item:
    """Do to three words what the instruction says."""
    words = random.sample(WORDS + THINGS, 3)
    listed = " ".join(words)
    instruction, answer = random.choice(
        (
            (f"Reverse the order: {listed}", " ".join(reversed(words))),
            (f"Write only the second: {listed}", words[1]),
            (f"Put commas between: {listed}", ", ".join(words)),
            (f"Write the last twice: {listed}", f"{words[2]} {words[2]}"),
        )
    )
    return chat(instruction, answer)


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
    _task("coding", Metric.EXACT, 1 / 24, expression),
    _task("mathematics", Metric.OPTIONS, 1 / 4, word_problem),
    _task("reasoning", Metric.OPTIONS, 1 / 3, ordering_question),
    _task("knowledge", Metric.OPTIONS, 1 / 4, fact_question),
    _task("instruction following", Metric.EXACT, 1 / 12, rewrite),
    _task("function calling", Metric.EXACT, 1 / 32, call),
)
