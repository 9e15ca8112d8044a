"""What `merge` was given: values as they are written, and ingredients that are named. What makes no sense is wrong usage."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from trajsoup.cli.options import RUNS
from trajsoup.core.table import Table
from trajsoup.errors import StudyError

if TYPE_CHECKING:
    from trajsoup.core.soup import Row
    from trajsoup.store.remote import Place

T = TypeVar("T")

AUTO = "auto"
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "float64": "fp64"}
_WEIGHED = re.compile(r"^(?P<path>.+)=(?P<weight>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)$")


def known_in(table: Table[Any]) -> Callable[[str | None], str | None]:
    """Check a name against its table when the command runs: others may have added to it."""

    def check(name: str | None) -> str | None:
        if name is not None and name not in table:
            raise typer.BadParameter(table.unknown(name))
        return name

    return check


def short_dtype(name: str | None) -> str | None:
    """A dtype by its short name."""
    name = _DTYPES.get(name or "", name)
    if name not in (None, *_DTYPES.values()):
        raise typer.BadParameter(f"{name!r} is not bf16, fp16, fp32 or fp64", param_hint="--dtype")
    return name


def given_k(text: str) -> int | None:
    """A number of checkpoints; None where it is to be found."""
    if text == AUTO:
        return None
    if not (text.isdecimal() and len(text) < 10) or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is not a whole number of 1 or more, nor {AUTO}", param_hint="--k")
    return int(text)


def quantity(option: str, text: str | None, parse: Callable[..., T]) -> T | None:
    """The quantity that an option gives."""
    try:
        return None if text is None else parse(text, where=option)
    except StudyError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE as they were written, each name once."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or name in found:
            raise typer.BadParameter(f"{text!r}: write NAME=VALUE, each name once", param_hint="--param")
        found[name] = value
    return found


def named_row(
    context: typer.Context, inputs: Sequence[str], *, normalize: bool, allow_urls: Sequence[str]
) -> tuple[Row, Place | None] | None:
    """The row of ingredients that are all named, and the fork point that a soup file names; None: runs, to choose among."""
    from trajsoup.merge.plan import explicit_row, mean_row
    from trajsoup.merge.soup_file import is_soup_file, load_soup_file
    from trajsoup.store.runs import is_one_checkpoint

    # A run may be called lr=0.1: what exists under its whole name is that.
    weighed = [m for m in map(_WEIGHED.match, inputs) if m and not Path(m[0]).exists()]
    if weighed and len(weighed) < len(inputs):
        raise typer.BadParameter("give every ingredient a weight (CKPT=WEIGHT), or none", param_hint="INPUT")
    listed = len(inputs) == 1 and inputs[0].endswith((".yaml", ".yml")) and is_soup_file(inputs[0])
    choosing = {p.name for p in context.command.params if getattr(p, "rich_help_panel", None) == RUNS}
    # With an option that chooses, a folder of one checkpoint is a run.
    alone = len(inputs) > 1 and not (weighed or _given(context, choosing)) and all(map(is_one_checkpoint, inputs))
    if not (weighed or listed or alone):
        refuse(context, ("normalize",), "divides the weights of named ingredients, and a choice among runs sums to one")
        return None
    refuse(context, choosing, "choose among the checkpoints of runs, and here every ingredient is named")
    if listed:
        return load_soup_file(inputs[0], normalize=normalize, allow_urls=allow_urls)
    if alone:
        return mean_row(inputs), None
    return explicit_row([(m["path"], float(m["weight"])) for m in weighed], normalize=normalize), None


def refuse(context: typer.Context, names: Container[str | None], why: str) -> None:
    """Refuse options that were given and would have no effect."""
    if given := _given(context, names):
        raise typer.BadParameter(f"{why}: leave out {', '.join(given)}", param_hint=given)


def _given(context: typer.Context, names: Container[str | None]) -> list[str]:
    """Those of the options that stand on the command line, as it spells them."""
    sources = {p: context.get_parameter_source(p.name or "") for p in context.command.params if p.name in names}
    return ["/".join([p.opts[0], *p.secondary_opts]) for p, s in sources.items() if s and s.name == "COMMANDLINE"]
