import pytest

from trajsoup.errors import CUT, StudyError
from trajsoup.store.shown import is_plain, shown, shown_message, shown_name


@pytest.mark.parametrize("text", ["\x1b[2J", "\r", "\x07", "\x9b31m", "\x7f", "\u202e", "\u2028", "\udcff", "\0"])
def test_what_a_terminal_would_act_on_is_spelled_out(text):
    assert shown(f"a{text}b").isprintable()
    assert not is_plain(text)


def test_what_people_write_stays_as_it_is():
    assert shown("Grüße, 你好 🙂\n\tx") == "Grüße, 你好 🙂\n\tx"
    assert shown_name("a\nb\tc") == "a\\nb\\tc"
    assert is_plain("Grüße 你好")


def test_an_endless_message_is_cut_and_keeps_what_to_do():
    said = shown_message(ValueError("x" * 10_000 + ": do this"))
    assert len(said) < CUT + 20
    assert said.endswith(": do this")


def test_no_error_of_ours_says_more_than_can_be_read_whoever_asks_it():
    said = str(StudyError("x" * 10_000 + ": do this"))
    assert len(said) < CUT + 20
    assert said.endswith(": do this")


def test_no_name_breaks_the_line_of_an_error():
    assert str(StudyError("a name of\r\ntwo lines: mend it")) == "a name of\\r\\ntwo lines: mend it"
