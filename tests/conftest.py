"""Fixtures of all tests: the upstream oracle and real clusters, started by the first test that asks, ended once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support import cluster as planes
from tests.support import live
from tests.support import oracle as upstream

LONGEST_FIRST: Final = (
    "tests/faults/test_campaign.py",
    "tests/hostile/",
    "tests/e2e/test_scale.py",
    "tests/bench/",
    "tests/e2e/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes begins at once, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: next((at for at, part in enumerate(LONGEST_FIRST) if item.nodeid.startswith(part)), 9))


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
