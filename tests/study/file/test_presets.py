"""The studies that come with the package can be trained: their models take a step."""

import pytest
import torch

from trajsoup.lm.models import Embedded, embedded_config, new_model
from trajsoup.study.file.presets import Preset, preset_study


@pytest.mark.parametrize("preset", list(Preset))
def test_the_model_of_every_preset_takes_a_step(preset):
    study = preset_study(preset)
    fields = dict(study["pretrain"]["model"])
    config = embedded_config(
        Embedded(fields.pop("family")),
        vocab_size=study["corpus"]["vocab_size"],
        end_of_text=0,
        sequence_length=study["sequence_length"],
        changes=fields,
    )
    model = new_model(config, seed=0)
    ids = torch.arange(2 * study["sequence_length"]).view(2, -1) % study["corpus"]["vocab_size"]
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    assert torch.isfinite(loss)
