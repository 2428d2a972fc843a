"""What a node publishes, against facts recorded from NVIDIA's driver v0.5.0."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.kubetypes import codec, node_selectors
from dovetail.kubetypes.resource import slices
from dovetail.node import inventory
from dovetail.node.slices import layout, options
from tests.node import build

STATIC = options.SliceOptions()
DYNAMIC = options.SliceOptions(is_mig_dynamic=True)
XID = node_selectors.DeviceTaint(key="gpu.nvidia.com/xid", value="79", effect="NoSchedule")


def names(content: layout.SliceContent) -> list[str]:
    """Of the devices, in their order."""
    return [device.name for device in content.devices]


def device_of(pool: tuple[layout.SliceContent, ...], name: str) -> slices.Device:
    """The device of this name."""
    every = [device for content in pool for device in content.devices]
    return next(device for device in every if device.name == name)


def attributes_of(device: slices.Device) -> dict[str, object]:
    """As they are on the wire, without their types."""
    tree = codec.tree_of(device)["attributes"]
    return {name: next(iter(value.values())) for name, value in tree.items()}


def capacities_of(device: slices.Device) -> dict[str, str]:
    """As they are on the wire."""
    return {name: str(have.value) for name, have in device.capacity.items()}


def test_whole_gpus_are_one_slice() -> None:
    pool = layout.contents(build.machine(gpus=8), STATIC)
    assert [names(content) for content in pool] == [[f"gpu-{minor}" for minor in range(8)]]
    assert pool[0].shared_counters == ()


def test_a_whole_gpu_has_the_attributes_of_the_driver_and_our_own() -> None:
    node = build.linked(build.machine(gpus=2))
    gpu = device_of(layout.contents(node, STATIC), "gpu-1")
    assert attributes_of(gpu) == {
        "type": "gpu",
        "uuid": "GPU-00000001-0000-4000-8000-000000000000",
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "cudaComputeCapability": "9.0.0",
        "driverVersion": "580.95.5",
        "cudaDriverVersion": "13.0.0",
        "addressingMode": "HMM",
        "resource.kubernetes.io/pciBusID": "0000:11:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:10",
        "resource.kubernetes.io/numaNode": 0,
        "dovetail.dev/nvlinkDomain": "GPU-00000000-0000-4000-8000-000000000000",
        "dovetail.dev/nvlinkCount": 18,
        "dovetail.dev/powerLimit": 700,
    }
    assert capacities_of(gpu) == {"memory": "81559Mi"}


def test_our_own_attributes_can_be_left_out() -> None:
    plain = options.SliceOptions(has_own_attributes=False)
    pool = layout.contents(build.linked(build.machine(gpus=2)), plain)
    assert not [name for name in attributes_of(pool[0].devices[0]) if name.startswith("dovetail")]


def test_what_the_driver_does_not_report_is_not_published() -> None:
    silent = {"pcie_root": None, "numa_node": None, "addressing_mode": None, "memory_bytes": 0}
    pool = layout.contents(build.machine(power_limit_milliwatts=None, **silent), STATIC)
    published = attributes_of(pool[0].devices[0])
    assert not {"addressingMode", "resource.kubernetes.io/numaNode"} & published.keys()
    assert not {"dovetail.dev/powerLimit", "dovetail.dev/nvlinkDomain"} & published.keys()
    assert capacities_of(pool[0].devices[0]) == {}


def test_a_fabric_names_the_domain_by_its_clique() -> None:
    fabric = inventory.Fabric(cluster_uuid="c0ffee", clique_id=7, is_completed=True)
    pool = layout.contents(build.machine(gpus=2, fabric=fabric), STATIC)
    published = [attributes_of(device) for device in pool[0].devices]
    assert [each["dovetail.dev/clique"] for each in published] == ["c0ffee.7"] * 2
    assert [each["dovetail.dev/nvlinkDomain"] for each in published] == ["c0ffee.7"] * 2


def test_two_pairs_of_linked_gpus_are_two_domains() -> None:
    node = build.machine(gpus=4)
    peers = {0: 1, 1: 0, 2: 3, 3: 2}
    linked = [
        msgspec.structs.replace(gpu, nvlink_peers=(node.gpus[peers[gpu.minor]].pci_bus_id,))
        for gpu in node.gpus
    ]
    pool = layout.contents(msgspec.structs.replace(node, gpus=tuple(linked)), STATIC)
    domains = [attributes_of(device)["dovetail.dev/nvlinkDomain"] for device in pool[0].devices]
    assert domains == [node.gpus[0].uuid] * 2 + [node.gpus[2].uuid] * 2


def test_gpus_linked_in_a_ring_are_one_domain() -> None:
    node = build.machine(gpus=4)
    ring = [
        msgspec.structs.replace(gpu, nvlink_peers=(node.gpus[(gpu.minor + 1) % 4].pci_bus_id,))
        for gpu in node.gpus
    ]
    pool = layout.contents(msgspec.structs.replace(node, gpus=tuple(ring)), STATIC)
    domains = {attributes_of(device)["dovetail.dev/nvlinkDomain"] for device in pool[0].devices}
    assert domains == {node.gpus[0].uuid}


def test_dynamic_mig_publishes_counters_first_and_26_devices_per_gpu() -> None:
    pool = layout.contents(build.machine(gpus=2), DYNAMIC)
    assert [len(content.devices) for content in pool] == [0, 26, 26]
    sets = pool[0].shared_counters
    assert [each.name for each in sets] == ["gpu-0-counter-set", "gpu-1-counter-set"]
    assert [len(each.counters) for each in sets] == [15, 15]
    assert names(pool[1]) == sorted(names(pool[1]))
    assert names(pool[1])[:3] == ["gpu-0", "gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1"]


def test_a_counter_set_of_an_h100_has_the_recorded_figures() -> None:
    counters = layout.contents(build.machine(), DYNAMIC)[0].shared_counters[0].counters
    assert {name: str(counter.value) for name, counter in counters.items()} == {
        "multiprocessors": "132",
        "copy-engines": "8",
        "decoders": "7",
        "encoders": "0",
        "jpeg-engines": "7",
        "ofa-engines": "1",
        "memory": "81152Mi",
        **{f"memory-slice-{index}": "1" for index in range(8)},
    }


def test_a_candidate_takes_its_profile_and_its_memory_slices() -> None:
    device = device_of(layout.contents(build.machine(), DYNAMIC), "gpu-0-mig-3g40gb-9-4")
    published = attributes_of(device)
    assert (published["type"], published["profile"]) == ("mig", "3g.40gb")
    assert published["parentUUID"] == "GPU-00000000-0000-4000-8000-000000000000"
    assert "uuid" not in published
    (consumption,) = device.consumes_counters
    assert consumption.counter_set == "gpu-0-counter-set"
    taken = {name: str(counter.value) for name, counter in consumption.counters.items()}
    assert taken.pop("memory") == "40448Mi"
    assert [taken.pop(f"memory-slice-{index}") for index in range(4, 8)] == ["1"] * 4
    assert taken == {
        "multiprocessors": "60",
        "copy-engines": "3",
        "decoders": "3",
        "encoders": "0",
        "jpeg-engines": "3",
        "ofa-engines": "0",
    }


def test_the_whole_gpu_under_dynamic_mig_offers_what_partitions_could_have() -> None:
    device = device_of(layout.contents(build.machine(), DYNAMIC), "gpu-0")
    assert capacities_of(device)["memory"] == "81152Mi"
    assert capacities_of(device)["multiprocessors"] == "132"
    assert len(device.consumes_counters[0].counters) == 15


def test_media_extensions_have_a_name_without_a_plus() -> None:
    pool = layout.contents(build.machine(), DYNAMIC)
    assert "gpu-0-mig-1g10gb-me-20-3" in names(pool[1])
    device = device_of(pool, "gpu-0-mig-1g10gb-me-20-3")
    assert attributes_of(device)["profile"] == "1g.10gb+me"


def test_kubernetes_1_34_gets_counters_and_devices_together() -> None:
    old = options.SliceOptions(is_mig_dynamic=True, has_split_counters=False)
    pool = layout.contents(build.machine(gpus=2), old)
    assert [(len(each.devices), len(each.shared_counters)) for each in pool] == [(26, 1), (26, 1)]


@pytest.mark.parametrize(
    ("version", "is_split"),
    [("v1.34.2", False), ("v1.35.0", True), ("v1.37.1-rc.0", True), ("v1.34+", False)],
)
def test_the_server_version_decides_about_the_layout(version: str, is_split: bool) -> None:
    assert options.has_split_counters(version) is is_split


def test_ampere_offers_partitions_only_while_mig_is_on() -> None:
    on = layout.contents(build.machine("A100-SXM4-80GB", is_mig_enabled=True), DYNAMIC)
    assert [len(content.devices) for content in on] == [0, 25]
    assert "gpu-0" not in names(on[1])
    off = layout.contents(build.machine("A100-SXM4-80GB"), DYNAMIC)
    assert [names(content) for content in off] == [[], ["gpu-0"]]
    assert off[0].shared_counters == ()
    assert off[1].devices[0].consumes_counters == ()


def test_a_virtual_gpu_is_never_partitioned() -> None:
    pool = layout.contents(build.machine(is_vgpu=True), DYNAMIC)
    assert [names(content) for content in pool] == [[], ["gpu-0"]]


def test_a_node_without_mig_has_no_slice_for_counters() -> None:
    pool = layout.contents(build.machine("L4", gpus=2), DYNAMIC)
    assert [names(content) for content in pool] == [["gpu-0"], ["gpu-1"]]


def test_boards_without_mig_stay_whole_next_to_others() -> None:
    node = build.machine()
    mixed = msgspec.structs.replace(node, gpus=(*node.gpus, build.gpu("L4", 1)))
    pool = layout.contents(mixed, DYNAMIC)
    assert [len(content.devices) for content in pool] == [0, 26, 1]
    assert len(pool[0].shared_counters) == 1


def test_mig_devices_made_by_hand_are_published_with_uuid_and_memory_slices() -> None:
    gpu = build.with_mig_device(build.gpu(), "3g.40gb", 4)
    node = msgspec.structs.replace(build.machine(), gpus=(gpu, build.gpu(minor=1)))
    (content,) = layout.contents(node, STATIC)
    assert names(content) == ["gpu-0-mig-3g40gb-9-4", "gpu-1"]
    mig = content.devices[0]
    assert attributes_of(mig)["uuid"] == gpu.mig_devices[0].uuid
    slots = {name for name in capacities_of(mig) if name.startswith("memorySlice")}
    assert slots == {f"memorySlice{index}" for index in range(4, 8)}
    assert len(mig.attributes) + len(mig.capacity) <= slices.MAX_ATTRIBUTES_AND_CAPACITIES


def test_a_gpu_in_mig_mode_without_devices_offers_nothing() -> None:
    (content,) = layout.contents(build.machine(is_mig_enabled=True), STATIC)
    assert content.devices == ()


def test_a_gpu_instance_without_compute_instance_is_not_offered() -> None:
    gpu = build.with_mig_device(build.gpu(), "3g.40gb", 4)
    half = msgspec.structs.replace(gpu.mig_devices[0], uuid="", ci_id=None)
    node = build.machine(is_mig_enabled=True, mig_devices=(half,))
    assert layout.contents(node, STATIC)[0].devices == ()


def test_sixteen_gpus_need_two_slices_of_counters() -> None:
    pool = layout.contents(build.machine(gpus=16), DYNAMIC)
    assert [len(each.shared_counters) for each in pool[:3]] == [8, 8, 0]
    assert len(pool) == 18


def test_taints_halve_what_a_slice_may_hold() -> None:
    node = build.machine(gpus=100)
    assert [len(each.devices) for each in layout.contents(node, STATIC)] == [100]
    tainted = layout.contents(node, STATIC, taints={"gpu-3": (XID,)})
    assert [len(each.devices) for each in tainted] == [64, 36]


def test_a_taint_of_a_gpu_holds_for_all_its_partitions() -> None:
    pool = layout.contents(build.machine(gpus=2), DYNAMIC, taints={"gpu-1": (XID,)})
    assert all(device.taints == (XID,) for device in pool[2].devices)
    assert not any(device.taints for device in pool[1].devices)


def test_a_taint_of_one_partition_is_its_own() -> None:
    pool = layout.contents(build.machine(), DYNAMIC, taints={"gpu-0-mig-3g40gb-9-4": (XID,)})
    marked = [device.name for device in pool[1].devices if device.taints]
    assert marked == ["gpu-0-mig-3g40gb-9-4"]


def test_a_node_without_gpus_has_one_empty_slice() -> None:
    assert layout.contents(build.machine(gpus=0), STATIC) == (layout.SliceContent(),)
