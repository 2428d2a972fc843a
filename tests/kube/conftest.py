"""Ends the shared control planes of this test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import cluster


@pytest.fixture(scope="session", autouse=True)
def _planes_end_with_the_session() -> Iterator[None]:
    yield
    cluster.stop_all()
