import numpy as np
import pytest

from trajsoup.core.splits import Split
from trajsoup.lm.corpus import CorpusSpec, load_corpus
from trajsoup.lm.tasks.documents import document_tasks
from trajsoup.lm.tasks.items import Metric
from trajsoup.lm.tokenizer import load_tokenizer

TEXT = (
    "Return the current configuration of model_parts as one mapping.\n"
    "The model_parts are those that somebody registered before the call.\n"
    "Every number {n} of them has a name, and names are never repeated.\n"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    for name, count in (("train", 12), ("held", 8)):
        (folder / name).mkdir()
        for i in range(count):
            (folder / name / f"{i}.txt").write_text(f"{name} {i}\n" + TEXT.format(n=i) * 3)
    held = (folder / "held",)
    spec = CorpusSpec(train=(folder / "train",), validation=held, test=(folder / "train",), vocab_size=400)
    return load_corpus(spec, cache=folder / "cache")


@pytest.fixture(scope="module")
def made(corpus):
    return {task.task.name: task for task in document_tasks(corpus.validation, tokenizer=corpus.tokenizer)}


def answers(task, corpus):
    decode = load_tokenizer(corpus.tokenizer).decode
    chosen = task.spans[task.first[:-1] + task.right]
    return [decode(list(task.sequences[s][a:b])) for s, a, b in chosen]


def test_last_words_of_lines_are_asked_for(made, corpus):
    found = {answer.strip() for answer in answers(made["language/last_word"], corpus)}
    assert {"mapping.", "call.", "repeated."} == found
    assert made["language/last_word"].task.metric is Metric.EXACT


def test_long_words_and_identifiers_are_finished(made, corpus):
    assert {a[-5:] for a in answers(made["professional/long_word"], corpus)} <= {"ation", "tered", "ebody"}
    assert all("parts".endswith(a[-2:]) for a in answers(made["coding/identifier"], corpus))


def test_one_of_four_lines_follows_and_all_places_are_equally_likely_to_be_right(corpus):
    task = document_tasks(corpus.validation, tokenizer=corpus.tokenizer, seed=3)[-1]
    assert (np.diff(task.first) == 4).all()
    assert set(task.right) <= set(range(4))
    assert len(set(task.right)) > 1


def test_every_item_knows_its_document_and_every_sequence_begins_after_an_end_of_text(made, corpus):
    for task in made.values():
        assert len(task.document) == len(task.right)
        assert task.document.max() < corpus.validation.n_documents
        assert {sequence[0] for sequence in task.sequences} == {0}


def test_the_suite_holds_them_beside_the_drawn_ones_and_another_text_is_another_suite(corpus):
    from trajsoup.lm.tasks.mid_training import SUITE
    from trajsoup.lm.tasks.scoring import prepare_suite

    def suite(documents):
        return prepare_suite(
            SUITE[:1], tokenizer=corpus.tokenizer, split=Split.VALIDATION, items_each=3, documents=documents
        )

    assert [t.task.name for t in suite(corpus.validation).tasks][1:] == [
        "language/last_word",
        "professional/long_word",
        "coding/identifier",
        "general/continuation",
    ]
    assert len({suite(d).digest for d in (None, corpus.validation, corpus.train)}) == 3


def test_spans_of_one_sequence_are_scored_as_if_each_stood_alone(made, corpus):
    from dataclasses import replace

    from trajsoup.lm.models import embedded_config, new_model
    from trajsoup.lm.tasks.prepared import PreparedSuite
    from trajsoup.lm.tasks.scoring import score_suite

    config = embedded_config(vocab_size=400, end_of_text=0, sequence_length=64, changes={"num_hidden_layers": 1})
    model = new_model(config, seed=0)
    task = made["language/last_word"]
    alone = replace(
        task,
        sequences=tuple(task.sequences[s][:b] for s, _, b in task.spans),
        spans=np.array([(i, a, b) for i, (_, a, b) in enumerate(task.spans)]),
    )
    together, apart = (
        score_suite(
            model,
            PreparedSuite(
                tasks=(t,),
                split=Split.VALIDATION,
                digest="",
                largest_token=max(map(max, t.sequences)),
                longest=max(map(len, t.sequences)),
            ),
        )[0]
        for t in (task, alone)
    )
    np.testing.assert_allclose(together.answer_loss, apart.answer_loss, rtol=1e-4)
    assert together.correct.tolist() == apart.correct.tolist()
    assert together.document.tolist() == task.document.tolist()
