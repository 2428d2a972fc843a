"""The node that the tests of the image share, on a control plane of their own: they install the product there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dovetail.devcluster import kube_binaries
from tests.support import cluster, gpu_node, product_image


@pytest.fixture(scope="package")
def node() -> Iterator[gpu_node.GpuNode]:
    """A real node that has the image. kube-scheduler binds the pods of Deployments and DaemonSets to it."""
    gpu_node.need_node()
    product_image.archive()
    with cluster.private_plane(pods_get_tokens=True) as plane:
        plane.start(kube_binaries.SCHEDULER)
        with gpu_node.private_node(plane) as node:
            product_image.give_to(node)
            yield node
