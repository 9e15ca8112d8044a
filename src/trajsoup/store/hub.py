"""A folder becomes a repository of the Hugging Face Hub in one commit: whole or not at all.

    hf://user/name -> repository_of -> user/name        folder, user/name -> push_folder -> the address of the model

Reading goes through fsspec like every store (remote.py). Writing does not: files of several gigabytes travel before the
commit that shows them, and huggingface_hub knows how. A commit on top of another deletes nothing, since a repository has
a history; even so, a repository that holds a model is changed only if the user says so.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trajsoup.errors import OutputError, StoreError, install
from trajsoup.store.remote import Place, RemotePath

SCHEME = "hf://"
MESSAGE = "A soup of checkpoints; soup.json lists them"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_OF_EVERY_REPOSITORY = frozenset({".gitattributes", "README.md"})  # what the Hub puts there itself


def is_hub(out: Place) -> bool:
    """Whether a place is on the Hub."""
    return isinstance(out, RemotePath) and out.url.startswith(SCHEME)


def is_repository(text: str) -> bool:
    """Whether a text could be the `user/name` of a model."""
    return _REPOSITORY.fullmatch(text) is not None


def repository_below(path: Place) -> str:
    """The `user/name` that a place on the Hub lies in, whatever its revision."""
    user, name = str(path).removeprefix(SCHEME).split("/")[:2]
    return f"{user}/{name.split('@')[0]}"


def repository_of(text: Place | str) -> str:
    """The `user/name` of an output; a deeper path, a revision or a data set is none."""
    name = str(text).removeprefix(SCHEME)
    if not is_repository(name):
        raise OutputError(f"{text} is no repository of models: write it as user/name, or hf://user/name")
    return name


def require_pushable(repository: str, *, update: bool = False) -> None:
    """Refuse, before any work, a Hub that does not know the user, and a repository that holds a model already."""
    with _translated(repository) as api:
        api.whoami()
        there = set(api.list_repo_files(repository)) if api.repo_exists(repository) else set[str]()
    if (held := there - _OF_EVERY_REPOSITORY) and not update:
        raise OutputError(
            f"{SCHEME}{repository} holds {len(held)} files, and existing output is never replaced: choose another name, or "
            "commit on top of it with `trajsoup push --update`"
        )


def push_folder(
    folder: Path,
    repository: str,
    *,
    private: bool = False,
    update: bool = False,
    instead: Mapping[str, bytes] | None = None,
) -> str:
    """Commit every file of a folder, some with other content; return the model's address."""
    require_pushable(repository, update=update)
    with _translated(repository) as api:
        from huggingface_hub import CommitOperationAdd
        from huggingface_hub.utils import disable_progress_bars

        if not sys.stderr.isatty():
            disable_progress_bars()
        api.create_repo(repository, private=private, exist_ok=True)
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        api.create_commit(
            repository,
            [CommitOperationAdd(name, (instead or {}).get(name, str(folder / name))) for name in names],
            commit_message=MESSAGE,
        )
        return f"{api.endpoint}/{repository}"


@contextlib.contextmanager
def _translated(repository: str) -> Iterator[Any]:
    """The client; what goes wrong with it becomes one message."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled
    except ImportError as error:
        raise StoreError(f"{SCHEME}{repository} needs huggingface_hub: {install('cloud')}") from error
    transport: Any = HfHubHTTPError.__bases__[0]  # of the client that it has: requests, httpx or httpx2
    login = "log in with `hf auth login`, or set HF_TOKEN to a token that may write"
    try:
        yield HfApi(library_name="trajsoup")
    except LocalTokenNotFoundError as error:
        raise StoreError(f"the Hub does not know you: {login}") from error
    except OfflineModeIsEnabled as error:
        raise StoreError(f"cannot reach {SCHEME}{repository}: HF_HUB_OFFLINE is set: unset it") from error
    except HfHubHTTPError as error:
        refused = error.response is not None and error.response.status_code in (401, 403)
        cure = login if refused else "mend that, then run again"
        raise StoreError(f"the Hub refused {repository} ({' '.join(str(error).split()):.300}): {cure}") from error
    except (transport, ConnectionError, RuntimeError, ValueError) as error:
        reason = error.__cause__ or error
        raise StoreError(
            f"pushing to {SCHEME}{repository} failed ({type(reason).__name__}: {' '.join(str(reason).split()):.300}): check "
            "the network, then run again"
        ) from error
