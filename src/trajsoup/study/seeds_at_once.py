"""Several seeds of one study at once, a process each: pretraining and scoring use one core, so the others would idle.

    seeds -> SeedTask -> worker process: every stage of that seed -> events through a socket -> the caller's callbacks

Seeds share nothing but the cache, so the records are those of one seed after the other.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajsoup.engine.executor import LocalExecutor
from trajsoup.study.file.study import Setup, with_seed
from trajsoup.study.records.files import Records
from trajsoup.study.score.scorer import OnScore
from trajsoup.study.train.branches import OnProgress, Stage
from trajsoup.study.train.outcomes import Progress
from trajsoup.study.workbench import Workbench

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus

OnStage = Callable[[str, int | None], None]  # stage, seed
RunOne = Callable[..., list[str]]  # run.run_one; passed in, since run.py imports this file


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedTask:
    """One seed, for one worker."""

    setup: Setup
    seed: int
    jobs: int
    threads: int
    cache: Path
    corpus: Corpus | None  # None: that of the study
    events: str  # address of the socket that takes them
    run: RunOne


def run_seeds(
    setup: Setup,
    seeds: Sequence[int],
    *,
    run: RunOne,
    jobs: int,
    at_once: int,
    cache: Path,
    corpus: Corpus | None,
    on_stage: OnStage,
    on_train: OnProgress | None,
    on_score: OnScore,
) -> list[str]:
    """Run so many of these seeds at once, each with its share of `jobs` branches, or one; return the records made."""
    trained: dict[int, Sequence[Progress]] = {}

    def take(kind: str, seed: int, *what: Any) -> None:
        if kind == "stage":
            on_stage(what[0], seed)
        elif kind == "score":
            on_score(f"seed {seed}, {what[0]}", *what[1:])
        elif on_train is not None:
            stage, progress = what
            trained[seed] = [replace(p, branch=f"seed {seed} {p.branch}") for p in progress]
            on_train(stage, [p for s in sorted(trained) for p in trained[s]])

    with _listening(take) as address, LocalExecutor(at_once) as executor:
        tasks = [
            SeedTask(
                setup=setup,
                seed=seed,
                jobs=max(jobs // at_once, 1),
                threads=max(len(os.sched_getaffinity(0)) // at_once, 1),
                cache=cache,
                corpus=corpus,
                events=address,
                run=run,
            )
            for seed in seeds
        ]
        return [name for made in executor.map(run_seed, tasks, attempts=1) for name in made]


def run_seed(task: SeedTask) -> list[str]:
    """Every stage of one seed, in a worker."""
    os.environ.setdefault("OMP_NUM_THREADS", str(task.threads))  # read when torch is first imported, later than here
    with Client(task.events, "AF_UNIX") as events:

        def on_train(stage: Stage, progress: Sequence[Progress]) -> None:
            events.send(("train", task.seed, stage, list(progress)))

        setup = with_seed(task.setup, task.seed)
        bench = Workbench(
            setup,
            cache=task.cache,
            corpus=task.corpus,
            progress=lambda what, done, total: events.send(("score", task.seed, what, done, total)),
            records=Records(setup.output, held=True),  # by the process that started this one
            jobs=task.jobs,
            on_train=on_train,
        )
        return task.run(bench, on_stage=lambda stage, seed: events.send(("stage", task.seed, stage)))


@contextmanager
def _listening(take: Callable[..., None]) -> Iterator[str]:
    """Receive events of the workers in a thread; everything sent before a worker's task ended is taken before the exit."""
    with tempfile.TemporaryDirectory() as folder, Listener(str(Path(folder) / "events"), "AF_UNIX") as listener:
        ended = threading.Event()

        def accept() -> None:
            while not ended.is_set():
                connection = listener.accept()
                threading.Thread(target=receive, args=(connection,), daemon=True).start()

        one_at_a_time = threading.Lock()

        def receive(connection: Any) -> None:
            try:
                while True:
                    event = connection.recv()
                    with one_at_a_time:
                        take(*event)
            except (EOFError, OSError):
                connection.close()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield str(listener.address)
        finally:
            ended.set()
            with Client(str(listener.address), "AF_UNIX"):  # wakes `accept`
                accepting.join(timeout=5)
