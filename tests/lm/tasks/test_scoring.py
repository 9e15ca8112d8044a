import numpy as np
import pytest
import torch

from tests.lm.tiny_models import llama_config, make_model
from trajsoup.core.splits import Split
from trajsoup.errors import ScoreError
from trajsoup.lm.tasks import mid_training, post_training, scoring
from trajsoup.lm.tasks.items import Item, Metric, Task, items
from trajsoup.lm.tasks.scoring import prepare_items, prepare_suite, reads_trees, score_suite
from trajsoup.lm.tasks.training import task_documents
from trajsoup.lm.tokenizer import load_tokenizer, train_tokenizer

VOCAB = 400


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer((d.text for d in task_documents(Split.TRAIN, characters=60_000)), folder, vocab_size=VOCAB)
    return folder


def task_of(metric):
    return Task(name="t", category="c", metric=metric, chance=0.5, draw=lambda r: None)


def trained_on(found, tokenizer, *, steps=60):
    """A model that has memorised items."""
    encoder = load_tokenizer(tokenizer)
    model = make_model(llama_config(VOCAB, hidden_size=32, intermediate_size=64)).train()
    rows = [[0, *encoder.encode(i.prompt).ids, *encoder.encode(f"{i.answer}\n").ids] for i in found]
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def half_trained(tokenizer):
    """Knows some answers and not others, so that both outcomes occur."""
    found = {t.name: items(t, split=Split.TRAIN, count=12) for t in mid_training.SUITE + post_training.SUITE}
    return trained_on([i for name in found for i in found[name][:6]], tokenizer, steps=120), found


def generated(model, tokenizer, item):
    encoder = load_tokenizer(tokenizer)
    ids = torch.tensor([[0, *encoder.encode(item.prompt).ids]])
    mask = torch.ones_like(ids)  # or the first token, which is also the padding, would be masked

    def line_ended(tokens, scores):
        return torch.tensor(["\n" in encoder.decode(tokens[0, ids.shape[1] :].tolist(), skip_special_tokens=False)])

    output = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=64,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        stopping_criteria=[line_ended],
    )
    return encoder.decode(output[0, ids.shape[1] :].tolist(), skip_special_tokens=False).split("\n")[0]


def test_exact_match_is_what_greedy_generation_would_say(half_trained, tokenizer):
    model, found = half_trained
    exact = [t for t in mid_training.SUITE + post_training.SUITE if t.metric is Metric.EXACT]
    suite = prepare_items([(t, found[t.name]) for t in exact], tokenizer=tokenizer, split=Split.TRAIN)
    results = score_suite(model, suite)
    outcomes = []
    for task, result in zip(exact, results, strict=True):
        expected = [float(generated(model, tokenizer, item) == item.answer) for item in found[task.name]]
        assert result.correct.tolist() == expected, task.name
        outcomes += expected
    assert 0.2 < np.mean(outcomes) < 0.8


def test_option_scores_are_the_likelihoods_of_the_definition(half_trained, tokenizer):
    model, found = half_trained
    task = next(t for t in mid_training.SUITE if t.metric is Metric.OPTIONS)
    suite = prepare_items([(task, found[task.name])], tokenizer=tokenizer, split=Split.TRAIN)
    encoder = load_tokenizer(tokenizer)
    for item, correct in zip(found[task.name], score_suite(model, suite)[0].correct, strict=True):
        totals = {}
        for option in item.options:
            context, answer = encoder.encode(item.prompt).ids, encoder.encode(f"{option}\n").ids
            with torch.inference_mode():
                logits = model(torch.tensor([[0, *context, *answer]])).logits[0]
            probabilities = torch.log_softmax(logits, -1)
            totals[option] = sum(probabilities[len(context) + j, token].item() for j, token in enumerate(answer))
        assert (max(totals, key=totals.get) == item.answer) == bool(correct)


def test_batching_changes_nothing(half_trained, tokenizer):
    model, found = half_trained
    suite = prepare_items([(t, found[t.name]) for t in mid_training.SUITE], tokenizer=tokenizer, split=Split.TRAIN)
    one, many = (score_suite(model, suite, batch_tokens=size) for size in (1, 100_000))
    assert [t.correct.tolist() for t in one] == [t.correct.tolist() for t in many]


def test_what_sequences_share_is_read_once_with_the_same_answers(half_trained, tokenizer, monkeypatch):
    model, found = half_trained
    suite = prepare_items([(t, found[t.name]) for t in mid_training.SUITE], tokenizer=tokenizer, split=Split.TRAIN)
    assert reads_trees(model)
    together = score_suite(model, suite)
    monkeypatch.setitem(scoring._READS_TREES, model, False)
    apart = score_suite(model, suite)
    for one, other in zip(together, apart, strict=True):
        assert one.correct.tolist() == other.correct.tolist()
        np.testing.assert_allclose(one.answer_loss, other.answer_loss, rtol=1e-4, atol=1e-4)
    tokens = [sum(len(forest.tokens) for forest in wood.forests) for wood in (suite.trees, suite.lines)]
    assert tokens[0] < 0.5 * tokens[1]


def test_a_model_that_sees_a_window_only_reads_line_by_line(tokenizer):
    from transformers import MistralConfig

    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = make_model(MistralConfig(vocab_size=VOCAB, num_key_value_heads=2, sliding_window=2, **shape))
    assert not reads_trees(model)
    suite = prepare_suite(mid_training.SUITE[:1], tokenizer=tokenizer, split=Split.TEST, items_each=5)
    assert len(score_suite(model, suite)[0].correct) == 5


@pytest.mark.parametrize("suite", [mid_training.SUITE, post_training.SUITE], ids=["mid-training", "post-training"])
def test_prompt_and_answer_are_cut_where_training_text_is(suite, tokenizer):
    encoder = load_tokenizer(tokenizer)
    for task in suite:
        for item in items(task, split=Split.TEST, count=40):
            apart = encoder.encode(item.prompt).ids + encoder.encode(f"{item.answer}\n").ids
            assert encoder.encode(item.text).ids == apart, item


def test_a_model_that_ignores_everything_gets_no_more_than_chance(tokenizer):
    model = make_model(llama_config(VOCAB))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    suite = prepare_suite(mid_training.SUITE, tokenizer=tokenizer, split=Split.TEST, items_each=150)
    for result, task in zip(score_suite(model, suite), mid_training.SUITE, strict=True):
        assert result.accuracy <= (0 if task.metric is Metric.EXACT else task.chance + 0.12), task.name


def test_an_untrained_model_is_at_chance_for_options_and_at_nothing_for_exact_match(tokenizer):
    suite = prepare_suite(mid_training.SUITE, tokenizer=tokenizer, split=Split.TEST, items_each=150)
    for result, task in zip(score_suite(make_model(llama_config(VOCAB)), suite), mid_training.SUITE, strict=True):
        if task.metric is Metric.EXACT:
            assert result.accuracy == 0
        else:
            assert abs(result.accuracy - task.chance) < 0.2


def test_a_model_of_nan_gets_no_points(tokenizer):
    model = make_model(llama_config(VOCAB))
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    suite = prepare_suite(mid_training.SUITE, tokenizer=tokenizer, split=Split.TEST, items_each=5)
    assert all(result.accuracy == 0 for result in score_suite(model, suite))


def test_a_shorter_number_is_not_taken_for_the_beginning_of_a_longer_one(tokenizer):
    found = [Item(prompt="9+9=", answer="18", options=("1", "18"))] * 1
    model = trained_on(found, tokenizer)
    suite = prepare_items([(task_of(Metric.OPTIONS), found)], tokenizer=tokenizer, split=Split.TRAIN)
    assert score_suite(model, suite)[0].accuracy == 1


def test_the_digest_names_items_tokens_and_metric(tokenizer):
    found = [Item(prompt="9+9=", answer="18", options=("1", "18"))]
    digests = {
        prepare_items([(task_of(metric), found[:1])], tokenizer=tokenizer, split=Split.TEST).digest for metric in Metric
    }
    assert len(digests) == 2


def test_a_suite_that_cannot_be_scored_is_refused(tokenizer):
    found = [Item(prompt="9+9=", answer="18")]
    with pytest.raises(ScoreError, match="scored by options, but an item has none"):
        prepare_items([(task_of(Metric.OPTIONS), found)], tokenizer=tokenizer, split=Split.TEST)
    with pytest.raises(ScoreError, match="no task"):
        prepare_suite([], tokenizer=tokenizer, split=Split.TEST)
    suite = prepare_items([(task_of(Metric.EXACT), found)], tokenizer=tokenizer, split=Split.TEST)
    with pytest.raises(ScoreError, match="different tokenizers"):
        score_suite(make_model(llama_config(10)), suite)
    long = prepare_items(
        [(task_of(Metric.EXACT), [Item(prompt="9 " * 300, answer="1")])], tokenizer=tokenizer, split=Split.TEST
    )
    with pytest.raises(ScoreError, match="leave its task out"):
        score_suite(make_model(llama_config(VOCAB)), long)
