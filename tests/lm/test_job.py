import dataclasses

import numpy as np
import pytest

from tests.lm.stand_in import make_job
from trajsoup.core.recipe import Recipe, Warmup
from trajsoup.core.schedule import Schedule, Shape
from trajsoup.errors import TrainError
from trajsoup.lm.job import fork_point_digest, read_job, token_file


@pytest.fixture
def job(tmp_path):
    fork = tmp_path / "fork"
    fork.mkdir()
    (fork / "model.safetensors").write_bytes(b"weights")
    (fork / "config.json").write_text("{}")
    return make_job(tmp_path / "EXP1", fork)


def test_a_job_is_read_back_as_it_was_written(job):
    recipe = Recipe(schedule=Schedule(shape=Shape.WSD, decay_to=1e-5), warmup=Warmup(tokens=512), betas=(0.8, 0.9))
    job = dataclasses.replace(job, recipe=recipe, report_to=("tensorboard",), threads=2)
    assert job.write() == read_job(job.folder / "branch.json") == job


def test_a_resume_with_another_recipe_is_refused_and_shows_every_difference(job):
    job.write()
    (job.folder / "checkpoint-4").mkdir()
    changed = dataclasses.replace(job, recipe=Recipe(peak_lr=2e-3, global_batch=8, momentum=0.9, seed=7))
    with pytest.raises(TrainError, match=r"peak_lr: 0\.001 -> 0\.002; seed: 1234 -> 7.*new name"):
        changed.write()


@pytest.mark.parametrize("change", [{"horizon": 9216}, {"checkpoint_every": 3072}, {"fork_point_digest": "other"}])
def test_a_resume_with_other_positions_or_another_fork_point_is_refused(job, change):
    job.write()
    (job.folder / "resume-state-1024").mkdir()
    with pytest.raises(TrainError, match=next(iter(change))):
        dataclasses.replace(job, **change).write()


def test_a_resume_with_another_corpus_is_refused(job):
    job.write()
    (job.folder / "checkpoint-4").mkdir()
    with pytest.raises(TrainError, match=r"corpus: .* -> other"):
        dataclasses.replace(job, tokens=dataclasses.replace(job.tokens, digest="other")).write()


def test_a_branch_that_saved_nothing_may_change(job):
    job.write()
    dataclasses.replace(job, recipe=Recipe(seed=7)).write()


def test_a_resume_keeps_its_number_of_threads(job):
    dataclasses.replace(job, threads=1).write()
    (job.folder / "checkpoint-4").mkdir()
    assert dataclasses.replace(job, threads=2).write().threads == 1


def test_a_damaged_record_is_refused_by_its_path(job):
    (job.folder / "branch.json").write_text('{"recipe": 5')
    with pytest.raises(TrainError, match=r"branch\.json"):
        read_job(job.folder / "branch.json")


def test_the_fork_points_digest_depends_on_weights_and_config(tmp_path):
    digests = set()
    for i, (weights, config) in enumerate(((b"a", "{}"), (b"b", "{}"), (b"a", '{"x": 1}'))):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "config.json").write_text(config)
        digests.add(fork_point_digest(folder))
    assert len(digests) == 3


def test_a_change_anywhere_near_a_sampled_block_of_a_large_file_is_seen(tmp_path):
    data = bytearray(8 << 20)
    (tmp_path / "model.safetensors").write_bytes(data)
    before = fork_point_digest(tmp_path)
    data[-1] = 1
    (tmp_path / "model.safetensors").write_bytes(data)
    assert fork_point_digest(tmp_path) != before


def test_a_fork_point_without_weights_is_refused(tmp_path):
    with pytest.raises(TrainError, match="holds no safetensors"):
        fork_point_digest(tmp_path)


def test_tokens_are_found_where_they_lie_or_written_down(tmp_path):
    data = np.arange(100, dtype=np.uint16)
    np.save(tmp_path / "a.npy", data)
    mapped = token_file(np.load(tmp_path / "a.npy", mmap_mode="r"), digest="d", spare=tmp_path / "spare")
    assert not (tmp_path / "spare").exists()
    assert np.array_equal(mapped.open(), data)
    written = token_file(data, digest="d", spare=tmp_path / "deep" / "spare")
    assert np.array_equal(written.open(), data)


def test_missing_tokens_are_refused_by_their_path(job):
    job.tokens.path.unlink()
    with pytest.raises(TrainError, match=r"train\.tokens"):
        job.tokens.open()
