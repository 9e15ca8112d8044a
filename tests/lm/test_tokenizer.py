import pytest

from trajsoup.errors import CorpusError
from trajsoup.lm.tokenizer import END_OF_TEXT, end_of_text_id, load_tokenizer, train_tokenizer

TEXTS = [f"def f{i}(x): return x + {i}  # naïve café ☕\n" for i in range(200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(TEXTS, path, vocab_size=280)
    return path


def test_transformers_loads_it_and_encodes_the_same(folder):
    from transformers import AutoTokenizer

    theirs, ours = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder)
    assert len(theirs) == ours.get_vocab_size() == 280
    assert theirs.eos_token_id == end_of_text_id(ours, folder) == 0
    for text in TEXTS[:3]:
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text, add_special_tokens=False).ids


def test_any_text_survives_the_round_trip(folder):
    tokenizer = load_tokenizer(folder)
    for text in ("", " ", "\n\n\t x", "日本語", "a\u0000b", "🙂" * 3, "x" * 1000, "\r\n"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_digits_are_never_joined(folder):
    tokens = load_tokenizer(folder).encode("12345 + 67").tokens
    assert [t for t in tokens if any(c.isdigit() for c in t)] == list("1234567")


def test_the_chat_template_gives_the_tokens_of_the_post_training_tasks(folder):
    from transformers import AutoTokenizer

    from trajsoup.lm.tasks.post_training import chat

    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Who?"}], tokenize=False, add_generation_prompt=True
    )
    assert text == chat("Who?", "Me").prompt


def test_training_twice_gives_the_same_files(folder, tmp_path):
    train_tokenizer(TEXTS, tmp_path, vocab_size=280)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_a_folder_without_a_usable_tokenizer_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CorpusError, match="cannot be read as a tokenizer"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_without_an_end_is_refused(tmp_path):
    from tokenizers import Tokenizer, models

    with pytest.raises(CorpusError, match="no end-of-text token"):
        end_of_text_id(Tokenizer(models.BPE()), tmp_path)
    assert END_OF_TEXT == "<|endoftext|>"


def test_a_damaged_config_beside_a_tokenizer_is_named(folder, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": ')
    with pytest.raises(CorpusError, match=r"tokenizer_config.json is damaged .*copy or save it again"):
        end_of_text_id(load_tokenizer(folder), tmp_path)
