"""Places for stores: a new SQLite file, or a new schema of one PostgreSQL server, per test or per example."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import postgres

Place = Callable[[], str]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Returns the location of an empty store each time it is called."""
    if request.param == "sqlite":
        numbers = itertools.count(1)
        return lambda: str(tmp_path / f"history-{next(numbers)}.sqlite")
    server: postgres.Server = request.getfixturevalue("postgres_server")
    return server.new_schema
