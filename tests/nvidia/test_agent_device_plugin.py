"""The node agent beside NVIDIA's device plugin: the same resources, devices, CDI names and files.

Each difference is named here with its reason and in docs/explanation/oracle.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Final

import pytest

from dovetail.devcluster import control_plane
from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.nvidia import agent_node, device_plugin, side_by_side
from tests.nvidia.conftest import Build, StartPlugin

pytestmark = pytest.mark.slow

SHARED: Final = {
    "sharing": {
        "timeSlicing": {
            "renameByDefault": True,
            "resources": [{"name": "nvidia.com/gpu", "replicas": 3}],
        }
    }
}
PROFILE_3G, PROFILE_1G = 9, 19  # ids on an H100


class Agents:
    """Starts the node agent as a device plugin; ends all it started."""

    def __init__(self, plane: control_plane.ControlPlane) -> None:
        self._plane = plane
        self._started: list[agent_node.AgentPlugin] = []

    def start(self, hardware: Hardware, **options: Any) -> agent_node.AgentPlugin:
        node = f"node-{uuid.uuid4().hex[:8]}"
        self._started.append(agent_node.AgentPlugin(hardware, self._plane, node, **options))
        return self._started[-1]

    def stop(self) -> None:
        for agent in self._started:
            agent.stop()


@pytest.fixture
def agents(plane: control_plane.ControlPlane) -> Iterator[Agents]:
    agents = Agents(plane)
    yield agents
    agents.stop()


def assert_alike(
    ours: device_plugin.PluginNode, theirs: device_plugin.PluginNode, *resources: str
) -> None:
    assert ours.resources() == theirs.resources() == sorted(resources)
    for resource in resources:
        devices = theirs.devices(resource)
        assert ours.devices(resource) == devices
        first = [devices[0].id]
        our_allocation = ours.allocate(first, resource=resource)
        their_allocation = theirs.allocate(first, resource=resource)
        assert our_allocation.cdi_devices == their_allocation.cdi_devices
        assert (our_allocation.devices, our_allocation.mounts) == ((), ())
        # NVIDIA's plugin asks the legacy runtime for GDS, GDRCopy and MOFED by default; CDI does not use these.
        assert our_allocation.environment == {}
        assert set(their_allocation.environment) == {
            "NVIDIA_GDS",
            "NVIDIA_GDRCOPY",
            "NVIDIA_MOFED",
        }


@pytest.mark.parametrize("machine", ["dgx-a100", "dgx-h100", "gb200-tray", "a30", "t4"])
def test_whole_gpus(machine: str, build: Build, start_plugin: StartPlugin, agents: Agents) -> None:
    hardware = build(machine)
    assert_alike(agents.start(hardware), start_plugin(hardware), "gpu")


def test_replicas(build: Build, start_plugin: StartPlugin, agents: Agents) -> None:
    hardware = build("dgx-h100")
    shared = ("gpu.shared",)
    ours = agents.start(hardware, resources=shared, replicas=3)
    theirs = start_plugin(hardware, resources=shared, config=SHARED)
    assert_alike(ours, theirs, *shared)


def test_partitions(build: Build, start_plugin: StartPlugin, agents: Agents) -> None:
    hardware = build("dgx-h100", mig=True)
    for gpu in (0, 1):
        hardware.create_mig(gpu, PROFILE_3G, 4)
        hardware.create_mig(gpu, PROFILE_1G, 0)
    resources = ("mig-1g.10gb", "mig-3g.40gb")
    ours = agents.start(hardware, resources=resources, mig="static")
    theirs = start_plugin(hardware, resources=resources, mig_strategy="mixed")
    assert_alike(ours, theirs, *resources)


def test_the_cdi_file(build: Build, start_plugin: StartPlugin, agents: Agents) -> None:
    """The agent adds the hook that the DRA driver has and the plugin's older toolkit does not know."""
    hardware = build("dgx-h100")
    ours = agents.start(hardware).cdi_spec()
    theirs = start_plugin(hardware).cdi_spec()
    assert ours is not None
    edits = ours["containerEdits"]
    added = [hook for hook in edits["hooks"] if "update-application-profile" in hook["args"]]
    assert len(added) == 1
    edits["hooks"].remove(added[0])
    assert side_by_side.in_any_order(ours) == side_by_side.in_any_order(theirs)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_preferred_gpus_lie_as_near_together(
    size: int, build: Build, start_plugin: StartPlugin, agents: Agents
) -> None:
    """Which of several equally good sets is chosen may differ; how many processors it spans may not."""
    hardware = build("dgx-h100", gpus=8)
    numa_nodes = {gpu.uuid: gpu.numa_node for gpu in hardware.snapshot().gpus}
    spans = []
    for plugin in (agents.start(hardware), start_plugin(hardware)):
        chosen = plugin.preferred(sorted(numa_nodes), size)
        assert len(set(chosen)) == size
        spans.append(len({numa_nodes[device] for device in chosen}))
    assert spans[0] == spans[1]
