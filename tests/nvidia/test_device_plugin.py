"""NVIDIA's device plugin on the fake: what it lists, prefers and allocates."""

from __future__ import annotations

from typing import Final

import pytest

from tests.nvidia import device_plugin
from tests.nvidia.conftest import Build, StartPlugin
from tests.support.waiting import wait_until

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


@pytest.mark.parametrize("machine", ["dgx-a100", "dgx-h100", "gb200-tray", "a30", "t4"])
def test_every_gpu_is_listed_with_its_numa_node_and_allocated_by_its_cdi_name(
    machine: str, build: Build, start_plugin: StartPlugin
) -> None:
    hardware = build(machine)
    plugin = start_plugin(hardware)
    gpus = {gpu.uuid: gpu for gpu in hardware.snapshot().gpus}
    listed = plugin.devices()
    assert {device.id for device in listed} == set(gpus)
    assert {device.health for device in listed} == {device_plugin.HEALTHY}
    assert [device.numa_nodes for device in listed] == [
        (gpus[device.id].numa_node,) for device in listed
    ]
    allocation = plugin.allocate([listed[0].id])
    assert allocation.cdi_devices == (f"k8s.device-plugin.nvidia.com/gpu={listed[0].id}",)
    spec = plugin.cdi_spec()
    assert spec is not None
    assert {device["name"] for device in spec["devices"]} >= set(gpus)


def test_preferred_gpus_are_of_one_numa_node(build: Build, start_plugin: StartPlugin) -> None:
    """With NVSwitch all GPUs are equally near by NVLink; then the processor they hang on decides."""
    hardware = build("dgx-h100", gpus=8)
    plugin = start_plugin(hardware)
    numa_nodes = {gpu.uuid: gpu.numa_node for gpu in hardware.snapshot().gpus}
    chosen = plugin.preferred(sorted(numa_nodes), 4)
    assert len({numa_nodes[device] for device in chosen}) == 1
    anchor = next(device for device, node in numa_nodes.items() if node == 1)
    beside = plugin.preferred(sorted(numa_nodes), 2, must_include=[anchor])
    assert anchor in beside
    assert {numa_nodes[device] for device in beside} == {1}


def test_replicas_of_a_shared_gpu_have_numbers_and_are_spread(
    build: Build, start_plugin: StartPlugin
) -> None:
    hardware = build("dgx-h100")
    plugin = start_plugin(hardware, resources=("gpu.shared",), config=SHARED)
    assert plugin.resources() == ["gpu.shared"]
    uuids = sorted(gpu.uuid for gpu in hardware.snapshot().gpus)
    replicas = [device.id for device in plugin.devices("gpu.shared")]
    assert replicas == [f"{uuid}::{number}" for uuid in uuids for number in range(3)]
    chosen = plugin.preferred(replicas, 2, resource="gpu.shared")
    assert {replica.partition("::")[0] for replica in chosen} == set(uuids)
    allocation = plugin.allocate([replicas[0]], resource="gpu.shared")
    assert allocation.cdi_devices == (f"k8s.device-plugin.nvidia.com/gpu={uuids[0]}",)


def test_partitions_of_different_profiles_are_resources_of_their_own(
    build: Build, start_plugin: StartPlugin
) -> None:
    hardware = build("dgx-h100", gpus=1, mig=True)
    hardware.create_mig(0, PROFILE_3G, 4)
    hardware.create_mig(0, PROFILE_1G, 0)
    resources = ("mig-1g.10gb", "mig-3g.40gb")
    plugin = start_plugin(hardware, resources=resources, mig_strategy="mixed")
    assert plugin.resources() == [*resources]
    by_start = {
        instance.start: instance.compute_instances[0].uuid
        for instance in hardware.snapshot().gpus[0].gpu_instances
    }
    listed = {resource: plugin.devices(resource)[0].id for resource in resources}
    assert listed == {"mig-1g.10gb": by_start[0], "mig-3g.40gb": by_start[4]}


def test_an_xid_makes_its_gpu_unhealthy(build: Build, start_plugin: StartPlugin) -> None:
    hardware = build("dgx-h100")
    plugin = start_plugin(hardware)
    assert {device.health for device in plugin.devices()} == {device_plugin.HEALTHY}

    def sick() -> list[str]:
        """The plugin begins to wait for events after it serves: an earlier one is lost, as on real hardware."""
        hardware.inject_xid(1, 79)
        return [device.id for device in plugin.devices() if device.health != device_plugin.HEALTHY]

    wait_until(sick, "the unhealthy GPU", pause=0.2, so_far=plugin.log)
    assert sick() == [hardware.snapshot().gpus[1].uuid]
