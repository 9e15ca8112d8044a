"""Examine runs before any merge: same model, shared fork point, finite, no copies, how far apart.

Branches -> open and compare signatures -> one Gram pass, neurons of a few layers -> judgements in words, pairs to merge
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trajsoup.core.compatibility import Closeness, Judgement, Outlook, judge
from trajsoup.core.geometry import alignment, directions_of
from trajsoup.core.gram import Gram
from trajsoup.core.matching import Matching
from trajsoup.core.pair_gain import PairOutlook, Relation, rank_pairs, relation_words
from trajsoup.core.reach import WITHOUT_SCORES, too_far
from trajsoup.core.screening import Verdict, median_branch, screen
from trajsoup.core.selection import TOP_K
from trajsoup.core.signal import Signal
from trajsoup.core.trajectory import merged_trajectories
from trajsoup.engine.executor import Executor
from trajsoup.engine.gram import gram
from trajsoup.engine.kept_gram import FILE, MATRICES, groups, kept_gram
from trajsoup.engine.workers import Options
from trajsoup.errors import CheckpointError, MismatchError, MissingExtraError, ScreenError, install
from trajsoup.merge.branches import Branch, Branches, soups_folder
from trajsoup.merge.neurons import match_neurons
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint, require_same, same_dtypes
from trajsoup.store.identity import IDENTITIES, Identities
from trajsoup.store.remote import Place, absolute, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was found about one branch."""

    name: str
    checkpoints: int
    outlook: Outlook
    reasons: tuple[str, ...]  # the outlook's reason first
    closeness: Closeness | None = None
    verdict: Verdict | None = None  # of the training-loss screen, where losses are known
    neurons: Matching | None = None  # with the reference; None: it is the reference, or no layer is known by its names


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All branches, and what concerns the study as a whole."""

    branches: tuple[Examined, ...]
    reference: str
    pairs: tuple[PairOutlook, ...] = ()  # most promising first
    pairs_by: str = ""  # how they were ordered, in words
    notes: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether every branch may be averaged."""
        return all(branch.outlook is not Outlook.BAD for branch in self.branches)


def pass_bytes(study: Branches) -> int:
    """Bytes that an examination reads, for a progress bar."""
    opened, _ = _open(study)
    return sum(checkpoint.nbytes for checkpoint in opened.values())


def study_folder(inputs: Sequence[Place | str]) -> Path | None:
    """The folder of the study that these inputs belong to, if it has been run: its matrix and its gains are reused."""
    paths = [path for path in map(place, inputs) if isinstance(path, Path)]
    if len(paths) != len(inputs) or not paths:
        return None
    if len(paths) == 1 and paths[0].suffix in (".yaml", ".yml"):
        folder = soups_folder(paths[0])
    else:
        parents = {path.absolute().parent for path in paths}
        folder = parents.pop().parent
        if parents or paths[0].absolute().parent.name != "branches":
            return None
    return folder if (folder / IDENTITIES).is_file() else None


def examine(
    study: Branches,
    *,
    folder: Path | str | None = None,
    relation: Relation | None = None,
    options: Options | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Examination:
    """Read every checkpoint once and judge each branch. Damage is reported, not raised.

    `folder` is that of a study with these checkpoints: what it has measured is not measured again;
    `relation` is the line of gain against cosine that it found.

    >>> examine(scan_branches(["runs/a", "runs/b"])).healthy  # doctest: +SKIP
    """
    checkpoints, problems = _open(study)
    fork = None if study.fork_point is None else absolute(study.fork_point)
    _require_fork_point(fork, problems)
    other_type = fork is not None and fork not in checkpoints
    fork = None if other_type else fork
    matrix = _matrix(checkpoints, fork, None if folder is None else Path(folder), options, executor, progress)
    for found in matrix.nonfinite:
        problems.setdefault(found.key, f"{found.key}: tensor {found.tensor!r} in {found.file} holds NaN or Inf")
    _require_fork_point(fork, problems)
    baseline = _baseline(study, problems)
    copies = _copies(matrix)
    verdicts, screen_note = _screen(study)
    reference = "the fork point" if matrix.centre is not None else f"baseline {baseline.name}"
    examined = tuple(
        _with_neurons(
            _branch(
                b, baseline, matrix, problems, copies, verdicts.get(b.name), reference, single=len(study.branches) == 1
            ),
            _neurons(_usable(b, problems), _usable(baseline, problems), matrix, checkpoints, options),
            reference,
        )
        for b in study.branches
    )
    pairs, pairs_by, pair_notes = _pairs(study, examined, matrix, problems, relation)
    pools = study.pools()
    k = min([WITHOUT_SCORES, *(len(pool.candidates) for pool in pools)])
    curves = too_far(pools, k=k, rank_by=Signal.LOSS, select=TOP_K)
    notes = [
        *study.notes,
        *screen_note,
        *pair_notes,
        *([] if curves is None else [curves]),
        *_alike(examined, reference),
    ]
    if matrix.centre is None and len(study.branches) > 1:
        why = "the fork point is stored in another float type" if other_type else "no --fork-point given"
        notes.append(f"{why}: whether the runs share one is judged from their distances")
    return Examination(
        branches=examined, reference=reference, pairs=pairs, pairs_by=pairs_by, notes=tuple(dict.fromkeys(notes))
    )


def _matrix(
    checkpoints: dict[str, Checkpoint],
    fork: str | None,
    folder: Path | None,
    options: Options | None,
    executor: Executor | None,
    progress: Callable[[int], None],
) -> Gram:
    """From the study's record where there is one; on bare run folders, hashing them would cost a second read."""
    if folder is None:
        return gram(checkpoints, centre=fork, groups=groups, options=options, executor=executor, progress=progress)
    identities = Identities(folder / IDENTITIES)
    hashes = {key: identities.checkpoint(checkpoint) for key, checkpoint in checkpoints.items()}
    identities.save()
    return kept_gram(
        checkpoints,
        hashes=hashes,
        centre=fork,
        path=folder / FILE,
        options=options,
        executor=executor,
        progress=progress,
    )


def _pairs(
    study: Branches,
    examined: Sequence[Examined],
    matrix: Gram,
    problems: Mapping[str, str],
    relation: Relation | None,
) -> tuple[tuple[PairOutlook, ...], str, tuple[str, ...]]:
    """Which branches are worth merging with which, before merging: by the cosine of their directions."""
    fit = {b.name for b in examined if b.outlook is not Outlook.BAD}
    if len(fit) < 2:
        return (), "", ()
    pools = tuple(
        replace(pool, candidates=tuple(c for c in pool.candidates if c.key not in problems))
        for pool in study.pools()
        if pool.branch in fit
    )
    _, _, merged, apart = merged_trajectories(pools)
    directions, still = directions_of(matrix, merged)
    if len(directions) < 2:
        return (), "", (*apart, *still)
    aligned = alignment(matrix, directions)
    cosines = {
        (a, b): float(aligned.cosines[i, j])
        for j, b in enumerate(aligned.branches)
        for i, a in enumerate(aligned.branches[:j])
    }
    if relation is not None and relation.slope is None:
        relation = None
    words = (
        f"by the pair gain expected from their cosine, on the line measured in this study. {relation_words(relation)}"
        if relation is not None
        else "by the cosine of their directions: the less they agree, the more the paper's merges gained (Pearson -0.80 "
        "over its pairs). No pair gain has been measured on these runs; score the soup before trusting the order."
    )
    return rank_pairs(cosines, relation=relation), words, (*apart, *still)


def _open(study: Branches) -> tuple[dict[str, Checkpoint], dict[str, str]]:
    """Open what can be opened and agrees with the first; say what is wrong with the rest.

    A fork point that differs in its float types alone is no problem, and is left out: it cannot be subtracted as it is.
    """
    paths = [s.path for b in study.branches for s in b.checkpoints]
    opened: dict[str, Checkpoint] = {}
    problems: dict[str, str] = {}
    if study.fork_point is not None:
        key = absolute(study.fork_point)
        try:
            fork, first = open_checkpoint(key), _first_opened(paths)
            if first is None or same_dtypes(fork, first) or not _differ_in_dtypes_alone(fork, first):
                opened[key] = fork
        except CheckpointError as error:
            problems[key] = str(error)
    for path in paths:
        key = absolute(path)
        try:
            checkpoint = open_checkpoint(key)
            if opened:
                require_same(next(iter(opened.values())), checkpoint)
            opened[key] = checkpoint
        except CheckpointError as error:
            problems[key] = str(error)
    if not opened:
        raise CheckpointError(next(iter(problems.values())))
    return opened, problems


def _differ_in_dtypes_alone(fork: Checkpoint, first: Checkpoint) -> bool:
    try:
        require_same(fork, first, dtypes=False)
    except MismatchError:
        return False
    return True


def _first_opened(paths: Sequence[Place]) -> Checkpoint | None:
    for path in paths:
        with contextlib.suppress(CheckpointError):
            return open_checkpoint(path)
    return None


def _require_fork_point(fork: str | None, problems: Mapping[str, str]) -> None:
    if fork is not None and fork in problems:
        raise CheckpointError(f"the fork point cannot be used, so nothing can be measured from it: {problems[fork]}")


def _baseline(study: Branches, problems: Mapping[str, str]) -> Branch:
    """The screen's baseline; where none of its checkpoints can be used, the first branch that has one."""
    named = study.baseline or median_branch(study.pools())
    preferred = sorted(study.branches, key=lambda b: b.name != named)
    return next((b for b in preferred if _usable(b, problems)), preferred[0])


def _usable(branch: Branch, problems: Mapping[str, str]) -> list[str]:
    return [key for s in branch.checkpoints if (key := absolute(s.path)) not in problems]


def _branch(
    branch: Branch,
    baseline: Branch,
    matrix: Gram,
    problems: Mapping[str, str],
    copies: Mapping[str, str],
    verdict: Verdict | None,
    reference: str,
    *,
    single: bool,
) -> Examined:
    keys = [absolute(s.path) for s in branch.checkpoints]
    usable = _usable(branch, problems)
    alone = "one branch: its own checkpoints average, and there is no other to compare with" if single else None
    reasons: list[str] = [problems[key] for key in keys if key in problems]
    reasons += [f"{key} is a copy of {copies[key]}: leave one of them out" for key in keys if key in copies]
    closeness = None
    if not usable:
        judgement = Judgement(outlook=Outlook.BAD, reason="none of its checkpoints can be averaged with the others")
    else:
        closeness = _closeness(usable, _usable(baseline, problems), matrix)
        judgement = judge(closeness, reference=reference)
        if branch is baseline and matrix.centre is None:
            judgement = Judgement(outlook=Outlook.REFERENCE, reason=alone or "the others are compared with it")
        if judgement.outlook in (Outlook.GOOD, Outlook.REFERENCE) and (
            reasons or (verdict is not None and not verdict.admitted)
        ):
            judgement = Judgement(outlook=Outlook.DOUBTFUL, reason=judgement.reason)
    if verdict is not None and not verdict.admitted:
        reasons.append(f"training loss {verdict.loss_gap:+.1%} against the baseline: the screen would reject it")
    elif verdict is not None and verdict.undecided and verdict.noise is not None:
        reasons.append(
            f"training loss {verdict.gap} against the baseline: undecided; {verdict.noise.cure} would decide it"
        )
    return Examined(
        name=branch.name,
        checkpoints=len(keys),
        outlook=judgement.outlook,
        reasons=(judgement.reason, *reasons),
        closeness=closeness,
        verdict=verdict,
    )


def _neurons(
    keys: list[str], others: list[str], matrix: Gram, checkpoints: Mapping[str, Checkpoint], options: Options | None
) -> Matching | None:
    """Of the last checkpoint, with the fork point's or the baseline's last."""
    target = matrix.centre or (others[-1] if others else None)
    if not keys or target is None or target == keys[-1]:
        return None
    with contextlib.suppress(MissingExtraError):  # the doctor works without scipy; `_alike` says what it could not do
        return match_neurons(checkpoints[keys[-1]], checkpoints[target], options=options)
    return None


def _with_neurons(found: Examined, neurons: Matching | None, reference: str) -> Examined:
    """A branch whose units match in another order shares no fork point, whatever the distances say."""
    if neurons is None or neurons.is_identity:
        return replace(found, neurons=neurons)
    reason = f"shares no fork point with {reference}: only {neurons}"
    return replace(found, neurons=neurons, outlook=Outlook.BAD, reasons=(*found.reasons, reason))


def _alike(examined: Sequence[Examined], reference: str) -> list[str]:
    """What there is to say where no branch was found a stranger."""
    if len(examined) > 1 and importlib.util.find_spec("scipy") is None:
        return [f"neurons were not matched, which needs scipy: {install('analysis')}"]
    known = [b.neurons for b in examined if b.neurons is not None]
    if not known or not all(neurons.is_identity for neurons in known):
        return []
    least = min(known, key=lambda neurons: neurons.share)
    return [f"neurons: the identity is the best matching with {reference}; in the branch where it holds least, {least}"]


def _closeness(keys: list[str], others: list[str], matrix: Gram) -> Closeness:
    """Of the last checkpoint to the fork point, or to the baseline's last where no fork point is known."""
    products = matrix.groups.get(MATRICES, matrix.whole)
    raw = products.raw()
    last = matrix.position(keys[-1])
    target = matrix.position(matrix.centre or (others[-1] if others else keys[-1]))
    square = max(raw[last, last] + raw[target, target] - 2 * raw[last, target], 0.0)
    return Closeness(
        cosine=_ratio(raw[last, target], raw[last, last] * raw[target, target]) or 0.0,
        relative_distance=float(np.sqrt(square / max(raw[target, target], np.finfo(float).tiny))),
        displacement_cosine=_displacement_cosine(keys, others, matrix),
    )


def _displacement_cosine(keys: list[str], others: list[str], matrix: Gram) -> float | None:
    """Of the ways both branches went: from the fork point, or from their own first checkpoints."""
    if not others:
        return None
    inner = matrix.groups.get(MATRICES, matrix.whole).inner
    a, b = (matrix.position(group[-1]) for group in (keys, others))
    if matrix.centre is not None:
        return _ratio(inner[a, b], inner[a, a] * inner[b, b])
    a0, b0 = (matrix.position(group[0]) for group in (keys, others))

    def dot(p: int, p0: int, q: int, q0: int) -> float:
        return float(inner[p, q] - inner[p, q0] - inner[p0, q] + inner[p0, q0])

    return _ratio(dot(a, a0, b, b0), dot(a, a0, a, a0) * dot(b, b0, b, b0))


def _ratio(product: float, square: float) -> float | None:
    return float(np.clip(product / np.sqrt(square), -1, 1)) if square > 0 else None


def _copies(matrix: Gram) -> dict[str, str]:
    """Checkpoints whose every weight equals an earlier one's."""
    inner = matrix.whole.inner
    found: dict[str, str] = {}
    for i, key in enumerate(matrix.keys):
        for j in range(i):
            # Between equal rows the products are equal to the last bit, so the difference is exactly zero.
            if inner[i, i] == inner[j, j] == inner[i, j] and key != matrix.centre:
                found[key] = matrix.keys[j]
                break
    return found


def _screen(study: Branches) -> tuple[dict[str, Verdict], list[str]]:
    if len(study.branches) < 2:
        return {}, []
    try:
        verdicts = screen(study.pools(), baseline=study.baseline, tolerance=study.tolerance)
    except ScreenError as error:
        return {}, [f"training losses could not be screened: {error}"]
    return {v.branch: v for v in verdicts}, []
