"""Options that several commands share: the same flag has the same name, form and meaning everywhere."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trajsoup.engine.executor import Executor


class Engine(StrEnum):
    """Where tasks run."""

    LOCAL = "local"
    RAY = "ray"


class Form(StrEnum):
    """How tables are printed."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"


RUNS = "of runs"  # the group of what chooses among the checkpoints of runs, and means nothing where all are named
of_runs = functools.partial(typer.Option, rich_help_panel=RUNS)

Study = Annotated[
    Path, typer.Argument(metavar="STUDY", help="The study file (YAML), or the study's folder.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
FORMAT_HELP = "Form of printed tables; of the soup, in `merge`: `same` is a DCP folder as its ingredients are."
FormOption = Annotated[Form, typer.Option("--format", help=FORMAT_HELP)]
Jobs = Annotated[
    int | None,
    typer.Option(help="Branches trained at once. Default: one for each core.", min=1, show_default=False),
]
ForkPoint = Annotated[
    str | None, typer.Option(help="The checkpoint that all runs started from.", metavar="CKPT", show_default=False)
]
TokensPerStep = Annotated[
    int | None, of_runs(help="Tokens in one step, where the logs do not say.", min=1, show_default=False)
]
Metric = Annotated[
    str | None,
    of_runs(help="The validation loss in the logs, where there are several (eval_wiki_loss).", show_default=False),
]
Validation = Annotated[
    list[Path] | None,
    of_runs(
        help="Documents on which merges are scored, for methods that ask; may be repeated. Needs the extra [train].",
        metavar="FILE",
        show_default=False,
    ),
]
AllowUrl = Annotated[
    list[str] | None,
    typer.Option(
        help="A store or folder in one (s3://bucket) that a soup file or soup.json may name; may be repeated.",
        metavar="URL",
        show_default=False,
    ),
]
EngineOption = Annotated[Engine, typer.Option("--engine", help="This machine, or a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option(help="The Ray cluster to join; default: one started on this machine.", show_default=False),
]


def require_torch(what: str) -> None:
    """Refuse before anything is written what needs the extra [train]."""
    from importlib.util import find_spec

    from trajsoup.errors import StudyError, install

    if find_spec("torch") is None or find_spec("transformers") is None:
        raise StudyError(f"{what}, and torch is not installed: {install('train')}")


def study_file(study: Path) -> Path:
    """The study file: the one named, or that of the folder named."""
    if not study.is_dir():
        return study
    from trajsoup.errors import StudyError
    from trajsoup.merge.branches import soups_folder

    folder = study.absolute()
    own = [path for path in (folder / "study.yaml",) if path.is_file()]
    beside = [path for path in sorted(folder.parent.glob("*.yaml")) if soups_folder(path) == folder]  # runs that exist
    found = own or beside or sorted(folder.glob("*.yaml"))
    if len(found) != 1:
        cure = "name the file itself" if found else "name one, or let `trajsoup scan` write one of runs that exist"
        raise StudyError(f"{study} holds {len(found) or 'no'} study file{'s' * (len(found) > 1)}: {cure}")
    return found[0]


def study_folder(study: Path) -> Path:
    """The folder that holds records/: the one named, or the one that the study file writes to."""
    if study.is_dir():
        return study
    from trajsoup.study.file.study import load_study

    return load_study(study).output


@contextlib.contextmanager
def chosen_executor(engine: Engine, address: str | None) -> Iterator[Executor | None]:
    """Yield the executor that the options name; None: the command itself does the work, with its own threads."""
    if engine is Engine.LOCAL:
        if address is not None:
            raise typer.BadParameter("belongs to --engine ray", param_hint="--address")
        yield None
        return
    from trajsoup.engine.ray_executor import ray_executor

    path = os.pathsep.join(p for p in sys.path if p)  # workers must find the package as this process did
    with ray_executor(address=address, environment={"PYTHONPATH": path}) as executor:
        yield executor


@contextlib.contextmanager
def limited_instructions() -> Iterator[None]:
    """Give torch, before it is loaded here, the instructions it may use on this machine; afterwards all is as it was."""
    from trajsoup.lm.cpu_isa import isa_environment
    from trajsoup.study.cache import cache_folder

    wanted = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", **isa_environment(cache=cache_folder())}
    added = {name: value for name, value in wanted.items() if name not in os.environ}  # what the user set stays
    os.environ |= added
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
