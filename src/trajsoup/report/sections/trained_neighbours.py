"""Methods of others that train (sec:related), on the tokens of the Limited setting, beside Trajectory Soup."""

from __future__ import annotations

from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.report.cells import difference, estimate, score, tokens
from trajsoup.report.section import Section
from trajsoup.report.table import number, tabulate, text
from trajsoup.study.file.primary import LIMITED, SINGLE
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.neighbours import NeighboursRecord

LOSS = Signal.LOSS
VERDICTS = ("better", "not to be told apart", "worse")


def section(records: Records) -> Section | None:
    """A table of them, and what can be told apart. None where the study trains none."""
    found = records.read(NeighboursRecord)
    if found is None:
        return None
    table = tabulate(
        "trained-neighbours",
        "Methods that train, from the same fork point",
        found.models,
        {
            "method": lambda m: text(m.label),
            "made of": lambda m: text(m.made_of),
            "tokens trained": lambda m: tokens(m.tokens),
            "models at inference": lambda m: number(m.models),
            "checkpoints": lambda m: number(len(m.weights) or None),
            "validation loss": lambda m: score(m.validation_loss, LOSS),
            "test loss": lambda m: estimate(m.test_loss, LOSS),
            "loss from Trajectory Soup": lambda m: difference(found.against(m.name, LIMITED, LOSS)),
            "test average": lambda m: estimate(m.test_accuracy, Signal.ACCURACY),
            "average from Trajectory Soup": lambda m: difference(found.against(m.name, LIMITED, Signal.ACCURACY)),
        },
        soup=lambda m: m.name if m.name in (LIMITED, SINGLE) else None,
        ours=lambda m: m.name == LIMITED,
        notes=(
            says(found),
            *(f"{c.label}: {words(c)}." for c in found.comparisons if c.signal is LOSS and c.reference != LIMITED),
            "What a method ends with is taken as it is, unless its row says that validation chose: where T tokens overfit, "
            "an end counts against its method.",
            "Differences are paired over test documents or items. They are exploratory.",
        ),
    )
    return Section(tables=(table,))


def says(found: NeighboursRecord) -> str:
    """Which of them are better than Trajectory Soup on test here, and which are not."""
    by_verdict: dict[str, list[str]] = {}
    for c in found.comparisons:
        if c.signal is LOSS and c.reference == LIMITED:
            label = next(m.label for m in found.models if m.name == c.model)
            by_verdict.setdefault(verdict(c), []).append(label)
    parts = [f"{word}: {', '.join(by_verdict[word])}" for word in VERDICTS if word in by_verdict]
    return f"In loss on test, against the Trajectory Soup of T tokens in all: {'; '.join(parts)}." if parts else ""


def verdict(c: ComparisonRecord) -> str:
    """Whether a difference in loss can be told from none."""
    if c.difference is None or c.low is None or c.high is None or c.low <= 0 <= c.high:
        return VERDICTS[1]
    return VERDICTS[0] if c.difference < 0 else VERDICTS[2]


def words(c: ComparisonRecord) -> str:
    """A difference in loss with its interval."""
    if c.difference is None:
        return "not a number"
    interval = style.interval_text(c.low, c.high, LOSS)
    return f"{style.difference_text(c.difference, LOSS)}{'' if interval is None else f' ({interval})'}, {verdict(c)}"
