"""Make a planned soup: blend, side files, provenance; here, on many machines, or straight into a store.

SoupPlan --make_soup--> a Hugging Face folder with soup.json; for the Hub a temporary one, which is then pushed
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trajsoup.engine.blend import blend
from trajsoup.engine.executor import Executor
from trajsoup.engine.object_sink import ObjectSink
from trajsoup.engine.requantise import Requantising
from trajsoup.engine.shards import blend_shards
from trajsoup.engine.sinks import FileSink
from trajsoup.engine.workers import Options
from trajsoup.errors import OutputError
from trajsoup.merge.plan import SoupPlan, require_output
from trajsoup.merge.policy import policy
from trajsoup.merge.provenance import RECORD, Ingredient, Provenance, write_record, write_side_files
from trajsoup.merge.published import push_soup
from trajsoup.store.checkpoint import INDEX
from trajsoup.store.digest import Algorithm, digest_file
from trajsoup.store.formats.lora import Lora
from trajsoup.store.fp8 import CONFIG as QUANTIZATION
from trajsoup.store.hub import is_hub, repository_of
from trajsoup.store.known_digests import KnownDigests
from trajsoup.store.publish import publishing
from trajsoup.store.remote import Place, RemotePath, place
from trajsoup.store.upload import uploading

ASIDE = ".aside"  # in the folder of the output, while the weights are made


def make_soup(
    plan: SoupPlan,
    out: Place | str,
    *,
    digest: Algorithm | None = Algorithm.BLAKE3,
    known: KnownDigests | None = None,
    options: Options | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Provenance:
    """Blend the plan into a new folder `out`, here or in a store, with all side files, soup.json and a model card.

    `digest` is how ingredients are hashed; None: neither they nor the output are. What `known` remembers of them is not
    hashed again. With an `executor`, its machines share the work; the bytes are the same.

    >>> make_soup(plan_soup(scan_branches(["runs/a", "runs/b"]), Choice(k=4)), "soup")  # doctest: +SKIP
    """
    out = place(out)
    require_output(plan, out)
    if executor is not None and (what := plan.one_machine):
        raise OutputError(f"{what} is written by one machine: leave out --engine")

    remembered = _remembered(plan, known, digest)

    def prepared(records: Path) -> None:
        """Judge and copy the side files; they take their place, and make the folder a model, after the last weight."""
        (records / ASIDE).mkdir()
        write_side_files(provenance_of(plan, {}, {}, digest=None), records / ASIDE)

    def recorded(
        hashes: Mapping[str, tuple[str, ...]],
        files: Mapping[str, str],
        records: Path,
        *,
        requantised: Mapping[str, Any] | None = None,
    ) -> Provenance:
        made = replace(
            provenance_of(plan, {**remembered, **hashes}, files, digest=digest),
            policy=policy(next(iter(plan.checkpoints.values())), plan.layout),
            requantised=requantised,
        )
        for checkpoint in plan.checkpoints.values():  # machines that share the work open it each for itself
            checkpoint.require_unchanged()
        for path in (records / ASIDE).iterdir():
            path.rename(records / path.name)
        (records / ASIDE).rmdir()
        if known is not None and digest is not None:
            _learn(known, plan, made, digest)
        return write_record(made, records)

    def together(folder: Place, records: Path) -> Provenance:
        assert executor is not None
        prepared(records)
        hashes, files = blend_shards(
            plan.checkpoints,
            plan.row,
            folder,
            layout=plan.layout,
            executor=executor,
            exact_from=plan.exact_from,
            digest=digest,
            options=options,
            progress=progress,
        )
        return recorded(hashes, files, records)

    def here(sink: FileSink | ObjectSink, records: Path) -> Provenance:
        prepared(records)
        wide = plan.layout.wide
        fp8 = None if wide is None else Requantising(sink, plan.layout, accelerate=(options or Options()).accelerate)
        hashes = blend(
            plan.checkpoints,
            [plan.row],
            [fp8 or sink],
            layout=wide or plan.layout,
            exact_from=plan.exact_from,
            digest=digest,
            known=remembered,
            options=options,
            progress=progress,
        )
        return recorded(hashes, sink.finish(), records, requantised=fp8 and fp8.record())

    if is_hub(out):
        with tempfile.TemporaryDirectory(prefix="trajsoup-") as scratch:
            made = make_soup(
                plan,
                Path(scratch, "soup"),
                digest=digest,
                known=known,
                options=options,
                executor=executor,
                progress=progress,
            )
            push_soup(Path(scratch, "soup"), repository_of(out))
            return made
    if isinstance(out, RemotePath):
        with uploading(out) as upload, tempfile.TemporaryDirectory(prefix="trajsoup-") as scratch:
            if executor is None:
                made = here(ObjectSink(upload, plan.layout, digest=digest is not None), Path(scratch))
            else:
                upload.expect([file.name for file in plan.layout.files])
                made = together(out, Path(scratch))
            upload.publish(Path(scratch), last=(INDEX, RECORD))
            return made
    with publishing(out, need_bytes=plan.layout.nbytes) as folder:
        if executor is not None:
            return together(folder, folder)
        with FileSink(folder, plan.layout, digest=digest is not None) as sink:
            return here(sink, folder)


def provenance_of(
    plan: SoupPlan,
    hashes: Mapping[str, tuple[str, ...]],
    files: Mapping[str, str],
    *,
    digest: Algorithm | None = Algorithm.BLAKE3,
) -> Provenance:
    """What soup.json will say, given the digests of ingredients (those not in `hashes` are read again) and of `files`; but
    for what became of which tensors."""
    hashed = functools.cache(digest_file)  # adapters share their base
    ingredients = [
        _ingredient(plan, key, hashes.get(key), digest=digest, hashed=hashed) for key in sorted(plan.checkpoints)
    ]
    first = next(iter(plan.checkpoints.values()))
    return Provenance(
        row=plan.row,
        ingredients=tuple(ingredients),
        files=files,
        layout=plan.layout,
        template=plan.template,
        choice=plan.choice,
        verdicts=plan.verdicts,
        promise=plan.promise,
        exact_from=plan.exact_from,
        names=plan.names,
        state=plan.state,
        quantization=first.config.get(QUANTIZATION),
        base=first.format.base if isinstance(first.format, Lora) else None,
    )


def _remembered(plan: SoupPlan, known: KnownDigests | None, digest: Algorithm | None) -> Mapping[str, tuple[str, ...]]:
    if known is None or digest is None:
        return {}
    found = {key: known.of(checkpoint.files, digest) for key, checkpoint in plan.checkpoints.items()}
    return {key: digests for key, digests in found.items() if digests is not None}


def _learn(known: KnownDigests, plan: SoupPlan, made: Provenance, digest: Algorithm) -> None:
    for ingredient in made.ingredients:
        checkpoint = plan.checkpoints[ingredient.path]
        digests = [found for found in ingredient.files.values() if found is not None]
        known.learn(checkpoint.files, checkpoint.states, digests, digest)
    known.save()


def _ingredient(
    plan: SoupPlan,
    key: str,
    hashes: tuple[str, ...] | None,
    *,
    digest: Algorithm | None,
    hashed: Callable[[Place, Algorithm], str],
) -> Ingredient:
    checkpoint = plan.checkpoints[key]
    if digest is not None and hashes is None:  # the ingredient's layout differs from the output's: a read of its own
        hashes = tuple(hashed(path, digest) for path in checkpoint.files)
    names = checkpoint.names
    return Ingredient(
        path=key,
        weight=plan.row.weights.get(key, 0.0),
        candidate=plan.candidates.get(key),
        files=dict(zip(names, hashes or [None] * len(names), strict=True)),
        algorithm=digest or Algorithm.BLAKE3,
    )
