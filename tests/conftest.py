"""Fixtures of all tests: the upstream oracle and real clusters, started by the first test that asks, ended once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import cluster as planes
from tests.support import live
from tests.support import oracle as upstream


@pytest.fixture(scope="session")
def oracle() -> Iterator[upstream.Oracle]:
    """The running oracle; skips, or fails under REQUIRE_REAL=1, where it cannot be built."""
    yield upstream.session()
    upstream.stop_session()


@pytest.fixture(scope="session", autouse=True)
def _clusters_end_with_the_session() -> Iterator[None]:
    """Ends whatever clusters the tests of this process shared."""
    yield
    live.stop_all()
    planes.stop_all()
