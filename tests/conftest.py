"""Where a test must run, a skip is a failure."""

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> "pytest.Generator[None, pytest.TestReport, pytest.TestReport]":
    """In CI a skipped test has failed, with the reason it gave for skipping."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where everything must run: {report.longrepr}"
    return report
