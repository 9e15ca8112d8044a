"""Whether a branch still does something: its metrics or its log grow. Sizes are compared, never times of files."""

from __future__ import annotations

import time

from trajsoup.study.train.outcomes import METRICS, outcome_of
from trajsoup.study.train.processes import BranchProcess, Outcome, Status


class LifeSigns:
    """Watches one process of a branch from its start."""

    def __init__(self, process: BranchProcess) -> None:
        self.process = process
        self._seen = self._sizes()
        self._since = time.monotonic()
        self._stalled = False

    def stalled(self) -> bool:
        """Whether it has been silent for longer than the study allows."""
        limit = self.process.stalled_after
        if limit is None:
            return False
        sizes, now = self._sizes(), time.monotonic()
        if sizes != self._seen:
            self._seen, self._since = sizes, now
        self._stalled = now - self._since >= limit
        return self._stalled

    @property
    def words(self) -> str:
        """Why it was ended."""
        return f"branch {self.process.branch!r} gave no sign of life for {self.process.stalled_after:g} s"

    def outcome(self, *, code: int) -> Outcome:
        """How the process ended."""
        found = outcome_of(self.process, code=code)
        if not self._stalled or found.status is not Status.FAILED:
            return found
        return Outcome(
            branch=found.branch,
            status=Status.FAILED,
            tokens=found.tokens,
            message=f"{self.words} and was ended: see {self.process.log}, then run the same command to resume",
        )

    def _sizes(self) -> tuple[int, ...]:
        paths = (self.process.folder / METRICS, self.process.log)
        return tuple(path.stat().st_size if path.exists() else 0 for path in paths)
