"""Runs the cyclic collector after each test, so that a connection left open fails the test that left it.

For finding such a test, as a plugin: `pytest -p tests.support.collect_after_each ...`. It costs a tenth of a second a
test, too much for every run.
"""

from __future__ import annotations

import gc

import pytest


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """After the test's own fixtures."""
    gc.collect()
