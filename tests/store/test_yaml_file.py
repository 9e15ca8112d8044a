import pytest

from trajsoup.errors import StudyError
from trajsoup.store.yaml_file import MAX_BYTES, check_keys, load_yaml


def written(folder, text):
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def test_plain_data_are_read(tmp_path):
    assert load_yaml(written(tmp_path, "a: 1\nb: [x, {c: 2.5}]\n")) == {"a": 1, "b": ["x", {"c": 2.5}]}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['touch {marker}']",
        "a: !!python/name:os.system",
        "a: !custom 1",
        "!!python/object/new:os.system ['touch {marker}']",
    ],
)
def test_tags_are_refused_and_run_nothing(tmp_path, text):
    marker = tmp_path / "ran"
    with pytest.raises(StudyError, match=r"study\.yaml is not valid: .*could not determine a constructor"):
        load_yaml(written(tmp_path, text.replace("{marker}", str(marker))))
    assert not marker.exists()


@pytest.mark.parametrize("text", ["a: &x [1]\nb: *x\n", "a: &x 1\n", "- &x a\n- *x\n", "a: {<<: *x}\n"])
def test_anchors_and_aliases_are_refused(tmp_path, text):
    with pytest.raises(StudyError, match=r"anchors and aliases are not allowed"):
        load_yaml(written(tmp_path, text))


def test_a_document_that_would_expand_without_bound_is_refused_at_once(tmp_path):
    levels = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 12))
    with pytest.raises(StudyError, match=r"anchors and aliases"):
        load_yaml(written(tmp_path, f"l0: &l0 [x]\n{levels}"))


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "x: {a: 1, a: 2}\n"])
def test_a_key_given_twice_is_refused(tmp_path, text):
    with pytest.raises(StudyError, match=r"'a' is given twice"):
        load_yaml(written(tmp_path, text))


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "\x00", "[" * 5000, "? {a: 1}\n: 2"])
def test_broken_yaml_is_one_readable_line(tmp_path, text):
    with pytest.raises(StudyError, match=r"study\.yaml is not valid: ") as raised:
        load_yaml(written(tmp_path, text))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "expected ',' or ']'"),
        ("a: 1\n\tb: 2\n", 2, "cannot start any token"),
        ("a: b: c\n", 1, "mapping values are not allowed here"),
        ("a: 1\nb: 2\na: 3\n", 1, "'a' is given twice"),
    ],
)
def test_a_syntax_error_says_line_reason_and_cure(tmp_path, text, line, why):
    with pytest.raises(
        StudyError, match=rf"study\.yaml is not valid: line {line}, column \d+: .*{why}.*: mend the line"
    ):
        load_yaml(written(tmp_path, text))


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n", "3\n"])
def test_a_file_without_keys_is_refused(tmp_path, text):
    with pytest.raises(StudyError, match=r"does not hold `key: value` lines"):
        load_yaml(written(tmp_path, text))


def test_a_file_that_is_far_too_large_is_not_even_read(tmp_path):
    path = written(tmp_path, "")
    with path.open("r+b") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(StudyError, match=r"more than 16,777,216 bytes"):
        load_yaml(path)


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(StudyError, match=r"cannot read .*nowhere\.yaml: No such file"):
        load_yaml(tmp_path / "nowhere.yaml")
    (tmp_path / "study.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudyError, match=r"study\.yaml is not valid"):
        load_yaml(tmp_path / "study.yaml")


def test_an_unknown_key_brings_the_nearest_known_one():
    with pytest.raises(StudyError, match=r"here: unknown key 'brancehs': did you mean 'branches'\?"):
        check_keys({"brancehs": 1}, ("fork_point", "branches"), where="here")
    with pytest.raises(StudyError, match=r"unknown key 'zzz': known keys: fork_point, branches"):
        check_keys({"zzz": 1}, ("fork_point", "branches"), where="here")
    with pytest.raises(StudyError, match=r"here: expected `key: value` lines, got \[1\]"):
        check_keys([1], ("a",), where="here")


GARBAGE = {
    "no such month": "a: 2024-13-45\n",
    "no such day": "a: 2024-02-30\n",
    "no such hour": "a: 2024-01-01 25:00:00\n",
    "tagged number": "a: !!int x\n",
    "tagged float": "a: !!float x\n",
    "tagged bytes": "a: !!binary ä\n",
    "tagged time": "a: !!timestamp x\n",
    "tagged truth": "a: !!bool x\n",
    "tagged map": "a: !!map [1]\n",
    "tagged list": "a: !!seq {b: 1}\n",
    "tagged set": "a: !!set [1]\n",
    "tagged pairs": "a: !!pairs {b: 1}\n",
    "ordered map": "a: !!omap [1]\n",
    "hexadecimal nothing": "a: 0x_\n",
    "binary nothing": "a: 0b_\n",
    "5,000 digits": f"a: {'9' * 5000}\n",
    "5,000 hexadecimal digits": f"a: 0x{'f' * 5000}\n",
    "huge": "a: 99999999999999999999999\n",
    "deep": "a: " + "[" * 10_000 + "]" * 10_000 + "\n",
    "deep blocks": "".join("- " for _ in range(10_000)) + "x\n",
    "list as key": "? [1, 2]\n: x\n",
    "map as key": "? {a: 1}\n: x\n",
    "merge of nothing": "<<: 3\n",
    "two documents": "a: 1\n---\nb: 2\n",
    "null byte": "a: \0\n",
    "half a surrogate": 'a: "\\ud800"\n<<: [\n',
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_whatever_is_wrong_with_a_file_is_one_line(tmp_path, text):
    with pytest.raises(StudyError) as caught:
        load_yaml(written(tmp_path, text))
    assert "study.yaml is not valid" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


def test_many_keys_are_read_in_time(tmp_path):
    text = "".join(f"key{i}: {i}\n" for i in range(20_000))
    assert len(load_yaml(written(tmp_path, text))) == 20_000
