"""`retention` in a study file: what stays on disk once a seed of the study is answered.

    validation, rows, soup.json + policy -> core/retention.py -> keys to prune -> deleted, named in the record

Off by default, and only for checkpoints that the study trained itself: runs that exist belong to somebody else. It comes
last because geometry and Full Soup read every checkpoint; so it lowers the peak of a study with several seeds, and what
is left of any. What the rows of the main table are made of stays, but for the Full Soup, which is made of everything.
"""

from __future__ import annotations

from trajsoup.core.retention import prunable
from trajsoup.merge.provenance import RECORD
from trajsoup.merge.verify import read_record
from trajsoup.store.checkpoint import is_checkpoint
from trajsoup.store.pruning import prune
from trajsoup.store.remote import absolute
from trajsoup.study.file.study import Study
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.retention import RetentionRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.workbench import Workbench


def retention_stage(bench: Workbench) -> bool:
    """Delete what the policy gives up. Every checkpoint has its score by now, and a record of it."""
    study = bench.setup
    if not isinstance(study, Study) or study.retention is None:
        return False
    policy = study.retention
    inputs = bench.records.digests(ValidationRecord, RowsRecord, AnswerRecord)
    inputs["policy"] = digest_of([policy.top_k, policy.every_nth, policy.last])

    def make() -> RetentionRecord:
        runs = [run for pool in bench.pools() for run in pool.runs]
        given_up = prunable(
            runs,
            policy,
            needed=_needed(bench),
            rank_by=bench.setup.evaluation.rank_by,
            checkpoint_every=bench.records.require(PlanRecord).checkpoint_every,
        )
        earlier: RetentionRecord | None = bench.records.read(RetentionRecord)
        gone = [] if earlier is None else [key for key in earlier.pruned if key not in given_up]
        folders = [study.output / key for key in given_up]
        prune([folder for folder in folders if is_checkpoint(folder)], below=study.output / "branches")
        return RetentionRecord(
            inputs=inputs,
            top_k=policy.top_k,
            every_nth=policy.every_nth,
            last=policy.last,
            kept=tuple(c.key for run in runs for c in run.candidates if c.key not in given_up and c.key not in gone),
            pruned=(*gone, *given_up),
        )

    return bench.records.ensure(RetentionRecord, inputs, make)


def _needed(bench: Workbench) -> set[str]:
    """Keys that the main table's rows are made of, and the ingredients of every soup that the study wrote."""
    rows = bench.records.require(RowsRecord).rows
    needed = {key for row in rows if row.strategy != "full-soup" for key in row.weights}
    paths = {absolute(bench.place(c.key)): c.key for run in bench.train.runs for c in run.checkpoints}
    for record in bench.setup.output.glob(f"*/{RECORD}"):
        needed |= {paths[i.path] for i in read_record(record.parent).ingredients if i.path in paths}
    return needed
