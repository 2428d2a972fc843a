"""The servers that the contract tests run against: in memory, in memory over HTTP, and real ones of each version."""

from __future__ import annotations

import pytest

from tests.contract import places
from tests.support import cluster

ON_SERVERS = (pytest.param(cluster.NEWEST, marks=pytest.mark.slow), *cluster.EACH_VERSION[1:])


@pytest.fixture(params=["memory", "http", *ON_SERVERS])
def place(request: pytest.FixtureRequest) -> places.Place:
    """A server with a private namespace for this test."""
    if request.param == "memory":
        return places.InMemory()
    if request.param == "http":
        return places.OverHttp()
    return places.OnServer(cluster.control_plane(request.param))
