"""Clusters of both supported versions, shared by the tests of a process."""

from __future__ import annotations

import pytest

from dovetail.boot import kubeparts
from tests.support import live


@pytest.fixture(scope="session", params=kubeparts.VERSIONS)
def cluster(request: pytest.FixtureRequest) -> live.Live:
    """The sample fleet on a real control plane, scheduled by us under our own rights."""
    return live.cluster(request.param)
