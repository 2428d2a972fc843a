"""Fixtures of all tests: the upstream oracle, one process per session, started by the first test that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import oracle as upstream


@pytest.fixture(scope="session")
def oracle() -> Iterator[upstream.Oracle]:
    """The running oracle; skips, or fails under REQUIRE_REAL=1, where it cannot be built."""
    yield upstream.session()
    upstream.stop_session()
