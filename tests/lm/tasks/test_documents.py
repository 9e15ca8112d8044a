import numpy as np
import pytest

from trajsoup.core.scores import by_unit
from trajsoup.core.splits import Split
from trajsoup.lm.corpus import CorpusSpec, load_corpus
from trajsoup.lm.tasks.documents import PLACES, document_tasks
from trajsoup.lm.tasks.items import Metric
from trajsoup.lm.tokenizer import load_tokenizer

WORDS = (
    "configuration",
    "registration",
    "optimization",
    "translation",
    "interpolation",
    "quantization",
    "mapping",
    "call",
)
TEXT = (
    "Return the present state of the model before the {word} is done.\n"
    "What follows is a list of parts, each with the name of its {word}\n"
    "and a value that somebody set with {word}_value in module{n}\n"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    for name, count in (("train", 12), ("held", 8)):
        (folder / name).mkdir()
        for i in range(count):
            (folder / name / f"{i}.txt").write_text(f"{name} {i}\n" + TEXT.format(n=i, word=WORDS[i % 8]) * 2)
    (folder / "test.txt").write_text("one more document\n")
    held = (folder / "held",)
    spec = CorpusSpec(train=(folder / "train",), validation=held, test=(folder / "test.txt",), vocab_size=290)
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
    assert found <= {"done.", *WORDS, *(f"module{n}" for n in range(8))}
    assert len(found) > 8
    assert made["language/last_word"].task.metric is Metric.OPTIONS


def test_long_words_and_identifiers_are_finished(made, corpus):
    endings = answers(made["professional/long_word"], corpus)
    assert all(any(word.endswith(ending) for word in (*WORDS, "somebody")) for ending in endings)


def test_one_of_four_lines_follows_and_all_places_are_equally_likely_to_be_right(corpus):
    task = document_tasks(corpus.validation, tokenizer=corpus.tokenizer, seed=3)[0]
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
            SUITE[:1], tokenizer=corpus.tokenizer, split=Split.VALIDATION, items_each=30, documents=documents
        )

    names = [t.task.name for t in suite(corpus.validation).tasks]
    assert names[0] == SUITE[0].name
    assert {"language/last_word", "professional/long_word"} <= set(names[1:]) <= {"/".join(what) for what in PLACES}
    assert len({suite(d).digest for d in (None, corpus.validation, corpus.train)}) == 3


def test_spans_of_one_sequence_are_scored_as_if_each_stood_alone(made, corpus):
    """A document may be one sequence that several items are spans of."""
    from trajsoup.lm.models import embedded_config, new_model
    from trajsoup.lm.tasks.items import Configuration
    from trajsoup.lm.tasks.prepared import PreparedSuite, PreparedTask
    from trajsoup.lm.tasks.scoring import score_suite

    config = embedded_config(vocab_size=290, end_of_text=0, sequence_length=64, changes={"num_hidden_layers": 1})
    model = new_model(config, seed=0)
    sequence = tuple(map(int, corpus.validation.tokens[:60]))
    spans = np.array([(0, 5, 8), (0, 20, 21), (0, 40, 44)])

    def scored(sequences, spans):
        task = PreparedTask(
            task=Configuration(name="a/b", category="a", metric=Metric.EXACT, chance=0.0),
            sequences=sequences,
            spans=spans,
            first=np.arange(len(spans) + 1),
            right=np.zeros(len(spans), np.int64),
            document=np.zeros(len(spans), np.int64),
        )
        suite = PreparedSuite(tasks=(task,), split=Split.VALIDATION, digest="", largest_token=289, longest=60)
        return score_suite(model, suite)[0]

    together = scored((sequence,), spans)
    apart = scored(tuple(sequence[:b] for _, _, b in spans), np.array([(i, a, b) for i, (_, a, b) in enumerate(spans)]))
    np.testing.assert_allclose(together.answer_loss, apart.answer_loss, rtol=1e-4)
    assert together.correct.tolist() == apart.correct.tolist()
    (sums,), (counts,) = by_unit([together], [together.correct])
    assert (sums.shape, counts.tolist()) == ((1, 1), [[3.0]])
