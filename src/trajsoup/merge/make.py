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
from trajsoup.store.digest import sha256_file
from trajsoup.store.formats.lora import Lora
from trajsoup.store.fp8 import CONFIG as QUANTIZATION
from trajsoup.store.hub import is_hub, repository_of
from trajsoup.store.publish import publishing
from trajsoup.store.remote import Place, RemotePath, place
from trajsoup.store.upload import uploading

ASIDE = ".aside"  # in the folder of the output, while the weights are made


def make_soup(
    plan: SoupPlan,
    out: Place | str,
    *,
    digest: bool = True,
    options: Options | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Provenance:
    """Blend the plan into a new folder `out`, here or in a store, with all side files, soup.json and a model card.

    With an `executor`, its machines share the work; the bytes are the same.

    >>> make_soup(plan_soup(scan_branches(["runs/a", "runs/b"]), Choice(k=4)), "soup")  # doctest: +SKIP
    """
    out = place(out)
    require_output(plan, out)
    if executor is not None and (what := plan.one_machine):
        raise OutputError(f"{what} is written by one machine: leave out --engine")

    def prepared(records: Path) -> None:
        """Judge and copy the side files; they take their place, and make the folder a model, after the last weight."""
        (records / ASIDE).mkdir()
        write_side_files(provenance_of(plan, {}, {}, digest=False), records / ASIDE)

    def recorded(
        hashes: Mapping[str, tuple[str, ...]],
        files: Mapping[str, str],
        records: Path,
        *,
        requantised: Mapping[str, Any] | None = None,
    ) -> Provenance:
        made = replace(provenance_of(plan, hashes, files, digest=digest), requantised=requantised)
        for checkpoint in plan.checkpoints.values():  # machines that share the work open it each for itself
            checkpoint.require_unchanged()
        for path in (records / ASIDE).iterdir():
            path.rename(records / path.name)
        (records / ASIDE).rmdir()
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
            options=options,
            progress=progress,
        )
        return recorded(hashes, sink.finish(), records, requantised=fp8 and fp8.record())

    if is_hub(out):
        with tempfile.TemporaryDirectory(prefix="trajsoup-") as scratch:
            made = make_soup(
                plan, Path(scratch, "soup"), digest=digest, options=options, executor=executor, progress=progress
            )
            push_soup(Path(scratch, "soup"), repository_of(out))
            return made
    if isinstance(out, RemotePath):
        with uploading(out) as upload, tempfile.TemporaryDirectory(prefix="trajsoup-") as scratch:
            if executor is None:
                made = here(ObjectSink(upload, plan.layout, digest=digest), Path(scratch))
            else:
                upload.expect([file.name for file in plan.layout.files])
                made = together(out, Path(scratch))
            upload.publish(Path(scratch), last=(INDEX, RECORD))
            return made
    with publishing(out, need_bytes=plan.layout.nbytes) as folder:
        if executor is not None:
            return together(folder, folder)
        with FileSink(folder, plan.layout, digest=digest) as sink:
            return here(sink, folder)


def provenance_of(
    plan: SoupPlan, hashes: Mapping[str, tuple[str, ...]], files: Mapping[str, str], *, digest: bool = True
) -> Provenance:
    """What soup.json will say, given the sha256 of ingredients (those not in `hashes` are read again) and of `files`."""
    hashed = functools.cache(sha256_file)  # adapters share their base
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
        policy=policy(first, plan.layout),
        quantization=first.config.get(QUANTIZATION),
        base=first.format.base if isinstance(first.format, Lora) else None,
    )


def _ingredient(
    plan: SoupPlan, key: str, hashes: tuple[str, ...] | None, *, digest: bool, hashed: Callable[[Place], str]
) -> Ingredient:
    checkpoint = plan.checkpoints[key]
    if digest and hashes is None:  # the ingredient's layout differs from the output's: a read of its own
        hashes = tuple(hashed(path) for path in checkpoint.files)
    names = checkpoint.names
    return Ingredient(
        path=key,
        weight=plan.row.weights.get(key, 0.0),
        candidate=plan.candidates.get(key),
        files=dict(zip(names, hashes or [None] * len(names), strict=True)),
    )
