"""`trajsoup serve`: the report as a page that follows a running study."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from trajsoup.cli.console import say, show_json
from trajsoup.cli.options import Json, Study, study_folder


def serve(
    study: Study,
    host: Annotated[str, typer.Option(help="Address to bind. Other than this machine's own, a token is asked for.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to bind.", min=1, max=65535)] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TRAJSOUP_TOKEN",
            help="Ask for this token. Default: none on this machine, a new one elsewhere.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the report live while branches train: read-only, on this machine only unless told otherwise."""
    import secrets

    from trajsoup.errors import ReportError
    from trajsoup.report.serve import is_loopback, listening, run_server
    from trajsoup.report.writing import NEEDED, SERVING, require_libraries
    from trajsoup.study.records.files import FOLDER

    require_libraries((*NEEDED, *SERVING))
    folder = study_folder(study)
    if not (folder / FOLDER).is_dir():
        raise ReportError(f"{folder} holds no {FOLDER}/ yet: start `trajsoup run` on the study, then serve it")
    if token == "":
        raise ReportError("the token is empty: pass --token TEXT, or leave the option out")
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    address = address if token is None else f"{address}?token={token}"
    with listening(host, port) as bound:
        if as_json:
            show_json({"address": address, "study": folder})
        else:
            say(address)
        with contextlib.suppress(KeyboardInterrupt):  # how one stops it
            run_server(folder, bound=bound, host=host, token=token)
