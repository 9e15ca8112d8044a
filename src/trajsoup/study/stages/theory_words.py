"""What the predictions say, a sentence each, computed from the numbers."""

from __future__ import annotations

from dataclasses import replace

from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.theory import HeldOutRecord, TheoryRecord

LARGER_SOUPS, NEW_BRANCHES = "larger soups", "new branches"
QUESTIONS = {
    LARGER_SOUPS: "from anchors and pairs, the loss of soups of three and more branches",
    NEW_BRANCHES: "from a branch's own anchor and soups of the other branches, the loss of soups with that branch",
}


def theory_words(record: TheoryRecord) -> TheoryRecord:
    """The record with its words: on each of what was held out, what follows, and those it had of what could not be told."""
    if not record.counts:
        return replace(
            record,
            words=(
                f"{len(record.branches)} admitted branch{'es' * (len(record.branches) != 1)}: how branches vary cannot be "
                "estimated. Two branches with scored anchors are the least.",
            ),
        )
    untested = "With two branches no soup can be held out: how far the quadratic model holds was not tested."
    words = (*(() if record.held_out else (untested,)), *_promises(record), *record.words)
    return replace(record, words=words, held_out_words=tuple(_held_out(held) for held in record.held_out))


def _held_out(held: HeldOutRecord) -> str:
    share = held.share_of_gain
    if share is None:
        return f"Held out: {QUESTIONS[held.name]} changed by nothing, so there was nothing to predict."
    how = (
        "the quadratic model holds well" if share < 0.1 else
        "the quadratic model gives the size of what averaging takes off" if share < 0.5 else
        "the quadratic model is a rough guide only" if share < 1 else
        "the prediction was no better than expecting nothing of averaging"
    )  # fmt: skip
    lean = "with no lean to either side"
    if abs(held.mean_error) > 0.01 * held.gain:
        lean = f"promising {abs(held.mean_error):.1g} too {'much' if held.mean_error > 0 else 'little'} on average"
    return (
        f"Held out: {QUESTIONS[held.name]} was predicted to {held.root_mean_square:.2g} nats (root mean square over "
        f"{held.soups} soups, worst {held.worst:.2g}), where averaging took {held.gain:.2g} off the "
        f"mean loss of the anchors: an error of {share:.0%} of that, {lean}; {how}."
    )


def _promises(record: TheoryRecord) -> list[str]:
    words: list[str] = []
    n = len(record.branches)
    if record.worth_of_branch is not None and record.worth_of_branch.value is not None:
        words.append(
            f"One more branch like these would take {_between(record.worth_of_branch)} nats off the loss of the soup of {n}."
        )
    if record.worth_of_tokens is not None:
        did = "took {:.2g} nats off it" if record.worth_of_tokens >= 0 else "added {:.2g} nats to it"
        words.append(f"The last stretch of tokens in every branch {did.format(abs(record.worth_of_tokens))}.")
    chosen = ", ".join(f"K={b.k} for N={b.n_branches}" for b in record.best)
    if chosen:
        falls = "it never rises with N, as the theory says" if record.best_k_falls else "it does not fall with N"
        words.append(f"The predicted best K is {chosen}: {falls}.")
    largest = record.variances
    if largest is not None and largest.v_intra is not None and largest.v_inter is not None:
        words.append(
            f"Variation within branches costs one checkpoint {_between(largest.v_intra)} nats, variation between branches "
            f"{_between(largest.v_inter)}."
        )
    if len(record.budget) > 1:
        best = min(record.budget, key=lambda key: record.budget[key])
        words.append(f"With the tokens of one full branch shared by N, the law promises most for N={best}.")
    return words


def _between(estimate: Estimate) -> str:
    if estimate.value is None:
        return "an unknown number of"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2g}"
    return f"{estimate.value:.2g} ({estimate.low:.2g} to {estimate.high:.2g} over branches)"
