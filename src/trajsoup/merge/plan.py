"""What a soup will be made of, before a weight is read: everything that can be known and refused.

Branches, Choice --plan_soup--> SoupPlan        a row of W --plan_row--> SoupPlan        (make.py makes it)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trajsoup.core.gram import Gram
from trajsoup.core.methods.asking import Descending, Measure, Promise, Scoring
from trajsoup.core.pool import Candidate, Unit
from trajsoup.core.quantity import format_bytes
from trajsoup.core.screening import Verdict
from trajsoup.core.soup import Row
from trajsoup.core.tensor_groups import PARTS
from trajsoup.engine.gram import gram
from trajsoup.engine.layout import Layout, make_layout, same_layout
from trajsoup.errors import BlendError, OutputError
from trajsoup.merge.branches import Branches
from trajsoup.merge.choice import Choice, decide, row_of
from trajsoup.merge.provenance import unread_card
from trajsoup.merge.unscored import with_what_is_known
from trajsoup.store.checkpoint import Checkpoint, missing_code, open_checkpoint, renamed, require_same, same_dtypes
from trajsoup.store.digest import Algorithm, digest_file, sample_digest
from trajsoup.store.formats import Format
from trajsoup.store.formats.lora import Lora, base_of
from trajsoup.store.hub import is_hub, repository_of, require_pushable
from trajsoup.store.names import NameMap, load_rules, name_map
from trajsoup.store.publish import require_free
from trajsoup.store.remote import Place, RemotePath, absolute, place
from trajsoup.store.source import DIRECT_READ_BYTES, PAGE, aligned_buffer, is_warm, open_source
from trajsoup.store.upload import require_absent

OPEN_REQUESTS = 16
LISTED = 8  # files in a note
DTYPES = {"bf16": "BF16", "fp16": "F16", "fp32": "F32", "fp64": "F64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputForm:
    """How a soup is written. What is left out is as in the ingredients."""

    dtype: str | None = None  # of floating tensors: a key of DTYPES
    shard_bytes: int | None = None
    exact_from: Place | str | None = None  # the checkpoint of integer tensors, where they differ
    like: Place | str | None = None  # a Hugging Face folder whose names, config and tokenizer the soup gets
    names: Path | None = None  # a file of rules for the names, where the frameworks known here are not enough
    same_format: bool = False  # a torch DCP folder
    state_from: Place | str | None = None  # of which it has the optimizer and all other state
    lora: bool = False  # the ingredients are adapters of the fork point, or of the base that they name: a full model


AS_INGREDIENTS = OutputForm()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SoupPlan:
    """A row of W with its opened ingredients: checked, ready to blend."""

    row: Row
    checkpoints: Mapping[str, Checkpoint]
    candidates: Mapping[str, Candidate]  # what is known of ingredients that came from a study
    layout: Layout
    template: Checkpoint  # where layout and side files come from
    choice: Choice | None = None  # None for explicit ingredients
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    promise: Promise | None = None  # of a method that predicts what its weights gain
    exact_from: str | None = None
    names: NameMap | None = None  # how the ingredients' names became the soup's
    state: Checkpoint | None = None  # whose optimizer and other state of the trainer the soup gets

    def __repr__(self) -> str:
        size = format_bytes(self.layout.nbytes)
        return f"<SoupPlan {self.row.name!r}: {len(self.checkpoints)} checkpoints, {size} out, {len(self.notes)} notes>"

    @property
    def unit(self) -> Unit:
        """What the positions of the candidates are counted in."""
        return next((c.unit for c in self.candidates.values()), Unit.TOKENS)

    @property
    def one_machine(self) -> str | None:
        """What of the output asks for one machine and a file system; None: nothing does."""
        fp8 = "FP8 (not --dtype bf16)" if self.layout.wide is not None else None
        return "--format same" if self.layout.listing is not None else fp8

    @property
    def read_bytes(self) -> int:
        """Bytes that the blend will read."""
        return sum(checkpoint.nbytes for checkpoint in self.checkpoints.values())


def plan_soup(
    study: Branches,
    choice: Choice,
    *,
    form: OutputForm = AS_INGREDIENTS,
    scoring: Scoring | None = None,
    descending: Descending | None = None,
) -> SoupPlan:
    """Choose, open and check everything that a soup from a study needs.

    `scoring` answers methods that ask for scores, `descending` those that ask for gradients.

    >>> plan_soup(scan_branches(["runs/a", "runs/b"]), Choice(k=4)).row.weights  # doctest: +SKIP
    """
    study, choice, said = with_what_is_known(study, choice, scoring=scoring)
    candidates = {c.key: c for pool in study.pools() for c in pool.candidates}
    measuring = partial(measure, format=adapters_of(candidates, study.fork_point) if form.lora else None)
    decision, verdicts, notes = decide(study, choice, scoring=scoring, measuring=measuring, descending=descending)
    row = row_of(decision, choice)
    if choice.takes_k and choice.k is None:
        choice = replace(choice, k=decision.option.k)
    plan = plan_row(row, candidates=candidates, fork_point=study.fork_point, form=form)
    notes = (*study.notes, *said, *notes, *plan.notes)
    return replace(plan, choice=choice, verdicts=verdicts, notes=notes, promise=decision.promise)


def measure(request: Measure, *, format: Format | None = None) -> Gram:
    """Answer a method that asks for products of checkpoints: one read of them, here."""
    checkpoints = _open_all(request.keys, format)
    first = next(iter(checkpoints.values()))
    for checkpoint in checkpoints.values():
        require_same(first, checkpoint)
    parts = None if request.parts is None else PARTS[request.parts]
    found = gram(checkpoints, centre=request.centre, groups=parts)
    if found.nonfinite:
        wrong = found.nonfinite[0]
        raise BlendError(f"{wrong.key}: tensor {wrong.tensor!r} holds NaN or Inf: leave this checkpoint out")
    return found


def plan_row(
    row: Row,
    *,
    candidates: Mapping[str, Candidate] | None = None,
    fork_point: Place | str | None = None,
    form: OutputForm = AS_INGREDIENTS,
) -> SoupPlan:
    """Open and check the ingredients of an explicit row, whose keys are paths.

    Layout and side files come from the fork point, or else from the first ingredient.

    >>> plan_row(explicit_row({"a": 0.5, "b": 0.5}), form=OutputForm(dtype="bf16")).layout  # doctest: +SKIP
    """
    row.require_sum_one()
    if form.lora and (form.same_format or form.like is not None or form.names is not None):
        raise BlendError("--lora merge makes a model as its base is: leave out --format, --like and --names")
    adapters = adapters_of(row.weights, fork_point) if form.lora else None
    if adapters is not None:
        fork_point = adapters.base
    opened = _open_all(row.weights, adapters)
    source = None if form.exact_from is None else absolute(form.exact_from)
    if source is not None and source not in opened:
        opened[source] = open_checkpoint(source, format=adapters)
    mapping = _name_map(next(iter(opened.values())), form)
    checkpoints = {key: renamed(checkpoint, mapping) for key, checkpoint in opened.items()}
    first = next(iter(checkpoints.values()))
    if form.like is not None:
        template = open_checkpoint(form.like)
    else:
        template = first if fork_point is None else renamed(open_checkpoint(fork_point), mapping)
    require_same(template, first, dtypes=False)
    for checkpoint in checkpoints.values():
        require_same(first, checkpoint)
    if row.mean_of is None:  # of sums, what is left over may be nothing in several of them
        _refuse_copies({key: checkpoints[key] for key in row.weights})
    used = {row.group_of(name, tensor.shape) for name, tensor in first.tensors.items()} if row.groups else set()
    if idle := [group for group in row.groups or {} if group not in used]:
        raise BlendError(
            f"soup {row.name!r} has weights for {idle[0]!r}, and no tensor of {first.path} is in that group"
        )
    state = None if form.state_from is None else open_checkpoint(form.state_from)
    if state is not None:
        require_same(first, state, dtypes=False)
    return SoupPlan(
        row=row,
        checkpoints=checkpoints,
        candidates={key: c for key, c in (candidates or {}).items() if key in row.weights},
        layout=_layout(template if form.lora or same_dtypes(template, first) else first, first, state, form),
        template=first if form.same_format else template,
        state=state,
        notes=tuple(_warnings(template, lora=form.lora)),
        exact_from=source,
        names=mapping,
    )


def adapters_of(keys: Iterable[str], fork_point: Place | str | None) -> Lora:
    """How to open adapters: merged into the fork point, or into the base that all of them name."""
    return Lora(absolute(fork_point if fork_point is not None else _base(keys)))


def _base(adapters: Iterable[str]) -> str:
    found = {base_of(place(path)): path for path in adapters}
    if len(found) > 1:
        one, other, *_ = found.items()
        raise BlendError(
            f"{one[1]} is an adapter of {one[0]}, {other[1]} of {other[0]}: name the base with --fork-point"
        )
    return next(iter(found))


def _layout(chosen: Checkpoint, first: Checkpoint, state: Checkpoint | None, form: OutputForm) -> Layout:
    kind = None if form.dtype is None else DTYPES[form.dtype]
    if form.same_format and kind is None and any(tensor.made is not None for tensor in first.tensors.values()):
        raise BlendError(f"{first.path} is FP8, and --format same writes no scales: pass --dtype bf16")
    if form.same_format:
        return same_layout(first, dtype=kind, shard_bytes=form.shard_bytes, state_from=state)
    return make_layout(chosen, dtype=kind, shard_bytes=form.shard_bytes, requantise=kind is None)


def _name_map(first: Checkpoint, form: OutputForm) -> NameMap | None:
    rules = None if form.names is None else load_rules(form.names)
    if form.like is None:
        return None if rules is None else NameMap(name=str(form.names), rules=rules)
    folder = open_checkpoint(form.like)
    return name_map(first, folder, folder.config, rules=rules, where=str(first.path))


def _warnings(template: Checkpoint, *, lora: bool) -> list[str]:
    told = "that the ingredients share a fork point is taken on trust: `trajsoup doctor` checks it"
    found = [] if lora else [told]  # adapters have one base
    if not (template.folder / "config.json").is_file():
        found.append(
            f"{template.folder} has no config.json, so the output is weights alone: pass --fork-point with a model "
            "folder, or --like with one of other names"
        )
    found += [
        f"config.json of {template.folder} names {file}, which is not there, so the output will not load as it is: put the "
        "file into it"
        for file in missing_code(template)
    ]
    if (wrong := unread_card(template.folder)) is not None:
        found.append(f"the licence of {template.folder} is not carried over: {wrong}")
    left = template.left_behind()
    if left:
        more = f", and {len(left) - LISTED} more" if len(left) > LISTED else ""
        found.append(f"left out of the output: {', '.join(left[:LISTED])}{more}")
    return found


def _open_all(keys: Iterable[str], format: Format | None = None) -> dict[str, Checkpoint]:
    """Open every ingredient; those in a store at once, for each costs several round trips."""
    keys = list(keys)
    if not any(isinstance(place(key), RemotePath) for key in keys):
        return {key: open_checkpoint(key, format=format) for key in keys}
    with ThreadPoolExecutor(OPEN_REQUESTS) as pool:
        return dict(zip(keys, pool.map(partial(open_checkpoint, format=format), keys), strict=True))


def mean_row(paths: Sequence[Place | str]) -> Row:
    """The plain mean of some checkpoints."""
    return replace(explicit_row([(path, 1 / len(paths)) for path in paths]), name="mean")


def explicit_row(weights: Mapping[str, float] | Sequence[tuple[Place | str, float]], *, normalize: bool = False) -> Row:
    """A row from paths and weights as the user gave them; a path given twice is refused.

    >>> explicit_row({"runs/a/checkpoint-40": 0.7, "runs/b/checkpoint-40": 0.3})  # doctest: +SKIP
    """
    pairs: list[tuple[Place | str, float]] = [*(weights.items() if isinstance(weights, Mapping) else weights)]
    found: dict[str, float] = {}
    real: set[Place] = set()
    for path, weight in pairs:
        key = absolute(path)
        if (target := place(key).resolve()) in real:
            raise BlendError(f"{path} is given twice: name each ingredient once, with the weight it should have in all")
        real.add(target)
        found[key] = float(weight)
    row = Row(name="explicit", weights=found)
    return row.normalized() if normalize else row


def require_output(plan: SoupPlan, out: Place | str) -> None:
    """Refuse an output that exists, overlaps an ingredient or the fork point, or does not fit the disk."""
    out = place(out)
    if is_hub(out):
        require_pushable(repository_of(out))
        return
    inputs = [*(checkpoint.path for checkpoint in plan.checkpoints.values()), plan.template.path]
    if isinstance(out, RemotePath):
        if what := plan.one_machine:
            raise OutputError(f"{what} writes to a file system, and {out} is in a store: copy the folder there after")
        place_of_out = out.resolve()
        for path in inputs:
            if isinstance(path, RemotePath) and path.resolve() in (place_of_out, *place_of_out.parents):
                raise OutputError(f"{out} lies inside the input {path}: choose an --output outside every input")
        require_absent(out)
        return
    require_free(out, need_bytes=plan.layout.nbytes, inputs=[path for path in inputs if isinstance(path, Path)])


def _refuse_copies(checkpoints: Mapping[str, Checkpoint]) -> None:
    """Refuse two ingredients with the same bytes: a checkpoint must not count twice. Reads a sample, hashes suspects."""
    alike: dict[str, list[str]] = {}
    for key, checkpoint in checkpoints.items():
        alike.setdefault("".join(sample_digest(path) for path in checkpoint.files), []).append(key)
    for suspects in alike.values():
        seen: dict[tuple[str, ...], str] = {}
        for key in suspects if len(suspects) > 1 else ():
            whole = tuple(digest_file(path, Algorithm.BLAKE3) for path in checkpoints[key].files)
            if (other := seen.setdefault(whole, key)) != key:
                raise BlendError(f"{other} and {key} are the same checkpoint: leave one of them out")


def read_rate(plan: SoupPlan, *, sample_bytes: int = 64 << 20) -> float:
    """Bytes per second of a short read of one ingredient, the way the blend would read it. For an estimate only."""
    path = max((p for c in plan.checkpoints.values() for p in c.files), key=lambda p: p.stat().st_size)
    amount = min(sample_bytes, path.stat().st_size)
    buffer = aligned_buffer(DIRECT_READ_BYTES + 2 * PAGE)
    with open_source(path, direct=not is_warm([path])) as source:
        begin = time.perf_counter()
        for offset in range(0, amount, DIRECT_READ_BYTES):
            source.read(buffer, offset=offset, nbytes=min(DIRECT_READ_BYTES, amount - offset))
        return amount / max(time.perf_counter() - begin, 1e-6)
