"""Settings that all tests share. What they build checkpoints with is in checkpoints.py."""

import hypothesis

from tests.report.browsing import NO_BROWSER

# The same examples every time: a test that fails does so on every machine, and none is flaky for want of time.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_terminal_summary(terminalreporter):
    """Say in the last lines when the pages were not looked at, and how to get a browser."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    left_out = [reason for reason in reasons if NO_BROWSER in reason]
    if left_out:
        terminalreporter.section("browser tests did not run")
        terminalreporter.line(f"{len(left_out)} tests were left out, {NO_BROWSER}")
