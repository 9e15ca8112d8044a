"""soup.json says what became of tensors that are no plain weights; docs/formats.md has the same table."""

import json
from pathlib import Path

import torch

from tests.checkpoints import write_checkpoint
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import OutputForm, mean_row, plan_row
from trajsoup.merge.policy import KINDS

ROOT = Path(__file__).parents[2]


def soup_record(folders, out, **options):
    make_soup(plan_row(mean_row(folders), form=OutputForm(**options)), out)
    return json.loads((out / "soup.json").read_text())["policy"]


def test_every_kind_of_buffer_is_counted_under_its_rule(tmp_path):
    def tensors(seed):
        chance = torch.Generator().manual_seed(seed)
        return {
            "model.layers.0.mlp.gate.e_score_correction_bias": torch.randn(4, generator=chance),
            "model.layers.0.self_attn.rotary_emb.inv_freq": torch.arange(4.0),
            "model.layers.0.weight": torch.randn(4, 4, generator=chance).bfloat16(),
            "model.layers.1.eh_proj.weight": torch.randn(4, 4, generator=chance).bfloat16(),  # after the last layer
            "mtp.norm.weight": torch.randn(4, generator=chance).bfloat16(),
            "position_ids": torch.arange(5),
        }

    config = {"num_hidden_layers": 1}
    folders = [write_checkpoint(tmp_path / str(seed), tensors(seed), config=config) for seed in (1, 2)]
    found = soup_record(folders, tmp_path / "soup", dtype="fp16")
    assert {kind: entry["tensors"] for kind, entry in found.items()} == {
        "weights": 1,
        "router bias": 1,
        "MTP layers": 2,
        "integers and booleans": 1,
        "non-persistent buffers that were saved": 1,
    }
    assert found["router bias"]["such_as"] == ["model.layers.0.mlp.gate.e_score_correction_bias"]
    assert "keeps its dtype" in found["router bias"]["rule"]


def test_tied_tensors_and_what_was_left_out_are_said(tmp_path):
    for seed in (1, 2):
        weight = torch.randn(3, 2, generator=torch.Generator().manual_seed(seed))
        state = {"model": {"embed.weight": weight, "head.weight": weight}, "optimizer": {"mean": torch.zeros(3, 2)}}
        torch.save(state, tmp_path / f"{seed}.pt")
    found = soup_record([tmp_path / "1.pt", tmp_path / "2.pt"], tmp_path / "soup")
    assert found["tied tensors"]["tensors"] == 2
    assert found["optimizer, schedulers, random generators, counters"]["such_as"] == ["optimizer.mean"]


def test_the_documentation_has_every_kind():
    table = (ROOT / "docs" / "formats.md").read_text()
    assert [kind.name for kind in KINDS if kind.name not in table] == []
