import pytest
import torch
from torch import nn

from tests.lm.stand_in import END, TINY, VOCAB
from trajsoup.core.recipe import Optimizer, Recipe
from trajsoup.lm.models import Embedded, embedded_config, new_model
from trajsoup.lm.optimizers import Muon, grouped, make_optimizers, orthogonalized, set_learning_rate


@pytest.fixture
def model():
    config = embedded_config(vocab_size=VOCAB, end_of_text=END, sequence_length=32, changes=TINY)
    return new_model(config, seed=0)


def test_every_parameter_has_exactly_one_optimizer(model):
    for optimizer in Optimizer:
        optimizers = make_optimizers(model, recipe=Recipe(optimizer=optimizer))
        held = [p for o in optimizers for g in o.param_groups for p in g["params"]]
        assert len(held) == len({id(p) for p in held}) == len(list(model.parameters()))


def test_muon_gets_hidden_matrices_and_experts_and_adamw_the_rest(model):
    groups = grouped(model)
    assert all(p.ndim == 2 for p in groups.matrices.values())
    assert {n.rsplit(".", 1)[1] for n in groups.experts} == {"gate_up_proj", "down_proj"}
    assert {"model.embed_tokens.weight", "lm_head.weight", "model.layers.1.mlp.gate.weight", "model.norm.weight"} <= (
        groups.others.keys()
    )
    assert "model.layers.1.mlp.shared_experts.gate_proj.weight" in groups.matrices
    assert "model.layers.0.mlp.gate_proj.weight" in groups.matrices
    kinds = [type(o) for o in make_optimizers(model, recipe=Recipe())]
    assert kinds == [Muon, torch.optim.AdamW]


def test_the_convolutions_and_decays_of_linear_attention_are_left_to_adamw():
    config = embedded_config(Embedded.BAILING_HYBRID, vocab_size=64, end_of_text=0, sequence_length=32)
    with torch.device("meta"):
        from transformers import AutoModelForCausalLM

        others = grouped(AutoModelForCausalLM.from_config(config)).others
    assert {"conv1d.weight", "forget_gate.A_log", "forget_gate.dt_bias"} <= {
        name.split("self_attn.")[-1] for name in others
    }


@pytest.mark.parametrize("matrices", [1, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fused_experts_move_as_torchs_muon_moves_the_unfused_matrices(matrices, momentum):
    generator = torch.Generator().manual_seed(0)
    settings = {"lr": 0.01, "momentum": momentum, "weight_decay": 0.1}
    fused = nn.Parameter(torch.randn(3, 16 * matrices, 24, generator=generator))
    unfused = [nn.Parameter(m.clone()) for expert in fused.detach() for m in expert.chunk(matrices)]
    ours = Muon([{"params": [fused], "matrices": matrices}], **settings)
    theirs = torch.optim.Muon(unfused, adjust_lr_fn="match_rms_adamw", **settings)
    alone = [nn.Parameter(m.detach().clone()) for m in unfused]
    each = Muon(alone, **settings)
    for _ in range(3):
        gradient = torch.randn(fused.shape, generator=generator)
        fused.grad = gradient
        for p, g in zip(unfused, (m for e in gradient for m in e.chunk(matrices)), strict=True):
            p.grad = g.clone()
        for p, q in zip(alone, unfused, strict=True):
            p.grad = q.grad.clone()
        ours.step()
        theirs.step()
        each.step()
    whole = torch.cat([p.detach() for p in unfused]).reshape(fused.shape)
    torch.testing.assert_close(fused.detach(), whole, rtol=1e-2, atol=2e-4)  # bf16 products differ in rounding
    apart = torch.cat([p.detach() for p in alone]).reshape(fused.shape)
    torch.testing.assert_close(fused.detach(), apart, rtol=1e-5, atol=1e-6)  # both fp32 here


def test_a_plain_matrix_moves_as_torchs_muon_moves_it():
    generator = torch.Generator().manual_seed(0)
    mine, theirs = (nn.Parameter(torch.ones(24, 16)) for _ in range(2))
    settings = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}
    optimizers = Muon([mine], **settings), torch.optim.Muon([theirs], adjust_lr_fn="match_rms_adamw", **settings)
    for _ in range(3):
        mine.grad = torch.randn(24, 16, generator=generator)
        theirs.grad = mine.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-2, atol=2e-4)


def test_orthogonalized_matrices_have_singular_values_near_one():
    batch = torch.randn(4, 24, 16, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalized(batch).float())
    assert values.min() > 0.4
    assert values.max() < 1.4


def test_norms_are_not_decayed_and_matrices_are(model):
    adamw = make_optimizers(model, recipe=Recipe(optimizer=Optimizer.ADAMW, weight_decay=0.1))[0]
    decays = {p.ndim >= 2: g["weight_decay"] for g in adamw.param_groups for p in g["params"]}
    assert decays == {True: 0.1, False: 0.0}


def test_the_learning_rate_reaches_every_group(model):
    optimizers = make_optimizers(model, recipe=Recipe())
    set_learning_rate(optimizers, 0.5)
    assert {g["lr"] for o in optimizers for g in o.param_groups} == {0.5}
