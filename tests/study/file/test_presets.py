"""The studies that come with the package can be trained: their models take a step."""

import numpy as np
import pytest
import torch

from trajsoup.lm.builtin import FORK_POINT
from trajsoup.lm.models import Embedded, as_float32, embedded_config, new_model, open_model
from trajsoup.lm.tokenizer import load_tokenizer
from trajsoup.store.checkpoint import open_checkpoint, require_same
from trajsoup.study.file.presets import MODEL, Preset, preset_study, write_preset
from trajsoup.study.file.study import load_training_study, with_seed
from trajsoup.study.score.scorer import make_scorer
from trajsoup.study.train.data import load_data
from trajsoup.study.train.plan import plan_study


def test_the_fork_point_of_the_package_is_the_model_that_presets_pretrain_and_takes_a_step(tmp_path):
    model = open_model(FORK_POINT)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    fields = dict(MODEL)
    vocabulary = load_tokenizer(FORK_POINT).get_vocab_size()
    config = embedded_config(
        Embedded(fields.pop("family")), vocab_size=vocabulary, end_of_text=0, sequence_length=128, changes=fields
    )
    new_model(config, seed=0).save_pretrained(tmp_path / "fresh")
    copy = as_float32(FORK_POINT, tmp_path / "copy")
    require_same(open_checkpoint(tmp_path / "fresh"), open_checkpoint(copy))
    ids = torch.arange(256).view(2, -1) % vocabulary
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert sum(path.stat().st_size for path in FORK_POINT.iterdir()) < 1_000_000


def test_every_seed_has_a_fork_point_of_its_own_with_the_same_config_and_tokenizer(tmp_path):
    study = load_training_study(write_preset(Preset.PAPER, tmp_path / "paper"))
    folders = [with_seed(study, seed).fork_point for seed in range(study.seeds)]
    for name in ("config.json", "tokenizer.json"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1
    assert len({(folder / "model.safetensors").read_bytes() for folder in folders}) == study.seeds == 5
    assert len({with_seed(study, seed).digest for seed in range(study.seeds)}) == 5


@pytest.mark.parametrize("preset", list(Preset))
def test_every_preset_can_be_planned_and_saves_where_its_budget_is_divided(preset, tmp_path):
    study = load_training_study(write_preset(preset, tmp_path / preset.value))
    positions = plan_study(study).positions
    for branches in (2, 3):
        assert positions.horizon % (branches * positions.checkpoint_every) == 0
    assert preset_study(preset)["evaluate"]["items"] > 0


@pytest.mark.parametrize(
    "preset", [Preset.QUICK, *(pytest.param(p, marks=pytest.mark.slow) for p in Preset if p is not Preset.QUICK)]
)
def test_presets_score_enough_documents_of_their_own_to_choose_and_to_report(preset, tmp_path_factory):
    study = load_training_study(write_preset(preset, tmp_path_factory.mktemp("preset") / preset.value))
    corpus = load_data(study, cache=tmp_path_factory.getbasetemp() / "preset-corpora")
    checkpoints = {"fork-point": open_checkpoint(FORK_POINT)}
    scored = make_scorer(
        corpus, checkpoints, folder=study.output, evaluation=study.evaluation, base=study.output
    ).corpus

    def effective(tokens):
        sizes = np.diff(tokens.starts).astype(float)
        return sizes.sum() ** 2 / (sizes**2).sum()

    assert effective(scored.validation) >= 200
    assert effective(scored.test) >= 400
