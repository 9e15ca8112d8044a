"""Is the identity the best matching of neurons between two runs?"""

import importlib.util
import sys

import numpy as np
import pytest
import torch

from tests.checkpoints import write_checkpoint
from trajsoup.core.compatibility import Outlook
from trajsoup.core.matching import UNITS, matched_units, sampled_units
from trajsoup.merge import neurons
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.doctor import examine
from trajsoup.merge.neurons import match_neurons
from trajsoup.store.checkpoint import open_checkpoint

WIDTH, HIDDEN, HEADS = 16, 24, 4
CONFIG = {"model_type": "toy", "num_attention_heads": HEADS}
NAMES = {  # one layer as trainers name it: the tensors into its hidden units, and out of them
    "llama": ("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"),
    "mixtral": (
        "block_sparse_moe.experts.1.w1.weight",
        "block_sparse_moe.experts.1.w3.weight",
        "block_sparse_moe.experts.1.w2.weight",
    ),
    "megatron": ("mlp.linear_fc1.weight", None, "mlp.linear_fc2.weight"),
    "neox": ("mlp.dense_h_to_4h.weight", None, "mlp.dense_4h_to_h.weight"),
}


def model(seed, *, family="llama", layers=4, dtype=torch.bfloat16, order=None, away=0.0):
    """A model of one initialisation; `order` permutes its hidden units and heads, which changes no output."""
    chance, moved = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    units = np.arange(HIDDEN) if order is None else np.random.default_rng(order).permutation(HIDDEN)
    heads = np.arange(HEADS) if order is None else np.roll(np.arange(HEADS), 1)
    rows = (heads[:, None] * (WIDTH // HEADS) + np.arange(WIDTH // HEADS)).reshape(-1)
    found = {}

    def drawn(*shape):
        return chance.normal(0, 0.1, shape) + away * moved.normal(0, 0.1, shape)

    for layer in range(layers):
        gate, up, down = NAMES[family]
        into = [drawn(HIDDEN, WIDTH)[units] for _ in range(2)]
        tensors = {down: drawn(WIDTH, HIDDEN)[:, units]}
        tensors |= {gate: np.concatenate(into)} if up is None else {gate: into[0], up: into[1]}
        tensors |= {"self_attn.q_proj.weight": drawn(WIDTH, WIDTH)[rows]}
        tensors |= {"self_attn.o_proj.weight": drawn(WIDTH, WIDTH)[:, rows], "norm.weight": np.ones(WIDTH)}
        found |= {f"model.layers.{layer}.{name}": torch.from_numpy(v.copy()).to(dtype) for name, v in tensors.items()}
    return found


def saved(folder, **how):
    return write_checkpoint(folder, model(**how), config=CONFIG)


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_branches_of_one_fork_point_match_by_the_identity_and_strangers_do_not(tmp_path, family, dtype):
    first, branch, stranger, permuted = (
        open_checkpoint(saved(tmp_path / name, family=family, dtype=dtype, **how))
        for name, how in {
            "first": {"seed": 1},
            "branch": {"seed": 1, "away": 0.3},
            "stranger": {"seed": 2},
            "permuted": {"seed": 1, "order": 5},
        }.items()
    )
    alike = match_neurons(first, branch)
    assert alike is not None
    assert alike.units == 3 * HIDDEN + 3 * HEADS
    assert alike.blocks == 6
    assert alike.share == 1
    for other in (stranger, permuted):
        apart = match_neurons(first, other)
        assert apart is not None
        assert apart.share < 0.3
        assert not apart.is_identity


def test_heads_are_left_out_where_nothing_says_how_many_there_are(tmp_path):
    one, two = (open_checkpoint(write_checkpoint(tmp_path / name, model(1), config={})) for name in "ab")
    found = match_neurons(one, two)
    assert found is not None
    assert found.units == 3 * HIDDEN


def test_no_known_layer_is_no_answer_and_large_tensors_are_not_read(runs, tmp_path, monkeypatch):
    same = open_checkpoint(runs / "EXP1" / "checkpoint-10")
    assert match_neurons(same, same) is None
    known = open_checkpoint(saved(tmp_path / "known", seed=1))
    monkeypatch.setattr(neurons, "TENSOR_BYTES", 1)
    assert match_neurons(known, known) is None


def test_a_wide_layer_is_sampled_the_same_in_both_models():
    chosen = sampled_units(10 * UNITS)
    assert len(chosen) == UNITS == len(set(chosen.tolist()))
    assert np.array_equal(chosen, sampled_units(10 * UNITS))
    assert np.array_equal(sampled_units(7), np.arange(7))


def test_the_best_matching_is_the_permutation_that_was_made():
    chance = np.random.default_rng(0)
    units = chance.normal(size=(40, 64))
    order = np.r_[1:20, 0, 20:40]  # twenty go round, twenty stay
    assert matched_units(units, units[order] + 0.1 * chance.normal(size=units.shape)) == 20


def test_the_doctor_says_in_one_line_that_runs_share_no_fork_point(tmp_path):
    for name, how in {"a": {"seed": 1}, "b": {"seed": 1, "away": 0.1}, "c": {"seed": 1, "order": 3}}.items():
        for step in (1, 2):
            saved(tmp_path / name / f"checkpoint-{step}", **{**how, "away": how.get("away", 0) + 0.01 * step})
    result = examine(scan_branches([tmp_path / name for name in "abc"]))
    alike = [b.outlook for b in result.branches[:2]]
    assert sorted(alike) == sorted([Outlook.REFERENCE, Outlook.GOOD])
    assert result.branches[alike.index(Outlook.REFERENCE)].neurons is None
    assert result.branches[2].outlook is Outlook.BAD
    (said,) = [reason for reason in result.branches[2].reasons if "units" in reason]
    assert said.startswith(f"shares no fork point with {result.reference}: only ")
    assert "match best with themselves" in said
    (note,) = [n for n in examine(scan_branches([tmp_path / "a", tmp_path / "b"])).notes if n.startswith("neurons")]
    assert "100% of 84 sampled units in 6 blocks" in note


def test_without_scipy_the_doctor_says_what_it_could_not_do(tmp_path, monkeypatch):
    for name in "ab":
        saved(tmp_path / name / "checkpoint-1", seed=1, away=0.1 if name == "b" else 0.0)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = examine(scan_branches([tmp_path / name for name in "ab"]))
    assert [b.neurons for b in result.branches] == [None, None]
    assert any(note.startswith("neurons were not matched, which needs scipy: ") for note in result.notes)
