"""The node agent as a process of a real node: with the chart's rights it publishes GPUs and keeps to its own node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import cluster, gpu_node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

GPUS = 2


@pytest.fixture(scope="module")
def node() -> Iterator[gpu_node.GpuNode]:
    with gpu_node.private_node() as private:
        private.add_gpus("dgx-h100", gpus=GPUS)
        private.start_agent("--mig=off")
        yield private


def published(node: gpu_node.GpuNode) -> list[dict[str, Any]]:
    """The devices in the slices of the node."""
    slices = cluster.get(node.plane, "resourceslices")["items"]
    own = [tree["spec"] for tree in slices if tree["spec"].get("nodeName") == node.name]
    return [device for spec in own for device in spec["devices"]]


def test_the_agent_publishes_the_gpus_of_its_node(node: gpu_node.GpuNode) -> None:
    wait_until(lambda: len(published(node)) == GPUS, "the slices of the node")
    assert sorted(device["name"] for device in published(node)) == ["gpu-0", "gpu-1"]


def test_a_killed_agent_starts_again_with_the_sockets_it_left(node: gpu_node.GpuNode) -> None:
    node.kill_agent()
    node.start_agent("--mig=off")
    wait_until(lambda: len(published(node)) == GPUS, "the slices of the node")


def test_the_agent_may_not_publish_for_another_node(node: gpu_node.GpuNode) -> None:
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "another-node",
        "pool": {"name": "another-node", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"forged-by-{node.name}"},
        "spec": spec,
    }

    def refused() -> bool:
        answer = node.as_agent("create", "-f", "-", tree=tree)
        if answer.returncode == 0:  # the policy takes a moment to come into force
            cluster.kubectl(node.plane, "delete", "resourceslice", tree["metadata"]["name"])
        return "ValidatingAdmissionPolicy" in answer.stderr

    wait_until(refused, "the API server to refuse a slice for another node", pause=0.5)
