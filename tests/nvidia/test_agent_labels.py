"""The node agent beside GPU Feature Discovery: on the same machine both give the node the same labels."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from dovetail.devcluster import control_plane
from tests.nvidia import agent_node, discovery
from tests.nvidia.conftest import Build
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def labels_by_agent(
    hardware: Any, plane: control_plane.ControlPlane, *, mig: str
) -> dict[str, str]:
    node = f"node-{uuid.uuid4().hex[:8]}"
    agent = agent_node.AgentNode(hardware, plane, node, mig=mig)
    try:

        def labels() -> dict[str, str]:
            metadata = agent.rest.read("nodes", node)["metadata"]
            own = metadata.get("labels", {}).items()
            return {name: value for name, value in own if name.startswith("nvidia.com/")}

        wait_until(labels, "the labels", so_far=agent.log)
        return labels()
    finally:
        agent.stop()


@pytest.mark.parametrize(
    ("machine", "mig"),
    [
        ("dgx-a100", "off"),
        ("dgx-h100", "off"),
        ("dgx-h100", "dynamic"),
        ("dgx-b200", "off"),
        ("gb200-tray", "off"),
        ("l4", "off"),
        ("t4", "off"),
    ],
)
def test_labels_are_those_of_gpu_feature_discovery(
    machine: str, mig: str, build: Build, plane: control_plane.ControlPlane
) -> None:
    hardware = build(machine)
    discovery.name_server(hardware, "Some Server v2")
    theirs = discovery.labels_by_gfd(hardware)
    assert labels_by_agent(hardware, plane, mig=mig) == theirs
    assert len(theirs) >= 25


def test_a_server_without_a_product_name_is_of_unknown_make(
    build: Build, plane: control_plane.ControlPlane
) -> None:
    hardware = build("t4")
    theirs = discovery.labels_by_gfd(hardware)
    assert theirs["nvidia.com/gpu.machine"] == "unknown"
    assert labels_by_agent(hardware, plane, mig="off") == theirs
