"""What a node offers as counted resources."""

from __future__ import annotations

import msgspec

from dovetail.node.device_plugin.resources import OfferOptions, resources
from dovetail.node.inventory import Inventory
from tests.node import build


def with_gpus(node: Inventory, *gpus: object) -> Inventory:
    return msgspec.structs.replace(node, gpus=gpus)


def test_whole_gpus_are_counted_by_uuid() -> None:
    (offered,) = resources(build.machine(gpus=8), OfferOptions())
    assert offered.name == "nvidia.com/gpu"
    assert len(offered.devices) == 8
    assert offered.devices[3].id == offered.devices[3].uuid == build.gpu(minor=3).uuid
    assert all(len(device.id) <= 63 for device in offered.devices)  # the kubelet's limit


def test_replicas_are_counted_under_the_shared_name() -> None:
    (offered,) = resources(build.machine(gpus=2), OfferOptions(replicas=4))
    assert offered.name == "nvidia.com/gpu.shared"
    assert [device.id.partition("::")[2] for device in offered.devices] == [*"0123", *"0123"]
    assert len({device.uuid for device in offered.devices}) == 2
    assert all(len(device.id) <= 63 for device in offered.devices)


def test_a_gpu_in_mig_mode_is_offered_by_its_mig_devices_only() -> None:
    node = build.machine(gpus=1)
    partitioned = build.with_mig_device(build.gpu(minor=1), "1g.10gb", 0, gi_id=7)
    partitioned = build.with_mig_device(partitioned, "1g.10gb+me", 1, gi_id=8)
    partitioned = build.with_mig_device(partitioned, "3g.40gb", 4, gi_id=1)
    offered = resources(with_gpus(node, *node.gpus, partitioned), OfferOptions())
    names = {resource.name: len(resource.devices) for resource in offered}
    assert names == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-1g.10gb": 1,
        "nvidia.com/mig-1g.10gb.me": 1,
        "nvidia.com/mig-3g.40gb": 1,
    }
    last = offered[-1].devices[0]
    assert last.instance == (1, 0)
    assert last.uuid.startswith("MIG-")


def test_replicas_do_not_multiply_mig_devices() -> None:
    partitioned = build.with_mig_device(build.gpu(), "1g.10gb", 0)
    (offered,) = resources(with_gpus(build.machine(), partitioned), OfferOptions(replicas=4))
    assert (offered.name, len(offered.devices)) == ("nvidia.com/mig-1g.10gb", 1)


def test_without_mig_a_partitioned_gpu_is_not_offered_at_all() -> None:
    partitioned = build.with_mig_device(build.gpu(), "1g.10gb", 0)
    assert resources(with_gpus(build.machine(), partitioned), OfferOptions(has_mig=False)) == ()


def test_instances_that_no_container_can_use_are_left_out() -> None:
    partitioned = build.with_mig_device(build.gpu(), "1g.10gb", 0)
    (mig,) = partitioned.mig_devices
    unfinished = msgspec.structs.replace(mig, uuid="", ci_id=None)
    halved = msgspec.structs.replace(mig, is_whole=False)
    broken = msgspec.structs.replace(partitioned, mig_devices=(unfinished, halved))
    assert resources(with_gpus(build.machine(), broken), OfferOptions()) == ()


def test_a_node_without_gpus_offers_nothing() -> None:
    assert resources(build.machine(gpus=0), OfferOptions()) == ()
