"""A byte-level BPE trained on the corpus, saved as a folder that transformers' AutoTokenizer loads.

Byte-level, so no text is unknown; digits stay single, so that arithmetic is not a matter of which numbers the merges
happened to join.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajsoup.errors import CorpusError
from trajsoup.store.json_file import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_OF_TEXT = "<|endoftext|>"
USER, ASSISTANT = "<|user|>", "<|assistant|>"
SPECIAL = (END_OF_TEXT, USER, ASSISTANT)  # ids 0, 1, 2
BYTE_SYMBOLS = 256
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
END_CANDIDATES = (END_OF_TEXT, "</s>", "<|end_of_text|>", "<eos>", "[SEP]")


def train_tokenizer(texts: Iterable[str], folder: Path, *, vocab_size: int) -> None:
    """Learn `vocab_size` tokens from the texts and write the tokenizer's files into `folder`. Deterministic."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    least = BYTE_SYMBOLS + len(SPECIAL)
    if vocab_size < least:
        raise CorpusError(f"vocab_size is {vocab_size}, fewer than the {least} bytes and special tokens: raise it")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_tokenizer(folder: Path) -> Tokenizer:
    """Open the fast tokenizer of a folder, without transformers."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CorpusError(
            f"{folder} has no tokenizer.json: name a folder with a fast tokenizer (save_pretrained of a *Fast class)"
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception for every damaged file
        raise CorpusError(f"{path} cannot be read as a tokenizer ({error}): copy or save it again") from error


def end_of_text_id(tokenizer: Tokenizer, folder: Path) -> int:
    """The id that ends every document: the folder's eos_token, or a usual name for it."""
    names = list(END_CANDIDATES)
    config = folder / "tokenizer_config.json"
    if config.is_file():
        eos = read_json(config, dict[str, Any], cure="copy or save it again", error=CorpusError).get("eos_token")
        name = eos.get("content") if isinstance(eos, dict) else eos
        names = [name, *names] if isinstance(name, str) else names
    for name in names:
        found = tokenizer.token_to_id(name)
        if found is not None:
            return found
    raise CorpusError(
        f"the tokenizer in {folder} names no end-of-text token: set eos_token in its tokenizer_config.json"
    )
