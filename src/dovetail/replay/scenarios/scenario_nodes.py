"""What a scenario's nodes publish: Node objects, a slice of GPUs each, slices of other drivers, NUMA zones.

GPUs are devices that allow multiple allocations: a request without an amount of memory takes all of it, so a whole GPU
is whole whatever its size. NUMA zones are devices too, and a pod that has to fit one zone claims a part of it. Given
nodes and slices. Never says which pod holds which device.
"""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Iterator
from typing import Final

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import capacity, device_classes, slices
from dovetail.quantity import quantity
from dovetail.replay.scenarios import scenario_format
from dovetail.world.events import Object

GPU_DRIVER: Final = "gpu.nvidia.com"
GPU_CLASS: Final = "gpu.nvidia.com"
GPU_RESOURCE: Final = "nvidia.com/gpu"  # devices stand for it, so it is never counted as well
MEMORY: Final = "memory"
INDEX: Final = f"{GPU_DRIVER}/index"
SHAREABLE: Final = f'device.attributes["{GPU_DRIVER}"].shareable'
USABLE: Final = f'device.attributes["{GPU_DRIVER}"].usable'
CLAIMED_GPU_DRIVER: Final = "gpu.dra.example.com"  # of slices written in the scenario
CLAIMED_DRIVER: Final = "dra.example.com"
NUMA_DRIVER: Final = "numa.example.com"
NUMA_CLASS: Final = "numa.example.com"
ALIGNING: Final = frozenset({"single-numa-node", "restricted"})  # policies that reject pods
GUARANTEED: Final = "Guaranteed"  # the QoS class of pods that are aligned
NODE_LABEL: Final = "dovetail.dev/scenario-node"
HOSTNAME: Final = "kubernetes.io/hostname"
ENDLESS: Final = quantity.parse("1E")
MEBIBYTE: Final = 1024 * 1024

ZoneUsage = dict[str, dict[tuple[str, str], float]]  # node -> zone and resource -> amount


def objects(scenario: scenario_format.Scenario) -> Iterator[Object]:
    """Nodes with everything they publish, and the device classes of the requests."""
    yield _class(GPU_CLASS, f'device.driver == "{GPU_DRIVER}"')
    for kind in scenario.device_classes:
        yield _class(
            class_name(kind.name), f'device.driver in ["{CLAIMED_GPU_DRIVER}", "{CLAIMED_DRIVER}"]'
        )

    claimed_nodes = claimed_gpu_nodes(scenario)
    host_keys = _host_keys(scenario)
    for node in scenario.nodes:
        yield _node(node, dict.fromkeys(host_keys, node.name))
        if node.gpu.count:
            yield _gpus(node, has_claimed=node.name in claimed_nodes)

    parts = Counter(
        (device_slice.gpu, device_slice.pool) for device_slice in scenario.device_slices
    )
    for device_slice in scenario.device_slices:
        yield _claimable(device_slice, parts=parts[device_slice.gpu, device_slice.pool])

    if has_zones(scenario):
        yield _class(NUMA_CLASS, f'device.driver == "{NUMA_DRIVER}"')
        zone_usage = _zone_usage(scenario)
        for node in scenario.nodes:
            yield _zones(node, zone_usage)


def claimed_gpu_nodes(scenario: scenario_format.Scenario) -> set[str]:
    """The nodes whose GPUs the scenario writes as slices."""
    return {device_slice.node for device_slice in scenario.device_slices if device_slice.gpu}


def class_name(name: str) -> str:
    """The name of a scenario's device class, distinct from ours."""
    return f"{name}.scenario"


def claimed_driver(*, gpu: bool) -> str:
    """The driver of slices written in the scenario."""
    return CLAIMED_GPU_DRIVER if gpu else CLAIMED_DRIVER


def gpu_name(index: int) -> str:
    """The device name of a node's GPU."""
    return f"gpu-{index}"


def is_shareable(node: scenario_format.Node, *, has_claimed: bool) -> bool:
    """Whether GPUs of the node can be shared: not if MIG cuts them, nor if claims name them."""
    return node.gpu.mig == "none" and not has_claimed


def has_zones(scenario: scenario_format.Scenario) -> bool:
    """Whether any node rejects pods that do not fit its zones."""
    return any(node.numa is not None and node.numa.policy in ALIGNING for node in scenario.nodes)


def exact(amount: float) -> quantity.Quantity:
    """The amount as written: 0.1 is a tenth, not the nearest binary fraction."""
    return quantity.parse(f"{decimal.Decimal(repr(amount)):f}")


def mebibytes(count: int) -> quantity.Quantity:
    """An amount of GPU memory."""
    return quantity.Quantity.from_int(count * MEBIBYTE, quantity.Format.BINARY_SI)


def _host_keys(scenario: scenario_format.Scenario) -> set[str]:
    """Topology keys of pod affinities that no node carries: scenarios mean the node itself by them."""
    keys: set[str] = set()
    for pod in scenario.pods:
        terms = (pod.affinity, pod.anti_affinity)
        keys.update(term.topology_key for term in terms if term is not None)
    for node in scenario.nodes:
        keys.difference_update(node.labels)
    return keys


def _node(node: scenario_format.Node, host_labels: dict[str, str]) -> nodes.Node:
    amounts = {name: exact(amount) for name, amount in node.allocatable.items()}
    amounts.pop(GPU_RESOURCE, None)
    return nodes.Node(
        api_version="v1",
        kind="Node",
        metadata=meta.ObjectMeta(
            name=node.name,
            uid=f"node/{node.name}",
            labels={HOSTNAME: node.name} | node.labels | {NODE_LABEL: node.name} | host_labels,
        ),
        status=nodes.NodeStatus(allocatable=amounts),
    )


def _gpus(node: scenario_format.Node, *, has_claimed: bool) -> slices.ResourceSlice:
    shareable = is_shareable(node, has_claimed=has_claimed)
    usable = node.gpu.mig != "mixed"
    devices = tuple(
        slices.Device(
            name=gpu_name(index),
            attributes={
                "uuid": slices.DeviceAttribute(string_value=f"GPU-{node.name}-{index}"),
                "index": slices.DeviceAttribute(int_value=index),
                "usable": slices.DeviceAttribute(bool_value=usable),
                "shareable": slices.DeviceAttribute(bool_value=shareable),
            },
            capacity={MEMORY: capacity.DeviceCapacity(value=mebibytes(node.gpu.memory_mib))},
            allow_multiple_allocations=shareable,
        )
        for index in range(node.gpu.count)
    )
    return _slice(
        f"{node.name}-{GPU_DRIVER}", GPU_DRIVER, node=node.name, pool=node.name, devices=devices
    )


def _claimable(device_slice: scenario_format.DeviceSlice, *, parts: int) -> slices.ResourceSlice:
    devices = tuple(slices.Device(name=name) for name in device_slice.devices)
    driver = claimed_driver(gpu=device_slice.gpu)
    return _slice(
        f"{device_slice.name}-{driver}",
        driver,
        node=device_slice.node,
        pool=device_slice.pool,
        devices=devices,
        parts=parts,
    )


def _zones(node: scenario_format.Node, zone_usage: ZoneUsage) -> slices.ResourceSlice:
    """The node's zones with their free and used capacity; one unlimited zone without an aligning policy."""
    zones: tuple[scenario_format.Zone, ...] = (scenario_format.Zone(id="all"),)
    if node.numa is not None and node.numa.policy in ALIGNING:
        zones = node.numa.zones
    used_here = zone_usage.get(node.name, {})

    def zone_capacity(zone: scenario_format.Zone, resource: str) -> capacity.DeviceCapacity:
        free = zone.available.get(resource)
        if free is None:
            return capacity.DeviceCapacity(value=ENDLESS)
        used = used_here.get((zone.id, resource), 0)
        return capacity.DeviceCapacity(value=exact(free + used))

    devices = tuple(
        slices.Device(
            name=zone.id,
            attributes={"zone": slices.DeviceAttribute(string_value=zone.id)},
            capacity={resource: zone_capacity(zone, resource) for resource in ("cpu", MEMORY)},
            allow_multiple_allocations=True,
        )
        for zone in zones
    )
    return _slice(
        f"{node.name}-{NUMA_DRIVER}", NUMA_DRIVER, node=node.name, pool=node.name, devices=devices
    )


def zone_of(node: scenario_format.Node, name: str) -> str | None:
    """The zone that a placement names by its id or its index; None if there is none."""
    if node.numa is None:
        return None
    zone_ids = [zone.id for zone in node.numa.zones]
    if name in zone_ids:
        return name
    if name.isdecimal() and int(name) < len(zone_ids):
        return zone_ids[int(name)]
    return None


def _zone_usage(scenario: scenario_format.Scenario) -> ZoneUsage:
    """What the aligned pods hold of each zone. Only Guaranteed pods are aligned."""
    nodes_by_name = {node.name: node for node in scenario.nodes}
    usage: ZoneUsage = {}
    for pod in scenario.pods:
        is_aligned = pod.state in scenario_format.HOLDING and pod.qos == GUARANTEED
        if pod.node is None or not is_aligned:
            continue
        used_here = usage.setdefault(pod.node, {})
        for name, amounts in pod.numa_placement.items():
            zone = zone_of(nodes_by_name[pod.node], name)
            if zone is None:
                continue
            for resource, amount in amounts.items():
                used_here[zone, resource] = used_here.get((zone, resource), 0) + amount
    return usage


def _slice(
    name: str,
    driver: str,
    *,
    node: str,
    pool: str,
    devices: tuple[slices.Device, ...],
    parts: int = 1,
) -> slices.ResourceSlice:
    return slices.ResourceSlice(
        api_version="resource.k8s.io/v1",
        kind="ResourceSlice",
        metadata=meta.ObjectMeta(name=name, uid=f"slice/{name}"),
        spec=slices.ResourceSliceSpec(
            driver=driver,
            pool=slices.ResourcePool(name=pool, generation=1, resource_slice_count=parts),
            node_name=node,
            devices=devices,
        ),
    )


def _class(name: str, expression: str) -> device_classes.DeviceClass:
    return device_classes.DeviceClass(
        api_version="resource.k8s.io/v1",
        kind="DeviceClass",
        metadata=meta.ObjectMeta(name=name),
        spec=device_classes.DeviceClassSpec(
            selectors=(
                device_classes.DeviceSelector(
                    cel=device_classes.CELDeviceSelector(expression=expression)
                ),
            )
        ),
    )
