"""What the stages of one study work with, made when first needed: a rerun that finds all records loads none of it.

Setup -> corpus, fork point, checkpoints, pools (from the train and validation records), scorer
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.core.methods.asking import Descend, Descending, Measure, Scoring, Slope
from trajsoup.core.pool import Candidate, Pool, Unit
from trajsoup.core.screening import smoothed
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.core.tensor_groups import PARTS
from trajsoup.engine.executor import Executor
from trajsoup.engine.workers import Options
from trajsoup.errors import StudyError
from trajsoup.lm.corpus import Corpus, load_corpus
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint, same_dtypes, side_files_here
from trajsoup.store.identity import IDENTITIES, Identities
from trajsoup.store.remote import Place, is_url, place
from trajsoup.store.resident import ResidentFiles
from trajsoup.study.choosing.entries import Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.file.keep import leaves_out
from trajsoup.study.file.lm_eval import require_tasks
from trajsoup.study.file.study import ForeignStudy, Setup, Study
from trajsoup.study.records.files import Records
from trajsoup.study.records.retention import RetentionRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.train import TrainedBranch, TrainRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.score.scorer import FORK_POINT, OnScore, Scorer, make_scorer
from trajsoup.study.sweeps.table import Sweep, sweep_entries
from trajsoup.study.train.branches import OnProgress
from trajsoup.study.train.data import load_data
from trajsoup.study.train.deleted import read_deleted
from trajsoup.study.train.plan import Plan, on_corpus, plan_study
from trajsoup.study.train.processes import Status
from trajsoup.study.train.sums import RunningSum, as_present, open_parts, read_sums

if TYPE_CHECKING:
    from trajsoup.core.gram import Gram

SCORES = "scores"
RESIDENT_BYTES = 1 << 30  # checkpoints held in memory from the first read on; a larger pool is read by every pass


class Workbench:
    """Not a record: live things, of one process."""

    def __init__(
        self,
        setup: Setup,
        *,
        cache: Path,
        progress: OnScore,
        corpus: Corpus | None = None,
        executor: Executor | None = None,
        records: Records | None = None,
        jobs: int | None = None,
        on_train: OnProgress | None = None,
    ) -> None:
        self.setup, self.cache, self.progress, self.executor = setup, cache, progress, executor
        self.records = Records(setup.output) if records is None else records
        self.jobs, self.on_train = jobs, on_train
        self._given_corpus = corpus
        self._measured: dict[Measure, Gram] = {}
        resident = ResidentFiles(limit_bytes=RESIDENT_BYTES) if executor is None else None  # machines share no memory
        self.options = Options(resident=resident)

    @functools.cached_property
    def corpus(self) -> Corpus:
        """The documents, tokenised or from the cache."""
        if self._given_corpus is not None:
            return self._given_corpus
        if isinstance(self.setup, Study):
            corpus = load_data(self.setup, cache=self.cache)
            assert corpus is not None
            return corpus
        assert isinstance(self.setup, ForeignStudy)
        runs, spec = self.setup.runs, self.setup.corpus
        assert spec is not None
        first = runs.fork_point or runs.branches[0].checkpoints[0].path
        if spec.tokenizer is None and (first / "tokenizer.json").is_file():
            spec = replace(spec, tokenizer=side_files_here(open_checkpoint(first), self.setup.output / "tokenizer"))
        return load_corpus(spec, cache=self.cache)

    @property
    def has_probe(self) -> bool:
        """Whether there are training documents to compare branches on; else the screen takes what the runs logged."""
        return self.setup.corpus is None or self.setup.corpus.can_train

    @functools.cached_property
    def plan(self) -> Plan | None:
        """Of a study that trains. One that cannot be planned is refused before its corpus is tokenised."""
        if not isinstance(self.setup, Study):
            return None
        plan = plan_study(self.setup)
        return on_corpus(plan, self.corpus)

    @functools.cached_property
    def train(self) -> TrainRecord:
        """The record of the trained or found branches."""
        return self.records.require(TrainRecord)

    @functools.cached_property
    def checkpoints(self) -> Mapping[str, Checkpoint]:
        """Every checkpoint of every branch, opened, the sums of those that are gone, and the fork point if it is known."""
        keys = [c.key for run in self.train.runs for c in run.checkpoints if c.key not in self.gone]
        self._require_unpruned(keys)
        found = {key: open_checkpoint(self.place(key)) for key in keys}
        for one in self.sums:
            found |= open_parts(one, self.setup.output)
        fork_point = self.fork_point
        return found if fork_point is None else {**found, FORK_POINT: open_checkpoint(fork_point)}

    @functools.cached_property
    def gone(self) -> Mapping[str, str]:
        """Checkpoints that `keep: needed` has deleted: key -> identity, under which their own scores are known."""
        return {key: one.sha256 for key, one in read_deleted(self.setup.output).items()}

    @functools.cached_property
    def sums(self) -> tuple[RunningSum, ...]:
        """What `keep: needed` has kept of them for the Full Soup."""
        return read_sums(self.setup.output)

    def present(self, row: Row) -> Row:
        """The row as what lies there makes it: as it is, or the same mean over sums."""
        return as_present(row, gone=self.gone, sums=self.sums)

    @functools.cached_property
    def fork_point(self) -> Place | None:
        """Its folder. Of existing runs that went on in another float type it is none: it cannot be subtracted or streamed."""
        if isinstance(self.setup, ForeignStudy):
            runs = self.setup.runs
            if runs.fork_point is None:
                return None
            fork, first = open_checkpoint(runs.fork_point), open_checkpoint(runs.branches[0].checkpoints[0].path)
            return runs.fork_point if same_dtypes(fork, first) else None
        link = self.setup.output / FORK_POINT
        return link if link.exists() else None

    @property
    def model_source(self) -> Checkpoint:
        """What a live model is built from, before rows are streamed into it: the fork point, or else some checkpoint."""
        return self.checkpoints.get(FORK_POINT) or next(iter(self.checkpoints.values()))

    @functools.cached_property
    def identities(self) -> Identities:
        """Content hashes of the checkpoints."""
        return Identities(self.setup.output / IDENTITIES, resident=self.options.resident)

    @functools.cached_property
    def scorer(self) -> Scorer:
        """Scores rows of this study."""
        return make_scorer(
            self.corpus,
            self.checkpoints,
            model_source=self.model_source,
            folder=self.setup.output / SCORES,
            evaluation=self.setup.evaluation,
            base=self.setup.path.parent,
            progress=self.progress,
            executor=self.executor,
            options=self.options,
            gone=self.gone,
            sums=self.sums,
        )

    def require_tasks(self) -> None:
        """Refuse lm-eval tasks that cannot run here, before anything is trained or scored."""
        if self.setup.evaluation.lm_eval is not None:
            require_tasks(self.setup.evaluation.lm_eval, base=self.setup.path.parent)

    def gram(self, keys: Sequence[str], *, centre: str | None) -> Gram:
        """The Gram matrix of these checkpoints, from what the study has kept as far as that goes."""
        from trajsoup.engine.kept_gram import FILE, kept_gram

        self._require_there(keys)
        hashes = {c.key: c.sha256 for run in self.train.runs for c in run.checkpoints}
        if self.train.fork_point is not None:
            hashes[FORK_POINT] = self.train.fork_point
        return kept_gram(
            {key: self.checkpoints[key] for key in keys},
            hashes=hashes,
            centre=centre,
            path=self.setup.output / FILE,
            options=self.options,
            executor=self.executor,
        )

    def place(self, key: str) -> Place:
        """Where a checkpoint lies: below or beside the study, or in an object store."""
        return place(key) if is_url(key) else Path(os.path.normpath(self.setup.output / key))

    def _require_unpruned(self, keys: Sequence[str]) -> None:
        record: RetentionRecord | None = self.records.read(RetentionRecord)
        gone = () if record is None else [k for k in record.pruned if k in keys and not self.place(k).exists()]
        if gone:
            raise StudyError(
                f"{gone[0]} and {len(gone) - 1} other checkpoints were pruned by the study's retention, and this needs them "
                "all: put them back, or train the study again in another `output`"
            )

    def _require_there(self, keys: Sequence[str]) -> None:
        if gone := [key for key in keys if key in self.gone]:
            raise StudyError(
                f"{gone[0]} and {len(gone) - 1} other checkpoints were deleted by the study's `keep: needed`, and geometry "
                "needs them all: train the study again in another `output`, with `keep: all`"
            )

    def bare_pools(self) -> tuple[Pool, ...]:
        """The candidates of every branch that has some, without scores."""
        unit = self.setup.runs.unit if isinstance(self.setup, ForeignStudy) else Unit.TOKENS

        def candidates(run: TrainedBranch) -> tuple[Candidate, ...]:
            return tuple(Candidate(key=c.key, branch=run.branch, tokens=c.tokens, unit=unit) for c in run.checkpoints)

        finished = [run for run in self.train.apart if run.status == Status.FINISHED.value]
        return tuple(
            Pool(
                branch=branch.branch,
                candidates=candidates(branch),
                apart={
                    run.apart_for: candidates(run) for run in finished if run.apart_for and run.branch == branch.branch
                },
            )
            for branch in self.train.branches
            if branch.checkpoints
        )

    def pools(self) -> tuple[Pool, ...]:
        """The candidates with their validation scores and the training loss: the probe's, or what the runs logged."""
        record: ValidationRecord = self.records.require(ValidationRecord)
        known = {c.key: c for c in record.scored}
        nan = float("nan")
        foreign = self.setup.runs.pools() if isinstance(self.setup, ForeignStudy) else ()
        logged = {(c.branch, c.tokens): c for pool in foreign for c in pool.candidates}

        def scored(candidate: Candidate) -> Candidate:
            c = known[candidate.key]
            candidate = replace(candidate, val_loss=nan if c.loss is None else c.loss, accuracy=c.accuracy)
            if self.has_probe:
                return replace(candidate, train_loss=c.probe_loss, train_pieces=c.probe_pieces)
            own = logged[c.branch, c.tokens]
            return replace(
                candidate, train_loss=own.train_loss, train_error=own.train_error, window_tokens=own.window_tokens
            )

        pools = tuple(pool.over(lambda found: tuple(map(scored, found))) for pool in self.bare_pools())
        return tuple(pool.over(smoothed) for pool in pools) if self.has_probe else pools

    def field(self) -> Field:
        """What entries are made of."""
        screen: ScreenRecord = self.records.require(ScreenRecord)
        evaluation = self.setup.evaluation
        return Field(
            pools=self.pools(),
            admitted=tuple(v.branch for v in screen.verdicts if v.admitted),
            admitted_early={at.horizon: at.admitted for at in screen.early},
            baseline=screen.baseline,
            ks=evaluation.ks,
            n_horizons=evaluation.horizons,
            rank_by=evaluation.rank_by,
            fork_point=None if self.fork_point is None else FORK_POINT,
            methods=evaluation.methods,
            leaves_out=leaves_out(self.setup),
        )

    @functools.cached_property
    def _entries(self) -> dict[Sweep, tuple[Entry, ...]]:
        return {}

    def entries(self, asked: Sweep) -> tuple[Entry, ...]:
        """The entries of a sweep, made once: choosing, scoring and the record take the same."""
        if asked not in self._entries:
            self._entries[asked] = sweep_entries(self.field(), asked)
        return self._entries[asked]

    def measure(self, request: Measure) -> Gram:
        """Answer methods that ask for products of checkpoints; the same question is answered once."""
        if request not in self._measured:
            from trajsoup.engine.gram import gram

            self._require_there(request.keys)
            self._measured[request] = gram(
                {key: self.checkpoints[key] for key in request.keys},
                centre=request.centre,
                groups=None if request.parts is None else PARTS[request.parts],
                options=self.options,
                executor=self.executor,
            )
        return self._measured[request]

    def descend(self, request: Descend) -> Slope:
        """Answer methods that ask for gradients: on the validation documents that are scored, or on training ones."""
        return self._slopes(request)

    @functools.cached_property
    def _slopes(self) -> Descending:
        from trajsoup.lm.slopes import Slopes

        return Slopes(
            checkpoints=self.checkpoints,
            source=self.model_source,
            tokens={
                Split.VALIDATION: self.scorer.corpus.validation,
                **({Split.TRAIN: self.corpus.train} if self.has_probe else {}),
            },
            window=self.scorer.settings.validation.window,
            options=self.options,
            progress=lambda answered: self.progress("gradients", answered, None),
        )

    def scoring(self, what: str) -> Scoring:
        """Who answers the methods: one read of the checkpoints for all rows that are asked for together.

        By accuracy only where that chooses: the tasks cost more than the loss, and chosen rows are scored on test by both.
        """
        tasks = self.setup.evaluation.rank_by is Signal.ACCURACY
        return lambda rows: self.scorer.validate(rows, what=what, tasks=tasks)
