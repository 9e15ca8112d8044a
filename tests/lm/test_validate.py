import math

import numpy as np
import pytest
import torch

from tests.lm.tiny_models import llama_config, make_model, moe_config
from trajsoup.core.choosing import choose
from trajsoup.core.scores import Per, ValidationScores
from trajsoup.errors import ScoreError
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.validate import ValidationSettings, document_losses

END = 0


def token_set(*documents, **fields):
    """Documents without their end, which is added."""
    parts = [[*document, END] for document in documents]
    starts = np.cumsum([0, *map(len, parts)])
    return TokenSet(
        tokens=np.array([token for part in parts for token in part], np.uint16), starts=starts, digest="-", **fields
    )


def some_documents(count=7, *, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(1, 64, random.integers(1, 90)).tolist() for _ in range(count)]


def naive(model, document, *, window):
    """The definition, one token at a time."""
    text = [END, *document, END]
    total = 0.0
    for i in range(1, len(text)):
        begin = (i - 1) // window * window
        with torch.inference_mode():
            logits = model(torch.tensor([text[begin:i]])).logits[0, -1]
        total -= torch.log_softmax(logits, -1)[text[i]].item()
    return total


@pytest.mark.parametrize("config", [llama_config(), moe_config()], ids=["llama", "mixture of experts"])
@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_sums_equal_the_definition_token_by_token(config, batch_tokens):
    model, documents = make_model(config), some_documents(4)
    settings = ValidationSettings(window=32, batch_tokens=batch_tokens)
    losses = document_losses(model, token_set(*documents), settings=settings)
    assert losses.nll == pytest.approx([naive(model, d, window=32) for d in documents], rel=1e-5)
    assert losses.targets.tolist() == [len(d) + 1 for d in documents]


def test_the_end_of_a_document_that_was_cut_is_not_predicted():
    """The text goes on there: with 16 tokens of each document, a sixteenth of the loss was about ends that are none."""
    model, documents = make_model(llama_config()), [d for d in some_documents(6) if len(d) > 1]
    cut = np.arange(len(documents)) % 2 == 0
    settings = ValidationSettings(window=8)
    losses = document_losses(model, token_set(*documents, cut=cut), settings=settings)
    whole = document_losses(model, token_set(*documents), settings=settings)
    assert losses.targets.tolist() == [len(d) + 1 - c for d, c in zip(documents, cut, strict=True)]
    assert losses.nll[~cut] == pytest.approx(whole.nll[~cut], rel=1e-5)
    assert (losses.nll[cut] < whole.nll[cut]).all()
    text = [END, *documents[0]]
    with torch.inference_mode():
        begin = (len(text) - 1) // 8 * 8
        end = torch.log_softmax(model(torch.tensor([text[begin:]])).logits[0, -1], -1)[END].item()
    assert whole.nll[0] - losses.nll[0] == pytest.approx(-end, rel=1e-3)


def test_the_loss_is_weighted_by_tokens_not_by_documents():
    losses = document_losses(make_model(llama_config()), token_set(*some_documents()))
    assert losses.loss() == pytest.approx(losses.nll.sum() / losses.targets.sum())
    assert losses.loss() != pytest.approx(np.mean(losses.nll / losses.targets), rel=1e-6)


def test_batching_and_order_of_documents_do_not_matter():
    model, documents = make_model(llama_config()), some_documents()
    one = document_losses(model, token_set(*documents), settings=ValidationSettings(window=64, batch_tokens=64))
    many = document_losses(model, token_set(*documents), settings=ValidationSettings(window=64, batch_tokens=10_000))
    reverse = document_losses(model, token_set(*documents[::-1]), settings=ValidationSettings(window=64))
    assert many.nll == pytest.approx(one.nll, rel=1e-5)
    assert reverse.nll[::-1] == pytest.approx(one.nll, rel=1e-5)


def test_a_model_that_changes_its_logits_after_the_head_is_scored_by_its_own_logits():
    class Capped(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model, self.config, self.base_model = model, model.config, model.base_model
            self.get_output_embeddings = model.get_output_embeddings

        def forward(self, input_ids, use_cache=False):
            output = self.model(input_ids=input_ids)
            output.logits = 0.1 * output.logits
            return output

    model, tokens = make_model(llama_config()), token_set(*some_documents(3))
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    plain, capped = document_losses(model, tokens), document_losses(Capped(model), tokens)
    assert (np.abs(capped.nll - plain.nll) > 1).all()


def test_per_byte_and_source_weights_are_arithmetic_on_the_record():
    fields = {"document_bytes": np.array([10, 40]), "source": np.array([0, 1], np.uint8), "source_names": ("a", "b")}
    losses = document_losses(make_model(llama_config()), token_set([1, 2, 3], [4, 5, 6, 7, 8], **fields))
    first, second = losses.nll
    assert losses.loss(per=Per.BYTE) == pytest.approx((first + second) / 50)
    assert losses.loss(source_weights={"a": 3.0}) == pytest.approx((3 * first + second) / (3 * 4 + 6))
    assert losses.loss(source_weights={"a": 0.0}) == pytest.approx(second / 6)
    assert losses.by_source() == pytest.approx({"a": first / 4, "b": second / 6})
    with pytest.raises(ScoreError, match=r"source 'c' \(sources: a, b\)"):
        losses.loss(source_weights={"c": 1.0})
    with pytest.raises(ScoreError, match="positive weight"):
        losses.loss(source_weights={"a": 0.0, "b": 0.0})


def test_a_one_token_document_is_scored_and_an_empty_one_refused():
    model = make_model(llama_config())
    assert document_losses(model, token_set([5])).targets.tolist() == [2]
    with pytest.raises(ScoreError, match=r"document 1 has 1 token.*remove empty documents"):
        document_losses(model, token_set([5], [], [6]))
    with pytest.raises(ScoreError, match="no document"):
        document_losses(model, token_set())


def test_a_corpus_of_another_tokenizer_is_refused():
    with pytest.raises(ScoreError, match=r"token 64, .*64 embeddings.*different tokenizers"):
        document_losses(make_model(llama_config()), token_set([1, 64]))


def test_a_window_beyond_the_models_positions_is_refused():
    with pytest.raises(ScoreError, match="window is 512"):
        document_losses(make_model(llama_config()), token_set([1]), settings=ValidationSettings(window=512))


def test_a_model_of_nan_scores_nan_and_is_never_chosen():
    good, bad = make_model(llama_config()), make_model(llama_config())
    with torch.no_grad():
        bad.model.norm.weight[0] = float("nan")
    tokens = token_set(*some_documents(2))
    scores = {name: ValidationScores(losses=document_losses(m, tokens)) for name, m in (("bad", bad), ("good", good))}
    assert math.isnan(scores["bad"].losses.loss())
    choice = choose(scores)
    assert (choice.name, choice.among) == ("good", 1)


def test_only_the_first_documents_are_scored_when_asked():
    losses = document_losses(
        make_model(llama_config()), token_set(*some_documents()), settings=ValidationSettings(max_documents=3)
    )
    assert len(losses.nll) == 3


def test_scoring_leaves_the_model_in_the_mode_it_was_in():
    model = make_model(llama_config()).train()
    document_losses(model, token_set([1, 2]))
    assert model.training
