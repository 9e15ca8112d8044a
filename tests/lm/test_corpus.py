import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from trajsoup.core.splits import Split, document_hash
from trajsoup.errors import CorpusError
from trajsoup.lm import corpus as corpus_module
from trajsoup.lm.corpus import CorpusSpec, load_corpus, require_same_tokenizer, require_vocabulary
from trajsoup.lm.tokenizer import load_tokenizer

SMALL = CorpusSpec(pretrain_bytes=200_000, train_bytes=100_000, document_tokens=64, vocab_size=400)
TRAINED_ON = (Split.PRETRAIN, Split.TRAIN)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def small(cache):
    return load_corpus(SMALL, cache=cache)


def texts(corpus, split):
    tokens, tokenizer = corpus.split(split), load_tokenizer(corpus.tokenizer)
    parts = [tokens.tokens[a:b].tolist() for a, b in zip(tokens.starts[:-1], tokens.starts[1:], strict=True)]
    assert all(part[-1] == 0 for part in parts)
    return tokenizer.decode_batch([part[:-1] for part in parts])


def write_jsonl(path, documents):
    path.write_text("".join(json.dumps(d if isinstance(d, dict) else {"text": d}) + "\n" for d in documents))
    return path


def some_texts(count, *, start=0):
    return [f"text number {i} of {count}, {i * i}" for i in range(start, start + count)]


def test_the_builtin_sets_share_no_document(small):
    found = {split: {document_hash(text) for text in texts(small, split)} for split in Split}
    for a in Split:
        assert found[a]
        for b in Split:
            assert a is b or not found[a] & found[b]


def test_code_is_pretrained_on_prose_is_mid_trained_on_and_both_have_all_five_kinds_of_task(small):
    def names(split):
        tokens = small.split(split)
        return {tokens.source_names[i] for i in set(tokens.source.tolist())}

    tasks = {f"tasks:{c}" for c in ("general", "language", "professional", "mathematics", "coding")}
    assert names(Split.PRETRAIN) == {"code", *tasks}
    assert {name for name in names(Split.TRAIN) if not name.startswith("prose:")} == tasks
    assert "prose:torch" in names(Split.TRAIN)
    assert names(Split.VALIDATION) == names(Split.TEST) == {"prose"}


def test_task_documents_have_about_their_share_of_the_bytes(small):
    for split in TRAINED_ON:
        tokens = small.split(split)
        is_task = np.array([tokens.source_names[i].startswith("tasks:") for i in tokens.source])
        share = tokens.document_bytes[is_task].sum() / tokens.document_bytes.sum()
        assert share == pytest.approx(SMALL.task_share, abs=0.08)


def test_a_file_is_one_document_of_one_set_and_there_are_hundreds_to_score_on(small):
    for split, least in ((Split.VALIDATION, 200), (Split.TEST, 400)):
        lengths = np.diff(small.split(split).starts)
        assert lengths.max() <= SMALL.document_tokens
        assert lengths.sum() ** 2 / (lengths**2).sum() >= least  # Kish


@pytest.mark.parametrize("kind", ["jsonl", "npy"])
def test_of_a_held_out_document_no_more_than_its_beginning_is_scored(tmp_path, kind):
    text = "é word " * 60
    if kind == "jsonl":
        held = write_jsonl(tmp_path / "held.jsonl", [text, "short one"])
        sets = {"validation": (held,), "test": (write_jsonl(tmp_path / "test.jsonl", some_texts(3)),)}
        spec = CorpusSpec(train=(write_jsonl(tmp_path / "t.jsonl", some_texts(30)),), vocab_size=280, **sets)
    else:
        whole = load_corpus(
            CorpusSpec(train=(write_jsonl(tmp_path / "t.jsonl", some_texts(30)),), vocab_size=280), cache=tmp_path
        )
        for name, lengths in (("train", (9, 90)), ("held", (90, 9))):
            np.save(tmp_path / f"{name}.npy", np.concatenate([[*np.arange(5, 4 + n), 0] for n in lengths]))
        sets = dict.fromkeys(("validation", "test"), (tmp_path / "held.npy",))
        spec = CorpusSpec(train=(tmp_path / "train.npy",), tokenizer=whole.tokenizer, **sets)
    cut, full = (load_corpus(replace(spec, document_tokens=n), cache=tmp_path / "c") for n in (20, 2000))
    first = full.validation.tokens[:19]
    assert np.diff(full.validation.starts)[0] > 60
    assert np.diff(cut.validation.starts)[0] == 20
    assert cut.validation.tokens[:19].tolist() == first.tolist()
    assert cut.validation.tokens[19] == 0
    assert cut.validation.targets[:2].tolist() == [19, np.diff(full.validation.starts)[1]]
    assert full.validation.cut is None
    assert np.diff(cut.validation.starts)[1] == np.diff(full.validation.starts)[1]
    assert cut.train.digest == full.train.digest
    if kind == "jsonl":
        decoded = load_tokenizer(cut.tokenizer).decode(first.tolist())
        assert cut.validation.document_bytes[0] == len(decoded.encode())


def test_the_digest_is_of_tokens_and_starts(small):
    import hashlib

    train = small.train
    assert train.digest == hashlib.sha256(train.tokens.tobytes() + train.starts.tobytes()).hexdigest()
    assert train.tokens.dtype == np.uint16
    assert not train.tokens.flags.writeable
    assert train.starts[-1] == len(train.tokens)


def test_a_corpus_is_built_once_and_the_same_everywhere(small, cache, tmp_path, monkeypatch):
    elsewhere = load_corpus(SMALL, cache=tmp_path)
    assert [elsewhere.split(s).digest for s in Split] == [small.split(s).digest for s in Split]
    monkeypatch.setattr(corpus_module, "_build", lambda *_: pytest.fail("built twice"))
    again = load_corpus(SMALL, cache=cache)
    assert again.train.digest == small.train.digest


def test_another_seed_gives_other_tasks_and_the_same_library(small, cache):
    other = load_corpus(replace(SMALL, seed=1), cache=cache)
    assert other.train.digest != small.train.digest
    prose = [
        {
            t
            for t, s in zip(texts(c, Split.TRAIN), c.train.source, strict=True)
            if c.train.source_names[s].startswith("prose:")
        }
        for c in (small, other)
    ]
    assert prose[0] == prose[1]


def test_two_processes_may_build_the_same_corpus_at_once(tmp_path):
    folder = tmp_path / "documents.jsonl"
    write_jsonl(folder, some_texts(80))
    found = []
    spec = CorpusSpec(train=(folder,), vocab_size=280)
    threads = [threading.Thread(target=lambda: found.append(load_corpus(spec, cache=tmp_path / "c"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({c.train.digest for c in found}) == 1
    assert len(found) == 3


def test_text_jsonl_and_parquet_give_the_same_documents(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    documents = some_texts(90)
    (tmp_path / "text").mkdir()
    for i, text in enumerate(documents):
        (tmp_path / "text" / f"{i:03}.txt").write_text(text)
    write_jsonl(tmp_path / "a.jsonl", documents)
    parquet.write_table(pyarrow.table({"text": documents}), tmp_path / "a.parquet")
    digests = set()
    for path in (tmp_path / "text", tmp_path / "a.jsonl", tmp_path / "a.parquet"):
        corpus = load_corpus(CorpusSpec(train=(path,), vocab_size=280), cache=tmp_path / "cache")
        digests.add((corpus.train.digest, corpus.validation.digest, corpus.test.digest))
        assert sorted(sum((texts(corpus, s) for s in Split), [])) == sorted(documents)  # noqa: RUF017
    assert len(digests) == 1


def test_a_document_stays_in_its_set_when_others_are_added(tmp_path):
    few = load_corpus(
        CorpusSpec(train=(write_jsonl(tmp_path / "few.jsonl", some_texts(100)),), vocab_size=280),
        cache=tmp_path / "cache",
    )
    more = load_corpus(
        CorpusSpec(
            train=(write_jsonl(tmp_path / "more.jsonl", [*some_texts(100), *["x y"], "another"]),), vocab_size=280
        ),
        cache=tmp_path / "cache",
    )
    for split in (Split.TRAIN, Split.VALIDATION, Split.TEST):
        assert set(texts(few, split)) <= set(texts(more, split))


def test_a_training_document_that_is_also_in_a_held_out_set_is_left_out_of_training(tmp_path):
    shared = "this one is everywhere"
    spec = CorpusSpec(
        train=(write_jsonl(tmp_path / "train.jsonl", [*some_texts(20), shared]),),
        validation=(write_jsonl(tmp_path / "validation.jsonl", [*some_texts(5, start=100), shared]),),
        test=(write_jsonl(tmp_path / "test.jsonl", some_texts(5, start=200)),),
        vocab_size=280,
    )
    corpus = load_corpus(spec, cache=tmp_path / "cache")
    assert shared in texts(corpus, Split.VALIDATION)
    assert shared not in texts(corpus, Split.TRAIN)
    assert len(texts(corpus, Split.TRAIN)) == 20


def test_the_tokenizer_never_sees_held_out_documents(tmp_path):
    held = ["zzzzqqqq " * 50] * 1 + ["zzzzqqqq and more " * 50]
    spec = CorpusSpec(
        train=(write_jsonl(tmp_path / "train.jsonl", some_texts(30)),),
        validation=(write_jsonl(tmp_path / "validation.jsonl", held[:1]),),
        test=(write_jsonl(tmp_path / "test.jsonl", held[1:]),),
        vocab_size=300,
    )
    vocabulary = load_tokenizer(load_corpus(spec, cache=tmp_path / "cache").tokenizer).get_vocab()
    assert not [token for token in vocabulary if "zz" in token]


def test_sources_and_bytes_are_kept(tmp_path):
    documents = [{"text": f"é{i}", "source": "web" if i % 2 else "books"} for i in range(60)]
    corpus = load_corpus(
        CorpusSpec(train=(write_jsonl(tmp_path / "a.jsonl", documents),), vocab_size=280), cache=tmp_path / "cache"
    )
    assert set(corpus.train.source_names) == {"web", "books"}
    lengths = [len(text.encode()) for text in texts(corpus, Split.TRAIN)]
    assert corpus.train.document_bytes.tolist() == lengths


def test_empty_documents_are_left_out_and_one_token_documents_kept(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", ["", "  \n", "x", *some_texts(60)])
    corpus = load_corpus(CorpusSpec(train=(path,), vocab_size=280), cache=tmp_path / "cache")
    found = [text for split in Split for text in texts(corpus, split)]
    assert "x" in found
    assert len(found) == 61
    assert min(np.diff(corpus.train.starts)) >= 2


def token_file(path, documents, *, end=0, dtype=np.uint16):
    tokens = np.array([token for document in documents for token in [*document, end]], dtype)
    np.save(path, tokens)
    return path


def test_a_memmap_of_tokens_is_taken_as_it_is(tmp_path, small):
    paths = {
        split: token_file(tmp_path / f"{split}.npy", [[i + 5, i + 6] for i in range(3)])
        for split in ("train", "validation", "test")
    }
    spec = CorpusSpec(**{split: (path,) for split, path in paths.items()}, tokenizer=small.tokenizer)
    corpus = load_corpus(spec, cache=tmp_path / "cache")
    assert corpus.train.starts.tolist() == [0, 3, 6, 9]
    assert corpus.train.tokens[:3].tolist() == [5, 6, 0]
    assert corpus.train.document_bytes is None
    assert corpus.tokenizer == small.tokenizer


def test_tokens_that_cannot_be_used_are_refused(tmp_path, small):
    good = (token_file(tmp_path / "good.npy", [[5]]),)

    def spec(path, **changes):
        fields = {"train": (path,), "validation": good, "test": good, "tokenizer": small.tokenizer} | changes
        return CorpusSpec(**fields)

    cases = {
        r"token 400, but its tokenizer has 400": token_file(tmp_path / "large.npy", [[400]]),
        r"never ends a document": token_file(tmp_path / "endless.npy", [[5]], end=6),
        r"document 1 is empty": token_file(tmp_path / "empty.npy", [[5], [], [6]]),
    }
    np.save(tmp_path / "floats.npy", np.ones(4))
    cases[r"1-D array of integers"] = tmp_path / "floats.npy"
    (tmp_path / "broken.npy").write_bytes(b"nothing")
    cases[r"cannot be read as tokens"] = tmp_path / "broken.npy"
    for message, path in cases.items():
        with pytest.raises(CorpusError, match=message):
            load_corpus(spec(path), cache=tmp_path / "cache")
    for header in (
        b"",
        b"{'descr': '<u2', 'shape': (4",
        b"{'descr': " + b"9" * 5000,
        b"{'descr': 0, 'shape': 0}",
        b"[" * 900,
    ):
        (tmp_path / "header.npy").write_bytes(b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header)
        with pytest.raises(CorpusError, match="cannot be read as tokens"):
            load_corpus(spec(tmp_path / "header.npy"), cache=tmp_path / "cache")
    with pytest.raises(CorpusError, match=r"set corpus\.tokenizer"):
        load_corpus(spec(good[0], tokenizer=None), cache=tmp_path / "cache")
    with pytest.raises(CorpusError, match="name validation and test"):
        load_corpus(spec(good[0], validation=()), cache=tmp_path / "cache")


def test_files_that_cannot_be_read_are_named_with_the_line_or_column(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    (tmp_path / "field.jsonl").write_text('{"body": "x"}\n')
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    (tmp_path / "what.xyz").write_text("x")
    (tmp_path / "empty").mkdir()
    cases = {
        "bad.jsonl": r"line 2 is damaged",
        "field.jsonl": r"no text in the field 'text' \(it has: body\)",
        "latin.txt": r"not UTF-8",
        "bad.parquet": r"not a readable Parquet",
        "what.xyz": r"of no known kind",
        "empty": r"holds no corpus file",
        "nowhere": r"no corpus at",
    }
    for name, message in cases.items():
        with pytest.raises(CorpusError, match=message):
            load_corpus(CorpusSpec(train=(tmp_path / name,), vocab_size=280), cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("corpus-*"))


@pytest.mark.parametrize("damage", ["{", '{"vocab_size": 280}', "[]"])
def test_a_damaged_record_in_the_cache_is_named_with_the_remedy(tmp_path, damage):
    spec = CorpusSpec(train=(write_jsonl(tmp_path / "a.jsonl", some_texts(60)),), vocab_size=280)
    load_corpus(spec, cache=tmp_path / "cache")
    (record,) = (tmp_path / "cache").glob("corpus-*/corpus.json")
    record.write_text(damage)
    with pytest.raises(CorpusError, match=r"corpus.json is damaged .*remove its folder"):
        load_corpus(spec, cache=tmp_path / "cache")


def test_a_corpus_too_small_for_its_splits_says_which_has_nothing(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", ["only one", "or two"])
    with pytest.raises(CorpusError, match=r"too small for its splits: \w+ has no document \(pretrain 0, train"):
        load_corpus(CorpusSpec(train=(path,), vocab_size=280), cache=tmp_path / "cache")


def test_a_tokenizer_that_disagrees_with_the_model_is_refused(small, tmp_path):
    require_vocabulary(small, vocab_size=400, model="fine")
    with pytest.raises(CorpusError, match=r"the model has 399 embeddings.*400 tokens"):
        require_vocabulary(small, vocab_size=399, model="the model")
    require_same_tokenizer(small, model=small.tokenizer)
    require_same_tokenizer(small, model=tmp_path)
    path = write_jsonl(tmp_path / "a.jsonl", some_texts(90))
    other = load_corpus(CorpusSpec(train=(path,), vocab_size=280), cache=tmp_path / "cache")
    with pytest.raises(CorpusError, match="disagree: token"):
        require_same_tokenizer(small, model=other.tokenizer)


def test_settings_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="add train"):
        load_corpus(CorpusSpec(test=(tmp_path,)), cache=tmp_path)
    with pytest.raises(CorpusError, match="task_share is 1"):
        load_corpus(CorpusSpec(task_share=1.0), cache=tmp_path)
    with pytest.raises(CorpusError, match="vocab_size is 100"):
        load_corpus(CorpusSpec(vocab_size=100, pretrain_bytes=100_000, train_bytes=10_000), cache=tmp_path)
    with pytest.raises(CorpusError, match=r"no tokenizer\.json"):
        load_corpus(CorpusSpec(tokenizer=tmp_path), cache=tmp_path)


def test_documents_to_score_on_are_enough_where_nothing_is_trained(tmp_path, small):
    sets = {name: (write_jsonl(tmp_path / f"{name}.jsonl", some_texts(5, start=i)),) for i, name in
            ((0, "validation"), (100, "test"))}  # fmt: skip
    spec = CorpusSpec(**sets, tokenizer=small.tokenizer)
    assert not spec.can_train
    corpus = load_corpus(spec, cache=tmp_path / "cache")
    assert (corpus.train.n_documents, corpus.validation.n_documents, corpus.test.n_documents) == (0, 5, 5)
    with pytest.raises(CorpusError, match=r"set corpus\.tokenizer"):
        load_corpus(CorpusSpec(**sets), cache=tmp_path / "cache")
    with pytest.raises(CorpusError, match="name both validation and test"):
        load_corpus(CorpusSpec(validation=sets["validation"], tokenizer=small.tokenizer), cache=tmp_path / "cache")
