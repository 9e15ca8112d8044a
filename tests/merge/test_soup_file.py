import pytest

from trajsoup.errors import BlendError, StudyError
from trajsoup.merge.soup_file import is_soup_file, load_soup_file


def written(folder, text):
    path = folder / "soup.yaml"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_file_and_weights_are_kept(tmp_path):
    text = "fork_point: base\ningredients:\n  - {path: a, weight: 0.75}\n  - {path: sub/b, weight: 0.25}\n"
    row, fork = load_soup_file(written(tmp_path, text))
    assert row.weights == {str(tmp_path / "a"): 0.75, str(tmp_path / "sub" / "b"): 0.25}
    assert fork == tmp_path / "base"


def test_without_weights_it_is_a_plain_mean(tmp_path):
    row, fork = load_soup_file(written(tmp_path, "ingredients: [a, b, {path: c}]\n"))
    assert row.uniform
    assert list(row.weights.values()) == [1 / 3] * 3
    assert fork is None


@pytest.mark.parametrize("line", ["normalize: true\n", ""])
def test_weights_are_normalised_where_the_file_or_the_user_says_so(tmp_path, line):
    text = f"{line}ingredients:\n  - {{path: a, weight: 3}}\n  - {{path: b, weight: 1}}\n"
    row, _ = load_soup_file(written(tmp_path, text), normalize=not line)
    assert list(row.weights.values()) == [0.75, 0.25]


def test_a_soup_file_is_told_from_a_study(tmp_path):
    assert is_soup_file(written(tmp_path, "ingredients: [a]\n"))
    assert not is_soup_file(written(tmp_path, "branches: {}\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ingredients: []\n", r"lists no ingredients"),
        ("ingredients: a\n", r"ingredients is 'a': write a list"),
        ("ingredient: [a]\n", r"unknown key 'ingredient': did you mean 'ingredients'\?"),
        (
            "ingredients: [{path: a, wieght: 1}]\n",
            r"ingredients, number 1: unknown key 'wieght': did you mean 'weight'\?",
        ),
        ("ingredients: [{weight: 1}]\n", r"ingredients, number 1: `path` is missing"),
        (
            "ingredients: [a, {path: b, weight: 1}]\n",
            r"1 of 2 ingredients have a weight: give all of them one, or none",
        ),
        ("ingredients: [{path: a, weight: half}]\n", r"ingredients, number 1: weight is 'half', which is not a number"),
        ("ingredients: [{path: a, weight: true}]\n", r"ingredients, number 1: weight is True"),
        ("ingredients: [3]\n", r"ingredients, number 1: expected `key: value` lines, got 3"),
    ],
)
def test_a_wrong_soup_file_is_named_with_the_place(tmp_path, text, message):
    with pytest.raises(StudyError, match=rf"soup\.yaml.*{message}"):
        load_soup_file(written(tmp_path, text))


@pytest.mark.parametrize("weight", ["0", ".nan", ".inf"])
def test_a_weight_that_means_nothing_is_refused(tmp_path, weight):
    with pytest.raises(BlendError, match=r"gives .*a the weight .*: use a finite number other than 0"):
        load_soup_file(written(tmp_path, f"ingredients: [{{path: a, weight: {weight}}}]\n"))


def test_one_path_under_two_spellings_is_one_ingredient(tmp_path):
    with pytest.raises(BlendError, match=r"is given twice: name each ingredient once"):
        load_soup_file(written(tmp_path, "ingredients: [a, b/../a]\n"))


def test_a_linear_merge_of_mergekit_is_understood(tmp_path):
    models = [f"  - {{model: {name}, parameters: {{weight: {weight}}}}}\n" for name, weight in (("a", 3), ("b", 1))]
    text = f"merge_method: linear\ndtype: bfloat16\nmodels:\n{''.join(models)}"
    path = written(tmp_path, text)
    assert is_soup_file(path)
    row, fork = load_soup_file(path)
    assert row.weights == {str(tmp_path / "a"): 0.75, str(tmp_path / "b"): 0.25}
    assert fork is None


def test_another_method_of_mergekit_is_refused_by_name(tmp_path):
    with pytest.raises(StudyError, match=r"merge_method 'slerp': only `linear`"):
        load_soup_file(written(tmp_path, "merge_method: slerp\nmodels:\n  - {model: a}\n"))
