"""The cluster that the stories of this folder share, and a check that each of them puts the GPUs back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node_e2e import gpu_cluster


@pytest.fixture(scope="package")
def shared_cluster() -> Iterator[gpu_cluster.GpuCluster]:
    """One cluster with two H100s, started by the first story that asks."""
    with gpu_cluster.opened() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: gpu_cluster.GpuCluster) -> Iterator[gpu_cluster.GpuCluster]:
    """The shared cluster. After the story its GPUs must be set up as before, with no daemon and no claim left."""
    before = shared_cluster.geometry()
    yield shared_cluster
    assert shared_cluster.geometry() == before
    assert shared_cluster.hardware.snapshot().mps_daemons == ()
    assert list(shared_cluster.node.cdi.glob("*claim*")) == []
