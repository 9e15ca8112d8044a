import pytest

from trajsoup.core.quantity import format_tokens, parse_bytes, parse_number, parse_share, parse_tokens
from trajsoup.errors import StudyError


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("600B", 600 * 10**9),
        ("12.5B", 12_500_000_000),
        ("30T", 30 * 10**12),
        ("64k", 64_000),
        ("64K", 64_000),
        ("2m", 2_000_000),
        ("1_000", 1000),
        ("262,144", 262_144),
        (40960, 40960),
        ("1e6", 10**6),
        (2.0e9, 2 * 10**9),
    ],
)
def test_tokens_are_read_with_their_suffix_exactly(text, tokens):
    assert parse_tokens(text, where="horizon") == tokens


@pytest.mark.parametrize("text", ["", "B", "-5", "0", "1.5", "0.0001k", "5 apples", True, None, "nan", "5BB", [5]])
def test_what_is_no_whole_number_of_tokens_is_refused_by_name(text):
    with pytest.raises(StudyError, match="horizon"):
        parse_tokens(text, where="horizon")


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(600 * 10**9, "600B"), (12_500_000_000, "12.5B"), (65_536, "65.54k"), (999, "999"), (25 * 10**15, "25,000T")],
)
def test_tokens_are_written_as_the_paper_writes_them(tokens, text):
    assert format_tokens(tokens) == text


def test_a_share_is_a_percentage_or_a_number_up_to_one():
    assert parse_share("1%", where="warmup") == 0.01
    assert parse_share(0.2, where="warmup") == 0.2
    for wrong in ("101%", 1.5, "-1%", "x", True):
        with pytest.raises(StudyError, match="warmup"):
            parse_share(wrong, where="warmup")


def test_text_that_is_a_number_counts_as_one_because_yaml_reads_1e_4_as_text():
    assert parse_number("1e-4", where="peak_lr") == 1e-4
    for wrong in ("fast", "inf", None, True, [1]):
        with pytest.raises(StudyError, match="peak_lr"):
            parse_number(wrong, where="peak_lr")


@pytest.mark.parametrize(
    ("text", "nbytes"), [("5GB", 5 * 10**9), ("1.5 gib", 3 * 2**29), ("0.3kB", 300), ("2,000", 2000), (7, 7), ("3b", 3)]
)
def test_bytes_are_read_with_their_unit(text, nbytes):
    assert parse_bytes(text, where="--shard-size") == nbytes


@pytest.mark.parametrize("text", ["", "GB", "-5GB", "0", "0.1", "5 GBs", True, "5BB"])
def test_what_is_no_number_of_bytes_is_refused_by_name(text):
    with pytest.raises(StudyError, match="--shard-size"):
        parse_bytes(text, where="--shard-size")
