import shutil

import pytest
import torch

from tests.checkpoints import write_checkpoint
from tests.runs import CONFIG, SIDE_FILES, weights, write_run
from trajsoup.core.compatibility import Outlook
from trajsoup.core.pair_gain import PairGain, relate
from trajsoup.errors import CheckpointError
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.doctor import examine, pass_bytes, study_folder


def strangers(folder):
    """A checkpoint of another initialisation: the same shapes, the same spread, nothing in common."""
    chance = torch.Generator().manual_seed(99)
    tensors = {
        name: torch.randn(t.shape, generator=chance).to(t.dtype) * 0.5 if t.is_floating_point() else t
        for name, t in weights(0).items()
    }
    return write_checkpoint(folder, tensors, config=CONFIG, files=SIDE_FILES)


def found(runs, *names, fork=None):
    return examine(scan_branches([runs / name for name in names], fork_point=fork))


@pytest.mark.parametrize("fork", [True, False])
def test_branches_of_one_fork_point_average_well(runs, fork):
    result = found(runs, "EXP1", "EXP2", fork=runs / "base" if fork else None)
    assert result.healthy
    assert [b.outlook for b in result.branches] == [Outlook.GOOD if fork else Outlook.REFERENCE, Outlook.GOOD]
    assert result.reference == ("the fork point" if fork else "baseline EXP1")
    for branch in result.branches:
        assert branch.closeness.cosine > 0.99
        assert branch.checkpoints == 4
    expected = 0.01 * (1 if fork else 2**0.5)  # each went 1 % away, in directions of its own
    assert result.branches[1].closeness.relative_distance == pytest.approx(expected, rel=0.3)
    said = any("no --fork-point given" in note for note in result.notes)
    assert said is not fork


@pytest.mark.parametrize("fork", [True, False])
def test_a_run_of_another_initialisation_shares_no_fork_point(runs, tmp_path, fork):
    shutil.copytree(runs / "EXP1", tmp_path / "EXP1")
    strangers(tmp_path / "alien" / "checkpoint-10")
    result = found(tmp_path, "EXP1", "alien", fork=runs / "base" if fork else None)
    assert not result.healthy
    assert [b.outlook for b in result.branches] == [Outlook.GOOD if fork else Outlook.REFERENCE, Outlook.BAD]
    assert "shares no fork point with" in result.branches[1].reasons[0]
    assert abs(result.branches[1].closeness.cosine) < 0.2


def test_a_run_that_moved_far_is_doubtful(runs, tmp_path):
    shutil.copytree(runs / "EXP1", tmp_path / "EXP1")
    write_checkpoint(tmp_path / "far" / "step_1", weights(5, away=0.6), config=CONFIG, files=SIDE_FILES)
    far = found(tmp_path, "EXP1", "far", fork=runs / "base").branches[1]
    assert far.outlook is Outlook.DOUBTFUL
    assert "score the soup before trusting it" in far.reasons[0]


def test_a_checkpoint_with_nan_is_named_and_the_rest_of_the_branch_judged_without_it(runs, tmp_path):
    shutil.copytree(runs / "EXP1", tmp_path / "EXP1")
    run = write_run(tmp_path / "EXP2", val_losses=[2.2, 2.1], seed=2)
    bad = weights(2002)
    bad["embed.weight"][3, 3] = float("nan")
    write_checkpoint(run / "checkpoint-20", bad)
    result = found(tmp_path, "EXP1", "EXP2", fork=runs / "base")
    branch = result.branches[1]
    assert branch.outlook is Outlook.DOUBTFUL
    assert any(
        f"{run / 'checkpoint-20'}: tensor 'embed.weight' in model.safetensors holds NaN or Inf" in reason
        for reason in branch.reasons
    )
    assert branch.closeness.cosine > 0.99  # of checkpoint-10


def test_a_branch_of_nothing_but_nan_must_be_left_out(runs, tmp_path):
    shutil.copytree(runs / "EXP1", tmp_path / "EXP1")
    bad = {**weights(7), "norm.weight": torch.full((8,), float("inf"), dtype=torch.bfloat16)}
    write_checkpoint(tmp_path / "bad" / "step_1", bad, config=CONFIG, files=SIDE_FILES)
    for names in (["EXP1", "bad"], ["bad", "EXP1"]):  # whichever is the baseline
        result = found(tmp_path, *names)
        outlooks = {b.name: b.outlook for b in result.branches}
        assert outlooks == {"EXP1": Outlook.REFERENCE, "bad": Outlook.BAD}
        assert result.reference == "baseline EXP1"
        assert not result.healthy


@pytest.mark.parametrize("fork", [True, False])
def test_a_copy_is_named_with_its_original(runs, tmp_path, fork):
    shutil.copytree(runs / "EXP1", tmp_path / "EXP1")
    shutil.copytree(runs / "EXP2", tmp_path / "EXP2")
    shutil.rmtree(tmp_path / "EXP2" / "checkpoint-40")
    shutil.copytree(tmp_path / "EXP1" / "checkpoint-20", tmp_path / "EXP2" / "checkpoint-40")
    result = found(tmp_path, "EXP1", "EXP2", fork=runs / "base" if fork else None)
    copies = [reason for b in result.branches for reason in b.reasons if "copy" in reason]
    assert copies == [
        f"{tmp_path / 'EXP2' / 'checkpoint-40'} is a copy of {tmp_path / 'EXP1' / 'checkpoint-20'}: "
        "leave one of them out"
    ]


def test_a_branch_that_never_left_the_fork_point_is_its_copy(runs, tmp_path):
    shutil.copytree(runs / "base", tmp_path / "still" / "step_1")
    (branch,) = found(tmp_path, "still", fork=runs / "base").branches
    assert any(f"is a copy of {runs / 'base'}" in reason for reason in branch.reasons)
    assert branch.outlook is Outlook.DOUBTFUL


def test_no_copy_is_seen_where_there_is_none(runs):
    result = found(runs, "EXP1", "EXP2", "EXP3")
    assert not any("copy" in reason for b in result.branches for reason in b.reasons)


@pytest.mark.parametrize(
    ("tensors", "config", "reason"),
    [
        ({**weights(9), "extra": torch.ones(2)}, CONFIG, r"tensor 'extra' is in the second only"),
        ({**weights(9), "norm.weight": torch.ones(8)}, CONFIG, r"tensor 'norm.weight' has dtype BF16 and F32"),
        (weights(9), {**CONFIG, "hidden_size": 16}, r"config.json has hidden_size = 8 and 16"),
    ],
    ids=["tensors", "dtype", "config"],
)
def test_another_architecture_or_config_is_named(runs, tmp_path, tensors, config, reason):
    shutil.copytree(runs / "EXP1", tmp_path / "EXP1")
    write_checkpoint(tmp_path / "odd" / "step_1", tensors, config=config, files=SIDE_FILES)
    result = found(tmp_path, "EXP1", "odd")
    assert not result.healthy
    assert result.branches[1].outlook is Outlook.BAD
    assert any(reason in text for text in result.branches[1].reasons)
    assert result.branches[1].closeness is None


def test_a_damaged_checkpoint_is_reported_not_raised(runs, tmp_path):
    shutil.copytree(runs / "EXP1", tmp_path / "EXP1")
    (tmp_path / "EXP1" / "checkpoint-20" / "model.safetensors").write_bytes(b"")
    (branch,) = found(tmp_path, "EXP1").branches
    assert branch.outlook is Outlook.DOUBTFUL
    assert any("checkpoint-20/model.safetensors is damaged" in reason for reason in branch.reasons)


def test_one_branch_alone_is_examined_too(runs):
    result = found(runs, "EXP1", fork=runs / "base")
    assert result.healthy
    assert result.branches[0].closeness.relative_distance == pytest.approx(0.01, rel=0.3)
    alone = found(runs, "EXP1")
    assert alone.healthy
    assert alone.branches[0].outlook is Outlook.REFERENCE
    assert "there is no other to compare with" in alone.branches[0].reasons[0]
    assert alone.pairs == ()


def directions(folder, ways):
    """Runs from one fork point, each straight on in its own direction of the plane of two random ones."""
    base = weights(0)
    first, second = (
        {n: t.float() - base[n].float() for n, t in weights(seed, away=0.01).items() if t.is_floating_point()}
        for seed in (11, 12)
    )
    write_checkpoint(folder / "base", base, config=CONFIG, files=SIDE_FILES)
    for name, (a, b) in ways.items():
        for step in range(1, 6):
            moved = {
                n: (t.float() + step / 5 * (a * first[n] + b * second[n])).to(t.dtype) if n in first else t
                for n, t in base.items()
            }
            write_checkpoint(folder / name / f"checkpoint-{step}", moved, config=CONFIG, files=SIDE_FILES)


def test_pairs_that_went_different_ways_are_named_first(tmp_path):
    directions(tmp_path, {"EXP1": (1, 0), "EXP2": (0.9, 0.3), "EXP3": (0, 1)})
    result = found(tmp_path, "EXP1", "EXP2", "EXP3", fork=tmp_path / "base")
    assert [(p.first, p.second) for p in result.pairs] == [("EXP1", "EXP3"), ("EXP2", "EXP3"), ("EXP1", "EXP2")]
    assert [p.cosine for p in result.pairs] == sorted(p.cosine for p in result.pairs)
    assert abs(result.pairs[0].cosine) < 0.1
    assert all(p.gain is None for p in result.pairs)
    assert "No pair gain has been measured on these runs" in result.pairs_by


def test_a_study_that_was_run_lends_its_matrix_and_its_line(tmp_path):
    study = tmp_path / "study"
    directions(study / "branches", {"EXP1": (1, 0), "EXP2": (0.9, 0.3), "EXP3": (0, 1)})
    runs = [study / "branches" / name for name in ("EXP1", "EXP2", "EXP3")]
    assert study_folder(runs) is None
    (study / "scores").mkdir()
    (study / "scores" / "identities.json").write_text("{}")
    rising = relate(
        [
            PairGain(first="a", second=str(c), cosine=c, gains={1: g}, left_out=())
            for c, g in ((0.0, 0.01), (0.5, 0.02), (1.0, 0.031))
        ]
    )
    branches = scan_branches(runs, fork_point=study / "branches" / "base")
    read = []
    first = examine(branches, folder=study_folder(runs), relation=rising, progress=read.append)
    assert [(p.first, p.second) for p in first.pairs] == [("EXP1", "EXP2"), ("EXP2", "EXP3"), ("EXP1", "EXP3")]
    assert all(p.low < p.gain < p.high for p in first.pairs)
    assert "the line measured in this study. Pair gain against cosine over 3 pairs" in first.pairs_by
    assert sum(read) > 0
    read.clear()
    assert examine(branches, folder=study_folder(runs), relation=rising, progress=read.append) == first
    assert read == []


def test_branches_without_common_tokens_are_not_paired_and_it_is_said(runs, tmp_path):
    directions(tmp_path, {"EXP1": (1, 0), "EXP2": (0, 1)})
    for step in range(5, 0, -1):
        (tmp_path / "EXP2" / f"checkpoint-{step}").rename(tmp_path / "EXP2" / f"checkpoint-{step + 100}")
    result = found(tmp_path, "EXP1", "EXP2", fork=tmp_path / "base")
    assert result.healthy
    assert result.pairs == ()
    assert any("share no token interval" in note for note in result.notes)


def test_the_screen_is_foretold_where_losses_are_known(runs):
    result = found(runs, "EXP1", "EXP2", "EXP3")
    assert [b.verdict.admitted for b in result.branches] == [True, True, False]
    assert result.branches[2].outlook is Outlook.DOUBTFUL
    assert any(
        "training loss +5.0% against the baseline: the screen would reject it" in r for r in result.branches[2].reasons
    )


def test_without_losses_the_doctor_says_that_nothing_was_screened(runs, tmp_path):
    for name in ("EXP1", "EXP2"):
        shutil.copytree(runs / name, tmp_path / name)
        (tmp_path / name / "metrics.csv").unlink()
    result = found(tmp_path, "EXP1", "EXP2")
    start = "training losses could not be screened: the baseline 'EXP1' has no training loss"
    note = next(note for note in result.notes if note.startswith(start))
    assert "--no-screen" not in note
    assert all(b.verdict is None for b in result.branches)


@pytest.mark.parametrize("damage", ["missing", "empty", "nan"])
def test_a_fork_point_that_cannot_be_used_is_an_error(runs, tmp_path, damage):
    fork = tmp_path / "fork"
    if damage == "empty":
        write_checkpoint(fork, weights(0))
        (fork / "model.safetensors").write_bytes(b"")
    if damage == "nan":
        write_checkpoint(fork, {**weights(0), "norm.weight": torch.full((8,), float("nan"), dtype=torch.bfloat16)})
    with pytest.raises(
        CheckpointError, match=r"the fork point cannot be used, so nothing can be measured from it: .*fork"
    ):
        found(runs, "EXP1", fork=fork)


def test_a_fork_point_of_another_model_fits_no_branch(runs, tmp_path):
    write_checkpoint(tmp_path / "fork", {"w": torch.ones(2, 2)})
    result = found(runs, "EXP1", fork=tmp_path / "fork")
    assert result.branches[0].outlook is Outlook.BAD
    assert result.branches[0].reasons[0] == "none of its checkpoints can be averaged with the others"


def test_nothing_that_can_be_opened_is_an_error(tmp_path):
    write_checkpoint(tmp_path / "a" / "step_1", {"w": torch.ones(2)})
    (tmp_path / "a" / "step_1" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"is damaged"):
        found(tmp_path, "a")


def test_every_byte_is_read_once(runs):
    study = scan_branches([runs / "EXP1", runs / "EXP2"], fork_point=runs / "base")
    floats = sum(
        t.nbytes for t in weights(1).values() if t.is_floating_point()
    )  # headers and integers are not measured
    heard: list[int] = []
    examine(study, progress=heard.append)
    assert sum(heard) == 9 * floats
    assert pass_bytes(study) >= sum(heard)
