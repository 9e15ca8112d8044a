"""Settings that all tests share. What they build checkpoints with is in checkpoints.py."""

import hypothesis

# The same examples every time: a test that fails does so on every machine, and none is flaky for want of time.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")
