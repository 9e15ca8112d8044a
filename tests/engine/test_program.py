import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.engine.program import Program, compile_rows

members = st.dictionaries(st.integers(0, 7), st.sampled_from([1.0, 0.5]), min_size=1, max_size=8)
rows = st.lists(members.map(lambda row: sorted(row.items())), min_size=1, max_size=8)


def interpret(program: Program) -> tuple[dict[int, list], int]:
    """Run the steps on lists in place of sums; return what each row added in order, and how many additions it took."""
    accumulators: dict[int, list] = {}
    finished: dict[int, list] = {}
    for step in range(len(program.target)):
        total = [] if program.fresh[step] else accumulators[int(program.source[step])]
        added = range(program.first[step], program.last[step])
        total = [*total, *((int(program.members[j]), float(program.factors[j])) for j in added)]
        accumulators[int(program.target[step])] = total
        for row in program.rows[program.emit_first[step] : program.emit_last[step]]:
            assert row not in finished
            finished[int(row)] = total
    assert max(accumulators) < program.accumulators
    return finished, len(program.members)


def compiled(some_rows: list, *, numbers: list[int] | None = None) -> Program:
    numbers = numbers or list(range(len(some_rows)))
    return compile_rows(dict(zip(numbers, some_rows, strict=True)), divisors=np.ones(max(numbers) + 1))


@given(rows)
def test_the_steps_reproduce_every_row_in_the_order_of_its_members(some_rows):
    finished, _ = interpret(compiled(some_rows))
    assert finished == dict(enumerate(some_rows))


@given(rows)
def test_every_shared_beginning_is_summed_once(some_rows):
    beginnings = {tuple(row[:end]) for row in some_rows for end in range(1, len(row) + 1)}
    _, additions = interpret(compiled(some_rows))
    assert additions == len(beginnings)


def test_a_sweep_over_branches_costs_no_more_than_its_longest_row():
    sweep = [[(m, 1.0) for m in range(4 * n)] for n in (1, 2, 3)]
    finished, additions = interpret(compiled(sweep))
    assert additions == 12
    assert [len(finished[r]) for r in range(3)] == [4, 8, 12]


def test_rows_keep_their_global_numbers():
    finished, _ = interpret(compiled([[(0, 1.0)], [(1, 1.0)]], numbers=[2, 5]))
    assert finished == {2: [(0, 1.0)], 5: [(1, 1.0)]}


def test_equal_rows_are_summed_once_and_finished_both():
    finished, additions = interpret(compiled([[(0, 1.0), (3, 0.5)]] * 2))
    assert additions == 2
    assert finished[0] == finished[1]
