import numpy as np

from trajsoup.lm.tasks.forests import FOREST_TOKENS, planted, side_by_side

SEQUENCES = [(1, 2, 3, 4), (1, 2, 3, 5, 6), (1, 2, 7, 8), (9, 2, 3), (1, 2, 3, 5, 6)]


def test_the_path_of_a_sequence_spells_its_inputs():
    wood = planted(SEQUENCES)
    for number, sequence in enumerate(SEQUENCES):
        forest = wood.forests[wood.forest_of[number]]
        assert forest.tokens[wood.paths[number]].tolist() == list(sequence[:-1])
        assert forest.depth[wood.paths[number]].tolist() == list(range(len(sequence) - 1))


def test_what_sequences_have_in_common_stands_once():
    (forest,) = planted(SEQUENCES).forests
    assert sorted(forest.tokens.tolist()) == [1, 2, 2, 3, 5, 7, 9]


def test_a_token_sees_its_ancestors_and_itself_alone():
    wood = planted(SEQUENCES)
    sees = wood.forests[0].sees()
    for path in wood.paths:
        for position, node in enumerate(path):
            assert np.flatnonzero(sees[node]).tolist() == sorted(path[: position + 1].tolist())


def test_a_forest_ends_before_it_grows_too_large_and_one_long_sequence_fits_alone():
    long = tuple(range(FOREST_TOKENS + 50))
    many = [(i, *range(20)) for i in range(1, 40)]
    wood = planted([*many, long])
    sizes = [len(forest.tokens) for forest in wood.forests]
    assert max(sizes) == FOREST_TOKENS + 49
    assert sorted(sizes)[-2] <= FOREST_TOKENS
    assert sum(sizes) == 39 * 20 + FOREST_TOKENS + 49


def test_without_sharing_every_sequence_is_a_line():
    wood = planted(SEQUENCES, shared=False)
    assert [len(f.tokens) for f in wood.forests] == [len(SEQUENCES[i]) - 1 for i in np.argsort(wood.forest_of)]
    assert all(f.sees().tolist() == np.tri(len(f.tokens), dtype=bool).tolist() for f in wood.forests)


def test_padding_sees_itself_alone():
    tokens, positions, sees = side_by_side([*planted(SEQUENCES).forests, *planted([(4, 4)]).forests])
    assert tokens.shape == positions.shape == (2, 7)
    assert sees[1].tolist() == np.eye(7, dtype=bool).tolist()
