"""Ray gives a node of its own 30 seconds to start; a busy machine gets another try, and then an answer."""

import pytest

from trajsoup.engine.ray_executor import STARTS, _start
from trajsoup.errors import ExecutorError


class BusyRay:
    def __init__(self, slow_starts, words="The current node timed out during startup."):
        self.left, self.words, self.inits, self.shutdowns = slow_starts, words, 0, 0

    def init(self, **settings):
        self.inits += 1
        self.left -= 1
        if self.left >= 0:
            raise Exception(self.words)

    def shutdown(self):
        self.shutdowns += 1


def test_a_start_that_took_too_long_is_tried_again_from_the_beginning():
    ray = BusyRay(STARTS - 1)
    _start(ray)
    assert (ray.inits, ray.shutdowns) == (STARTS, STARTS - 1)


def test_a_machine_that_stays_too_busy_is_told_so():
    with pytest.raises(ExecutorError, match="too busy; wait, or leave out --engine ray"):
        _start(BusyRay(STARTS))


def test_another_failure_is_not_tried_again():
    ray = BusyRay(1, "no such address")
    with pytest.raises(Exception, match="no such address"):
        _start(ray)
    assert ray.inits == 1
