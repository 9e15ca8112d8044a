"""One suite for every executor: what holds on this machine holds on a cluster."""

import pytest

from tests.engine import tasks
from trajsoup.engine.executor import Needs, Tally
from trajsoup.errors import CheckpointError, ExecutorError


def test_results_come_in_the_order_of_the_items(executor):
    assert executor.map(tasks.double, range(20)) == [2 * i for i in range(20)]


def test_what_a_task_needs_can_be_said(executor):
    assert executor.map(tasks.double, range(5), needs=Needs(cpus=2)) == [0, 2, 4, 6, 8]


def test_a_long_time_limit_changes_no_result(executor):
    assert executor.map(tasks.double, range(20), timeout_seconds=3600) == [2 * i for i in range(20)]


def test_nothing_to_do_is_done(executor):
    assert executor.map(tasks.double, []) == []


def test_progress_hears_of_every_item_once(executor):
    heard = []
    executor.map(tasks.double, [5, 6, 7], progress=lambda number, result: heard.append((number, result)))
    assert sorted(heard) == [(0, 10), (1, 12), (2, 14)]


def test_a_killed_worker_costs_one_attempt_and_no_result(executor, tmp_path):
    items = [(i, str(tmp_path / "mark") if i == 1 else None) for i in range(4)]
    assert executor.map(tasks.die_once, items) == [0, 1, 2, 3]
    assert (tmp_path / "mark").exists()


def test_a_task_that_hangs_is_ended_and_run_again(executor, tmp_path):
    items = [(i, str(tmp_path / "mark") if i == 0 else None) for i in range(3)]
    assert executor.map(tasks.hang_once, items, timeout_seconds=8) == [0, 1, 2]
    assert (tmp_path / "mark").exists()


def test_a_task_that_takes_far_longer_than_its_like_has_hung(executor, tmp_path, monkeypatch):
    monkeypatch.setattr("trajsoup.engine.executor.PATIENCE_SECONDS", 3.0)
    items = [(i, str(tmp_path / "mark") if i == 0 else None) for i in range(3)]
    assert executor.map(tasks.hang_once, items, timeout_seconds=3600) == [0, 1, 2]
    assert (tmp_path / "mark").exists()


def test_a_slow_task_beside_quick_ones_has_its_time_when_it_is_tried_again(executor, monkeypatch):
    monkeypatch.setattr("trajsoup.engine.executor.PATIENCE_SECONDS", 1.0)
    assert executor.map(tasks.sleep_for, [0.0, 0.0, 4.0], timeout_seconds=60) == [0.0, 0.0, 4.0]


def test_two_long_tasks_go_to_two_workers_even_after_quick_ones(executor, tmp_path):
    executor.map(tasks.double, range(20), timeout_seconds=60)
    first, second = executor.map(tasks.process_that_meets_another, [str(tmp_path)] * 2, timeout_seconds=200)
    assert first != second


def test_what_was_taken_and_not_tried_is_next_and_loses_no_attempt():
    tally = Tally([5, 6, 7], attempts=1, progress=lambda number, result: None)
    assert [tally.take(), tally.take()] == [0, 1]
    tally.put_back(1)
    assert tally.waiting == 2
    assert [tally.take(), tally.take(), tally.take()] == [1, 2, None]


def test_a_task_out_of_memory_is_run_again(executor, tmp_path):
    items = [(i, str(tmp_path / "mark") if i == 2 else None) for i in range(3)]
    assert executor.map(tasks.run_out_of_memory_once, items) == [0, 1, 2]


def test_an_error_for_the_user_is_raised_at_once_and_as_it_is(executor):
    with pytest.raises(CheckpointError, match="checkpoint 7 is damaged"):
        executor.map(tasks.raise_ours, [7])


def test_a_task_that_always_fails_ends_with_its_cause(executor):
    with pytest.raises(ExecutorError, match=r"task 1 of 1 failed 2 times.*No space left on device"):
        executor.map(tasks.always_fail, [1], attempts=2)


def test_an_executor_goes_on_after_an_error(executor):
    with pytest.raises(CheckpointError):
        executor.map(tasks.raise_ours, [1, 2, 3])
    assert executor.map(tasks.double, [1]) == [2]


def test_an_interrupt_ends_the_tasks_and_the_executor_stays_usable(executor):
    def interrupt(number, result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.map(tasks.sleepy, range(50), progress=interrupt)
    assert executor.map(tasks.double, [4]) == [8]


def test_interrupts_at_any_moment_of_quick_tasks_leave_the_executor_usable(executor):
    """Ray's own cancelling of tasks ends the driver when a task begins at that moment."""

    def interrupt_at(last):
        def progress(number, result):
            if number >= last:
                raise KeyboardInterrupt

        return progress

    for last in range(0, 30, 3):
        with pytest.raises(KeyboardInterrupt):
            executor.map(tasks.double, range(40), progress=interrupt_at(last))
    assert executor.map(tasks.double, [4]) == [8]
