"""Write docs/results-wishes.md: four ideas of the paper's outlook, promised and measured, over the seeds of a finished study.

    python docs/generate_wishes.py STUDY            scores what is missing and writes the page
    python docs/generate_wishes.py STUDY 3 4        only scores what these seeds lack, and writes nothing

Models that were scored on test before are known; some 70 a seed are new. Seeds that are not finished are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trajsoup.cli.options import study_file
from trajsoup.core.replay import static_elsewhere, tuned_elsewhere
from trajsoup.report.table import Row, Table, text
from trajsoup.study.cache import cache_folder
from trajsoup.study.file.study import load_study, with_seed
from trajsoup.study.records.files import Records
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.wishes.adapting import PLAIN, Adapted, adapted
from trajsoup.study.wishes.duel import Duel, Losses, duel, mean_of
from trajsoup.study.wishes.recipes import Picked, picked_sets
from trajsoup.study.wishes.split import Split, split_of
from trajsoup.study.wishes.weights import OVER, Weighed, weighed
from trajsoup.study.workbench import Workbench

PAGE = Path(__file__).with_name("results-wishes.md")
BUDGETS = (1, 2, 3)  # horizons of one branch, that adaptive branches share
ORDERS = 1  # in which recipes are opened; each more costs some dozen models a seed
SIZES = (3,)  # recipes picked, as many as in the tables of the paper
ELSEWHERE = "the static N that was best in the other seeds"
FEW = 5  # seeds, below which the page says that they are few
WEIGHTS = """\
`--method quadratic` over all admitted branches at the full horizon (Extended). Weights are fitted on one half of the
validation documents and taken where the other half finds them better by more than a standard error; else the best soup of all
these branches with equal weights stays. The plain choice, Trajectory Soup (Extended) as validation chose it, may leave
branches out, so the two can differ where nothing is taken. The promised gain is that of the quadratic model over equal
weights."""
SPLIT = """\
`trajsoup plan STUDY --budget`, with the tokens of one run: the law is fitted on soups of one and two branches at horizons
below T, and promises the loss of N branches of T/N. Losses on test are means over all sets of N branches, at the K that was
promised best, so no recipe is favoured."""
ADAPTING = """\
`allocation: adaptive`, replayed over the finished branches: decisions see validation documents and what every branch had
by the look. Recipes are opened in the order of the file. The soup that a policy ends with is measured on test, beside that of
N branches from beginning to end for the same tokens, as they are and where that soup too leaves out at the end, by the
policy's rule, what spoils it."""
RECIPES = """\
As `trajsoup design` does with probes: gains of pairs of single checkpoints at the first horizon (T/4, validation) promise
the set of N recipes whose average gains most over the best of them. Held to it: the gains of the same pairs at T on test
(Spearman's correlation; the error of a recipe's gains when the law is fitted without it, beside promising the mean), the
gain of the picked set, and the Trajectory Soup of the picked set at T against that of the first N recipes of the paper. The
branches of the study stand in for probes; those of `design` are shorter and read one order of the data."""
INTRO = """\
What was chosen was chosen on validation; what is measured is the loss on {documents:,} test documents, in nats a token. A
difference is the method minus the plain choice on the same documents: below zero the method is better. Intervals (95 %) are
over seeds and documents together (core/crossed.py), one by one, not corrected for how many there are."""
DEFAULTS = """\
None of them does anything unless it is asked for: `quadratic` is in no table of a study that does not name it, every
branch runs to its horizon without `allocation: adaptive`, and `plan --budget` and `design` are commands of their own that
change no study. So what does not beat the plain choice here is off, and so is what does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seed:
    """Everything that is held to one finished seed."""

    weights: Mapping[str, Weighed]
    split: Split
    adapted: Adapted
    picked: Mapping[int, Picked]


Seeds = Mapping[int, Seed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One idea on the page."""

    title: str
    says: str  # what is done and what it is held to
    tables: tuple[Table, ...]
    duels: tuple[tuple[str, Duel], ...]  # what is said to beat what

    @property
    def verdicts(self) -> list[str]:
        """A sentence for each duel that counts."""
        return [f"{name} {verdict(one)}" for name, one in self.duels if one.registered]


def measured_seed(bench: Workbench) -> Seed:
    """Score what is missing of one seed."""
    return Seed(
        weights=weighed(bench),
        split=split_of(bench),
        adapted=adapted(bench, horizons=BUDGETS, orders=ORDERS),
        picked=picked_sets(bench, sizes=SIZES),
    )


def page(seeds: Seeds, plan: PlanRecord) -> str:
    """The page, its sentences too, from what was measured."""
    parts = [part(seeds) for part in (weights_part, split_part, adapting_part, recipes_part)]
    some = next(iter(seeds.values())).split.measured[1]
    few = f" {len(seeds)} seeds are few: intervals are wide." if len(seeds) < FEW else ""
    return "\n".join(
        [
            "# What the paper wishes for, promised and measured",
            "",
            "Printed by `python docs/generate_wishes.py STUDY`. Do not edit.",
            "",
            f"{len(seeds)} seeds of the `paper` preset: {plan.total_params:,} parameters, {len(plan.branches)} branches of "
            f"{plan.horizon:,} tokens, a fork point for every seed. {INTRO.format(documents=len(some.nll))}{few}",
            "",
            "## In short",
            "",
            *(
                f"- **{part.title}**: {'; '.join(part.verdicts) or 'nothing to choose in this study'}."
                for part in parts
            ),
            "",
            f"{_sides(parts)} {DEFAULTS}",
            "",
            *(line for part in parts for line in _shown(part)),
        ]
    )


def _sides(parts: Sequence[Part]) -> str:
    """Which ideas beat the plain choice in all that counts, and which do not."""
    letters = {
        part.title[0]: bool(part.verdicts) and all(d.better for _, d in part.duels if d.registered) for part in parts
    }
    won = ", ".join(letter for letter, better in letters.items() if better) or "none"
    rest = ", ".join(letter for letter, better in letters.items() if not better) or "none"
    return f"The plain choice is beaten in all of this by: {won}. Not, or not in all of it, by: {rest}."


def verdict(found: Duel) -> str:
    """How a duel ended, with its numbers."""
    if found.same:
        return f"ends with the same model as {found.plain} in every seed"
    how = "beats" if found.better else "loses to" if found.worse else "cannot be told from"
    return f"{how} {found.plain} ({interval(found)})"


def interval(found: Duel) -> str:
    """The mean over seeds with its interval, and in how many seeds it is below zero."""
    crossed, values = found.over_seeds, found.by_seed.values()
    between = "" if crossed is None else f" [{crossed.low:+.5f}, {crossed.high:+.5f}]"
    same = f", the same model in {n}" if (n := sum(value == 0 for value in values)) else ""
    return f"{found.mean:+.5f}{between}, better in {sum(value < 0 for value in values)} of {len(values)} seeds{same}"


def duels_of(mine: Losses, plains: Mapping[str, Losses], *, beside: Sequence[str] = ()) -> dict[str, Duel]:
    """One model against several choices. Those beside, and what only hindsight knows, are no part of the verdict."""
    return {
        name: duel(mine, plain, against=name, registered=name not in beside and "hindsight" not in name)
        for name, plain in plains.items()
    }


def weights_part(seeds: Seeds) -> Part:
    """A."""
    duels: list[tuple[str, Duel]] = []
    tables: list[Table] = []
    for over in OVER:
        of = {seed: one.weights[over] for seed, one in seeds.items()}
        plain = {"the soup that validation chose": {seed: w.plain for seed, w in of.items()}}
        equal = {"equal weights": {seed: w.uniform for seed, w in of.items()}}
        taken = duels_of({seed: w.taken for seed, w in of.items()}, plain)
        tried = duels_of({seed: w.tried for seed, w in of.items()}, equal, beside=list(equal))
        duels += [(f"weighing {over}", one) for one in taken.values()]
        duels += [(f"weighing {over}, taken or not,", one) for one in tried.values()]
        rows = [
            (
                seed,
                "–" if w.promise is None else f"{w.promise.promised:.4f}",
                "–" if w.promise is None else f"{w.promise.measured:.4f} ± {w.promise.error:.4f}",
                f"{w.gained:+.4f}",
                "yes" if w.promise is not None and w.promise.kept else "no",
                f"{w.taken.loss() - w.plain.loss():+.4f}",
            )
            for seed, w in of.items()
        ]
        columns = ("seed", "promised gain", "gain on unseen validation", "gain on test", "taken", "method minus plain")
        tables.append(_table(f"weights-{over}", f"Weights over {over}", columns, rows))
    return Part(
        title="A. The best weights",
        says=WEIGHTS,
        tables=tuple(tables),
        duels=tuple(duels),
    )


def split_part(seeds: Seeds) -> Part:
    """B."""
    of = {seed: one.split for seed, one in seeds.items()}

    mine = {seed: x.measured[x.chosen] for seed, x in of.items()}
    plains = {
        "always one branch": {seed: x.measured[x.one] for seed, x in of.items()},
        "always all branches": {seed: x.measured[x.most] for seed, x in of.items()},
        "the best N in hindsight": {seed: x.measured[x.best] for seed, x in of.items()},
    }
    rows = [
        (
            seed,
            x.chosen,
            x.best,
            *(
                cell
                for n in (x.one, x.most)
                for cell in (f"{x.promised_gain(n):.4f}", f"{x.measured[n].loss() - x.measured[x.chosen].loss():+.4f}")
            ),
            f"{x.measured[x.chosen].loss() - x.measured[x.best].loss():.4f}",
        )
        for seed, x in of.items()
    ]
    columns = (
        "seed",
        "promised N",
        "best N",
        "promised gain over one",
        "gain over one on test",
        "promised gain over all",
        "gain over all on test",
        "regret",
    )
    return Part(
        title="B. The price of a trajectory",
        says=SPLIT,
        tables=(_table("split", "One budget in N branches", columns, rows),),
        duels=tuple(("the promised N", one) for one in duels_of(mine, plains).values()),
    )


def adapting_part(seeds: Seeds) -> Part:
    """C."""
    of = {seed: one.adapted for seed, one in seeds.items()}
    replays = [replay for seed, one in of.items() for replay in one.regrets(seed=seed)]
    tuned = tuned_elsewhere(replays)
    duels: list[tuple[str, Duel]] = []
    rows: list[tuple[object, ...]] = []
    by_seed: list[tuple[object, ...]] = []
    for h in BUDGETS:
        budget = h * next(iter(of.values())).horizon
        before = static_elsewhere(replays, budget=budget)
        mine = {seed: a.policy(PLAIN, budget=budget) for seed, a in of.items()}
        sizes = {seed: a.sizes(budget=budget) for seed, a in of.items()}
        plains = {
            ELSEWHERE: {s: a.static(before[s], budget=budget) for s, a in of.items()},
            f"{ELSEWHERE}, leaving out as the policy does": {
                s: a.pruned(before[s], budget=budget) for s, a in of.items()
            },
            "always one branch": {s: a.static(sizes[s][0], budget=budget) for s, a in of.items()},
            "always all branches": {s: a.static(sizes[s][-1], budget=budget) for s, a in of.items()},
            "the best static N in hindsight": {s: a.hindsight(budget=budget) for s, a in of.items()},
        }
        found = duels_of(mine, plains, beside=[name for name in plains if name != ELSEWHERE])
        duels += [(f"adapting with {'' if h == 1 else f'{h} '}T tokens", one) for one in found.values()]
        mended = {seed: a.policy(tuned[seed], budget=budget) for seed, a in of.items()}
        found["tuned"] = duel(mended, plains["the best static N in hindsight"], against="hindsight", registered=False)
        rows.append((f"{h} T", *(interval(one) for one in found.values())))
        measured = found[ELSEWHERE].by_seed
        by_seed += [
            (
                f"{h} T",
                seed,
                ", ".join(map(str, a.branches(PLAIN, budget=budget))),
                before[seed],
                f"{a.promised(PLAIN, before[seed], budget=budget):+.4f}",
                f"{measured[seed]:+.4f}",
                f"{mine[seed].loss() - plains['the best static N in hindsight'][seed].loss():+.4f}",
            )
            for seed, a in of.items()
        ]
    columns = (
        "tokens",
        "minus static N of the other seeds",
        "minus the same, leaving out too",
        "minus always one",
        "minus always all",
        "minus the best static in hindsight",
        "tuned on other seeds, minus the same",
    )
    seeds_columns = (
        "tokens",
        "seed",
        "branches at the end",
        "static N of the other seeds",
        "promised difference",
        "on test",
        "minus the best static in hindsight",
    )
    note = f"As it comes: {PLAIN}. Tuned on the other seeds: {'; '.join(sorted(set(tuned.values())))}."
    return Part(
        title="C. Branches that adapt",
        says=ADAPTING,
        tables=(
            _table("adapting", "Adaptive minus static, at equal tokens", columns, rows, notes=(note,)),
            _table("adapting-seeds", "Seed by seed", seeds_columns, by_seed),
        ),
        duels=tuple(duels),
    )


def recipes_part(seeds: Seeds) -> Part:
    """D."""
    duels: list[tuple[str, Duel]] = []
    rows: list[tuple[object, ...]] = []
    for n in sorted({n for one in seeds.values() for n in one.picked}):
        of = {seed: one.picked[n] for seed, one in seeds.items() if n in one.picked}
        plains = {
            f"the first {n} recipes": {s: p.soups[p.first] for s, p in of.items()},
            f"{n} recipes by lot": {s: mean_of(list(p.soups.values())) for s, p in of.items()},
            f"the best {n} in hindsight": {s: p.soups[p.best] for s, p in of.items()},
        }
        mine = {seed: p.soups[p.ahead.picked] for seed, p in of.items()}
        duels += [(f"the set of {n} picked at the first horizon", one) for one in duels_of(mine, plains).values()]
        rows += [
            (
                n,
                seed,
                *("–" if v is None else f"{v:.2f}" for v in (p.ahead.spearman, p.ahead.spearman_of_cosine)),
                *("–" if v is None else f"{v:.4f}" for v in (p.ahead.error, p.ahead.error_of_mean)),
                ", ".join(p.ahead.picked),
                f"{p.ahead.promised_gain:.4f}",
                "–" if p.ahead.ahead_of_next is None else f"{p.ahead.ahead_of_next:.4f}",
                f"{p.ahead.picked_gain:+.4f}",
                f"{p.soups[p.ahead.picked].loss() - p.soups[p.first].loss():+.4f}",
            )
            for seed, p in of.items()
        ]
    columns = (
        "N",
        "seed",
        "rank agreement of gains",
        "of angles",
        "error, recipe left out",
        "error of the mean",
        "picked",
        "promised gain",
        "ahead of the next set",
        "gain at T on test",
        "soup minus that of the first N",
    )
    return Part(
        title="D. Recipes designed before they run",
        says=RECIPES,
        tables=(_table("recipes", "Sets picked at the first horizon", columns, rows, notes=_left_out(seeds)),),
        duels=tuple(duels),
    )


def _left_out(seeds: Seeds) -> tuple[str, ...]:
    """Whether early gains tell those of a recipe that the law has not seen."""
    every = [next(iter(one.picked.values())).ahead for one in seeds.values() if one.picked]
    pairs = [(a.error, a.error_of_mean) for a in every if a.error is not None and a.error_of_mean is not None]
    if not pairs:
        return ()
    better = sum(mine < plain for mine, plain in pairs)
    return (
        "The gains of a recipe that was left out are told better by its early ones than by the mean of the others in "
        f"{better} of {len(pairs)} seeds.",
    )


def _shown(part: Part) -> list[str]:
    return [
        f"## {part.title}",
        "",
        part.says,
        "",
        *(table.markdown() for table in part.tables),
        *(f"- {name[:1].upper()}{name[1:]} {verdict(one)}." for name, one in part.duels),
        "",
    ]


def _table(
    name: str, title: str, columns: tuple[str, ...], rows: Sequence[Sequence[object]], notes: tuple[str, ...] = ()
) -> Table:
    lines = tuple(Row(cells=tuple(text(str(cell)) for cell in row)) for row in rows)
    return Table(name=name, title=title, columns=columns, rows=lines, notes=notes)


def _tell(what: str, done: int, total: int) -> None:
    print(f"{what}: {done} of {total}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    setup = load_study(study_file(Path(sys.argv[1])))
    asked = [int(word) for word in sys.argv[2:]]
    found: dict[int, Seed] = {}
    for number in asked or range(setup.seeds):
        one = with_seed(setup, number)
        if Records(one.output).read(TheoryRecord) is not None:
            found[number] = measured_seed(Workbench(one, cache=cache_folder(), progress=_tell))
    if not asked:
        PAGE.write_text(page(found, Records(setup.output).require(PlanRecord)), encoding="utf-8")
