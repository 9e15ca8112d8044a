"""Do it again when a store stumbles: 5xx, timeouts, dropped connections, answers cut short.

What can never succeed (no such object, no permission, no credentials) is raised at once. Nothing is tried for longer
than a few minutes, by the clock of this process alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from trajsoup.errors import StoreError, TrajsoupError

ATTEMPTS = 8
FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 10.0
PATIENCE_SECONDS = 180.0  # after that no new attempt is made
PERMANENT = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
    ImportError,
    NotImplementedError,
    TrajsoupError,
)
_PERMANENT_NAMES = frozenset({"NoCredentialsError", "PartialCredentialsError", "ParamValidationError"})  # botocore's

Result = TypeVar("Result")


class ShortAnswerError(Exception):
    """A store returned fewer bytes than it was asked for."""


def retrying(
    action: Callable[[], Result],
    *,
    what: str,
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Return what `action` returns, trying again after 0.1 s, 0.2 s, ... with jitter. `what` names it in the error."""
    deadline = clock() + PATIENCE_SECONDS
    for attempt in range(1, attempts + 1):
        try:
            return action()
        except PERMANENT:
            raise
        except Exception as error:  # every store's client has a tree of its own
            if type(error).__name__ in _PERMANENT_NAMES:
                raise StoreError(
                    f"{what} failed: {error}: give the store's credentials, as its own tools read them"
                ) from error
            if attempt == attempts or clock() > deadline:
                raise StoreError(
                    f"{what} failed {attempt} times, the last time with {type(error).__name__}: {error}: check the "
                    "store and the network, then run again"
                ) from error
            delay = min(FIRST_DELAY_SECONDS * 2 ** (attempt - 1), LONGEST_DELAY_SECONDS)
            sleep(delay * random.uniform(0.5, 1.5))  # jitter: many readers must not come back all at once
    raise AssertionError("unreachable")
