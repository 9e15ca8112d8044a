import numpy as np
import pytest

from trajsoup.errors import TrainError
from trajsoup.lm.sft import IGNORED, FineTuning, Pairs, fine_tune, masked_batch, prepare_pairs

PAIRS = Pairs(tokens=((9, 1, 2, 3), (9, 4, 5, 6, 7, 8)), prompt_lengths=(2, 5), digest="x")


def test_only_answers_have_labels():
    inputs, labels, mask = masked_batch(PAIRS, [0, 1])
    assert inputs.tolist() == [[9, 1, 2, 3, 0, 0], [9, 4, 5, 6, 7, 8]]
    no = IGNORED
    assert labels.tolist() == [[no, no, 2, 3, no, no], [no, no, no, no, no, 8]]
    assert mask.tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]


def test_the_tokens_with_a_loss_are_counted():
    assert PAIRS.answer_tokens == 3


def test_nothing_to_train_on_is_refused(tmp_path):
    with pytest.raises(TrainError, match="at least one"):
        prepare_pairs([], tokenizer=tmp_path)


def make_model():
    from tests.lm.stand_in import END, SEQUENCE, TINY, VOCAB
    from trajsoup.lm.models import embedded_config, new_model

    config = embedded_config(vocab_size=VOCAB, end_of_text=END, sequence_length=SEQUENCE, changes=dict(TINY))
    return new_model(config, seed=0)


def answer_loss(model):
    import torch

    inputs, labels, mask = (torch.from_numpy(a) for a in masked_batch(PAIRS, [0, 1]))
    with torch.inference_mode():
        return model(input_ids=inputs, attention_mask=mask, labels=labels).loss.item()


def test_fine_tuning_learns_the_answers_and_repeats_bit_for_bit():
    many = Pairs(tokens=PAIRS.tokens * 20, prompt_lengths=PAIRS.prompt_lengths * 20, digest="x")
    models = [make_model(), make_model()]
    before = answer_loss(models[0])
    for model in models:
        fine_tune(model, many, settings=FineTuning(batch=8, epochs=4, peak_lr=1e-2))
    assert answer_loss(models[0]) < before / 2
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())
