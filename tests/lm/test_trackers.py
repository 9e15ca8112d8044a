"""Every tracker of report_to gets the curve of metrics.jsonl, on this machine alone. Those not installed are skipped."""

import json
import os
import subprocess
import sys

import pytest

from tests.lm.stand_in import make_job


def train(folder, fork_point, tracker, **environment):
    """Train in a process of its own: trackers keep state, threads and servers. Returns the logged losses."""
    pytest.importorskip(tracker, reason=f"{tracker} is not installed: pip install {tracker}", exc_type=ImportError)
    job = make_job(folder / "EXP1", fork_point, horizon=1024, report_to=(tracker,), threads=1).write()
    done = subprocess.run(
        [sys.executable, "-m", "trajsoup.lm.branch_process", str(job.folder / "branch.json")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["train_loss"] for line in (job.folder / "metrics.jsonl").read_text().splitlines()]


def test_tensorboard_gets_the_curve(tmp_path, fork_point):
    losses = train(tmp_path, fork_point, "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = {
        path.parent for path in (tmp_path / "EXP1").rglob("events.out.tfevents*") if path.parent.name == "trajsoup"
    }
    events = EventAccumulator(str(folder)).Reload()
    assert [event.value for event in events.Scalars("train_loss")] == pytest.approx(losses)


def test_wandb_gets_the_curve_without_a_network(tmp_path, fork_point):
    train(tmp_path, fork_point, "wandb", WANDB_MODE="offline")
    (log,) = (tmp_path / "EXP1" / "wandb").glob("offline-run-*/run-*.wandb")
    assert log.read_bytes().count(b"train_loss") >= 4


def test_mlflow_gets_the_curve_in_a_local_store(tmp_path, fork_point):
    store = f"file://{tmp_path / 'mlruns'}"
    losses = train(tmp_path, fork_point, "mlflow", MLFLOW_TRACKING_URI=store, MLFLOW_ALLOW_FILE_STORE="true")
    (curve,) = (tmp_path / "mlruns").glob("*/*/metrics/train_loss")
    assert [float(line.split()[1]) for line in curve.read_text().splitlines()] == pytest.approx(losses)
    assert (curve.parents[1] / "tags" / "mlflow.runName").read_text() == "EXP1"


def test_trackio_gets_the_curve_in_a_local_store(tmp_path, fork_point):
    losses = train(tmp_path, fork_point, "trackio", TRACKIO_DIR=str(tmp_path / "trackio"))
    import sqlite3

    (path,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(path) as store:
        rows = [json.loads(metrics) for (metrics,) in store.execute("select metrics from metrics order by step")]
    assert [row["train_loss"] for row in rows] == pytest.approx(losses)
