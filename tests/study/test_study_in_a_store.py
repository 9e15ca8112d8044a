"""Studies whose runs lie in an object store, and whose soup and records go to one. The store is fsspec's own, in memory."""

import pytest

from tests.study.tiny_study import make_fork_point, run_tiny, small_documents
from trajsoup.errors import StudyError
from trajsoup.merge.branches import save_branches, scan_branches
from trajsoup.merge.verify import verify_soup
from trajsoup.store.remote import place
from trajsoup.study.file.study import load_study
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.run import run_study

fsspec = pytest.importorskip("fsspec", reason="needs the extra [cloud]")
SETTINGS = """corpus: {train: some.txt}
evaluate: {validation_tokens: 2k, test_tokens: 2k, probe_tokens: 2k, ks: [1, 2, 3], horizons: 2, resamples: 200,
           tolerance: 0.5}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return run_tiny(folder / "one", make_fork_point(folder / "fork"))


@pytest.fixture(scope="module")
def in_store(ran):
    store = fsspec.filesystem("memory")
    store.store.clear()
    for folder in (*(ran.setup.output / "branches").iterdir(), ran.setup.output / "fork"):
        for path in folder.rglob("*") if folder.is_dir() else ():
            if path.is_file():
                store.pipe_file(f"/runs/{folder.name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    yield sorted(p.name for p in (ran.setup.output / "branches").iterdir() if p.is_dir())
    store.store.clear()


def study_of(names, folder, more=""):
    folder.mkdir()
    found = scan_branches([f"memory://runs/{name}" for name in names], fork_point=place("memory://runs/fork"))
    save_branches(found, folder / "found.yaml")
    (folder / "some.txt").write_text("documents\n")
    (folder / "found.yaml").write_text((folder / "found.yaml").read_text() + SETTINGS + more)
    return load_study(folder / "found.yaml")


def test_runs_in_a_store_give_the_rows_of_local_ones_and_are_published(ran, in_store, tmp_path):
    setup = study_of(in_store, tmp_path / "far", "publish: memory://published/study\n")
    options = {"corpus": small_documents(tmp_path), "cache": tmp_path / "cache"}
    far = run_study(setup, **options)

    def losses(records):
        return {e.row: e.loss.value for e in records.require(EvaluationsRecord).evaluations}

    assert losses(far.records) == losses(ran.records)
    keys = {c.key for branch in far.records.require(TrainRecord).branches for c in branch.checkpoints}
    assert all(key.startswith("memory://runs/") for key in keys)
    assert far.made[-1] == "publish"
    assert verify_soup(place("memory://published/study/soup"), full=True, allow_urls=["memory://runs"])
    for path in far.records.folder.rglob("*.json"):
        there = place("memory://published/study/records") / path.relative_to(far.records.folder).as_posix()
        assert there.read_bytes() == path.read_bytes()
    assert run_study(setup, **options).made == ()


def test_a_place_to_publish_to_must_be_a_url(in_store, tmp_path):
    with pytest.raises(StudyError, match=r"publish is 'here': write the URL"):
        study_of(in_store, tmp_path / "near", "publish: here\n")
