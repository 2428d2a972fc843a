"""Clusters of each supported version, shared by the tests of a process."""

from __future__ import annotations

import pytest

from tests.support import cluster as planes
from tests.support import live


@pytest.fixture(scope="session", params=planes.EACH_VERSION)
def cluster(request: pytest.FixtureRequest) -> live.Live:
    """The sample fleet on a real control plane, scheduled by us under our own rights."""
    return live.cluster(request.param)
