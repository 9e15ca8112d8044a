import dataclasses

import numpy as np
import pytest

from tests.lm.stand_in import END, SEQUENCE, make_job
from tests.study.studies import write_study
from trajsoup.core.recipe import Recipe, parse_sources, perturbations
from trajsoup.errors import StudyError
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.mixture import BLOCK, data_order, of_source, portions, quotas, source_families
from trajsoup.study.file.study import load_study

LENGTHS = {"code": 40, "tasks:a": 30, "tasks:b": 20, "prose": 60}


SOURCE_OF = np.repeat(np.arange(len(LENGTHS)), list(LENGTHS.values()))  # by document


def labelled():
    """Documents of four sources, each a sequence of its own number, so that what was read can be told."""
    parts = [np.append(np.full(SEQUENCE - 1, i), END).astype(np.uint16) for i in range(len(SOURCE_OF))]
    order = np.random.default_rng(0).permutation(len(parts))
    return TokenSet(
        tokens=np.concatenate([parts[i] for i in order]),
        starts=np.arange(len(parts) + 1) * SEQUENCE,
        digest="0" * 64,
        source=SOURCE_OF[order].astype(np.uint8),
        source_names=tuple(LENGTHS),
    )


@pytest.fixture
def job(tmp_path, fork_point):
    sources = parse_sources({"code": 3, "tasks": 1}, where="")
    found = portions(labelled(), sources, folder=tmp_path)
    return dataclasses.replace(
        make_job(tmp_path / "EXP1", fork_point), recipe=Recipe(sources=sources, global_batch=8), mixture=found
    )


def test_a_branch_reads_its_sources_in_their_shares_and_no_other(job):
    read = SOURCE_OF[data_order(job).batch(0, BLOCK)[:, 0]]
    counts = np.bincount(read, minlength=4)
    assert counts[0] == BLOCK * 3 // 4
    assert counts[1] + counts[2] == BLOCK // 4
    assert counts[3] == 0


def test_the_sequences_of_a_mixture_do_not_depend_on_the_batch(job):
    order = data_order(job)
    together = order.batch(0, 64)
    np.testing.assert_array_equal(together, np.concatenate([order.batch(i, 4) for i in range(0, 64, 4)]))


def test_every_document_of_a_source_is_read_as_often_as_any_other(job):
    read = np.bincount(data_order(job).batch(0, BLOCK)[:, 0], minlength=len(SOURCE_OF))
    assert set(read[SOURCE_OF == 0]) == {4, 5}  # 192 sequences of 40 documents
    assert set(read[(SOURCE_OF == 1) | (SOURCE_OF == 2)]) == {1, 2}  # 64 of 50


def test_without_sources_a_branch_reads_as_before(tmp_path, fork_point):
    from trajsoup.lm.data_order import DataOrder

    plain = make_job(tmp_path / "EXP1", fork_point)
    assert isinstance(data_order(plain), DataOrder)
    assert "sources" not in plain.recipe.effective()


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5), (1 / 3, 2 / 3), (0.0001, 0.9999), (0.2, 0.3, 0.5)])
def test_quotas_fill_a_block_and_leave_no_source_out(shares):
    found = quotas(shares)
    assert sum(found) == BLOCK
    assert min(found) >= 1
    assert all(abs(n - s * BLOCK) <= 1 for n, s in zip(found, shares, strict=True))


def test_an_unknown_source_is_answered_with_those_that_there_are():
    assert source_families(labelled()) == ("code", "tasks", "prose")
    with pytest.raises(StudyError, match=r"no training documents of the source 'prosa'; it has code, tasks, prose"):
        of_source(labelled(), "prosa")


def test_sources_are_a_perturbation_and_their_weights_become_shares():
    recipe = Recipe(sources=parse_sources({"b": 1, "a": 3}, where=""))
    assert recipe.sources == (("a", 0.75), ("b", 0.25))
    assert perturbations(recipe, baseline=Recipe()) == {"sources": ("-", "a 0.75, b 0.25")}
    for wrong in ({"a": 0}, {}, {"a": -1}):
        with pytest.raises(StudyError):
            parse_sources(wrong, where="sources")


STUDY = """
    fork_point: fork
    corpus: builtin
    sequence_length: 32
    horizon: 1024
    checkpoint_every: 512
    baseline: {global_batch: 8}
    branches: {A: {sources: prose}, B: {sources: {prose: 1, tasks: 1}}}
"""


def test_branches_on_different_sources_are_refused_until_the_screen_is_told_which_loss_is_comparable(tmp_path):
    with pytest.raises(StudyError, match=r"'A' and 'B' train on different sources.*comparable: all"):
        load_study(write_study(tmp_path, STUDY))
    told = load_study(write_study(tmp_path, STUDY + "    evaluate: {comparable: prose}\n"))
    assert told.evaluation.probe_source == "prose"
    same = STUDY.replace("B: {sources: {prose: 1, tasks: 1}}", "B: {sources: prose, seed: 7}")
    assert load_study(write_study(tmp_path, same)).recipes["B"].sources == (("prose", 1.0),)


def test_a_command_brings_its_own_data_and_cannot_be_given_sources(tmp_path):
    more = "    evaluate: {comparable: all}\n    trainer: {command: train.sh}\n"
    with pytest.raises(StudyError, match="a command brings its own data"):
        load_study(write_study(tmp_path, STUDY + more))
