"""The servers that publishers are tested on."""

from __future__ import annotations

import pytest

from tests.node.slices import servers
from tests.support import cluster

ON_SERVERS = (pytest.param(cluster.NEWEST, marks=pytest.mark.slow), *cluster.EACH_VERSION[1:])


@pytest.fixture(params=["embedded", *ON_SERVERS])
def place(request: pytest.FixtureRequest) -> servers.Place:
    """A server."""
    if request.param == "embedded":
        return servers.Embedded()
    return servers.Real(cluster.control_plane(request.param))
