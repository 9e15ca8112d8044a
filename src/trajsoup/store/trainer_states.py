"""Logs of a Hugging Face Trainer: each trainer_state.json repeats the whole history before it, so only what is new is kept.

    files of a run, oldest first -> read before and unchanged? -> else parsed -> points that no earlier file has

Who looks at a run again and again reads each file once: of 2,000 checkpoints all files together hold millions of entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.store.metrics import Entry, Point, read_trainer_state
from trajsoup.store.remote import Place
from trajsoup.store.unchanged import State, state_of

TRAINER_STATE = "trainer_state.json"
Read = list[tuple[Place, State, tuple[Point, ...]]]


class TrainerStates:
    """What the files of runs said, as far as they are as they were."""

    def __init__(self) -> None:
        self._runs: dict[Place, tuple[Read, set[Point]]] = {}
        self._entries: dict[Place, list[Entry]] = {}  # of the file of a run that was read last

    def points(self, files: Sequence[Place], *, run: Place) -> list[Point]:
        """Every point of these files once, in their order. From the first on that is new or changed they are read."""
        read, seen = self._runs.setdefault(run, ([], set()))
        same = 0
        for file, (path, state, _) in zip(files, read, strict=False):
            if path != file or state != state_of(file):
                break
            same += 1
        if same < len(read):
            del read[same:]
            self._entries.pop(run, None)
            seen.clear()
            seen.update(point for _, _, points in read for point in points)
        for file in files[same:]:
            state = state_of(file)
            points, self._entries[run] = read_trainer_state(file, known=self._entries.get(run, ()))
            new = tuple(point for point in dict.fromkeys(points) if point not in seen)
            read.append((file, state, new))
            seen.update(new)
        return [point for _, _, points in read for point in points]
