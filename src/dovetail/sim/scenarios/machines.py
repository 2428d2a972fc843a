"""What a scenario's nodes publish: Node objects, a slice of GPUs each, slices of other drivers, NUMA zones.

GPUs are devices that may be allocated several times: whoever asks for no amount of memory takes all of it, so a whole
GPU is whole whatever its size. NUMA zones are devices too, of which a pod that has to fit one zone claims a part.
Given nodes and slices. Never says who holds what.
"""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from dovetail.model import capacity, classes, meta, nodes, quantity, slices
from dovetail.sim.scenarios import reading
from dovetail.world.events import Object

GPU_DRIVER: Final = "gpu.nvidia.com"
GPU_CLASS: Final = "gpu.nvidia.com"
GPU_RESOURCE: Final = "nvidia.com/gpu"  # stands for devices here, never counted beside them
MEMORY: Final = "memory"
INDEX: Final = f"{GPU_DRIVER}/index"
SHAREABLE: Final = f'device.attributes["{GPU_DRIVER}"].shareable'
USABLE: Final = f'device.attributes["{GPU_DRIVER}"].usable'
CLAIMED_GPU_DRIVER: Final = "gpu.dra.example.com"  # of slices a scenario writes out
CLAIMED_DRIVER: Final = "dra.example.com"
NUMA_DRIVER: Final = "numa.example.com"
NUMA_CLASS: Final = "numa.example.com"
ALIGNING: Final = frozenset({"single-numa-node", "restricted"})  # policies that turn pods away
GUARANTEED: Final = "Guaranteed"  # the class of pods that are aligned
NODE_LABEL: Final = "dovetail.dev/scenario-node"
HOSTNAME: Final = "kubernetes.io/hostname"
ENDLESS: Final = quantity.parse("1E")
MEBIBYTE: Final = 1024 * 1024

Held = Mapping[str, Mapping[tuple[str, str], float]]  # node -> zone and resource -> amount


def objects(scenario: reading.Scenario) -> Iterator[Object]:
    """Nodes with everything they publish, and the classes devices are asked for by."""
    yield _class(GPU_CLASS, f'device.driver == "{GPU_DRIVER}"')
    for kind in scenario.device_classes:
        yield _class(class_name(kind.name), f'device.driver in ["{CLAIMED_GPU_DRIVER}", "{CLAIMED_DRIVER}"]')
    claimed = {one.node for one in scenario.device_slices if one.gpu}
    apart = _host_keys(scenario)
    for node in scenario.nodes:
        yield _node(node, dict.fromkeys(apart, node.name))
        if node.gpu.count:
            yield _gpus(node, has_claimed=node.name in claimed)
    parts = Counter((one.gpu, one.pool) for one in scenario.device_slices)
    for one in scenario.device_slices:
        yield _claimable(one, parts=parts[one.gpu, one.pool])
    if has_zones(scenario):
        yield _class(NUMA_CLASS, f'device.driver == "{NUMA_DRIVER}"')
        held = _held_of_zones(scenario)
        for node in scenario.nodes:
            yield _zones(node, held)


def class_name(name: str) -> str:
    """A scenario's device class among ours: never the same as one of them."""
    return f"{name}.scenario"


def claimed_driver(*, gpu: bool) -> str:
    """The driver of slices a scenario writes out."""
    return CLAIMED_GPU_DRIVER if gpu else CLAIMED_DRIVER


def gpu_name(index: int) -> str:
    """A GPU of a node."""
    return f"gpu-{index}"


def is_shareable(node: reading.Node, *, has_claimed: bool) -> bool:
    """Whether GPUs of the node are given out in parts: not where slices of them are, nor where claims reach them."""
    return node.gpu.mig == "none" and not has_claimed


def has_zones(scenario: reading.Scenario) -> bool:
    """Whether any node turns pods away by its zones."""
    return any(node.numa is not None and node.numa.policy in ALIGNING for node in scenario.nodes)


def exact(amount: float) -> quantity.Quantity:
    """An amount as it was written: 0.1 is a tenth, not the nearest binary fraction."""
    return quantity.parse(f"{decimal.Decimal(repr(amount)):f}")


def mebibytes(count: int) -> quantity.Quantity:
    """Memory of a GPU."""
    return quantity.Quantity.from_int(count * MEBIBYTE, quantity.Format.BINARY_SI)


def _host_keys(scenario: reading.Scenario) -> set[str]:
    """Keys by which pods ask for neighbours and which no node carries: scenarios mean the node itself by them."""
    terms = (term for job in scenario.jobs for pod in job.pods for term in (pod.affinity, pod.anti_affinity))
    named = {term.topology_key for term in terms if term is not None}
    return named - {key for node in scenario.nodes for key in node.labels}


def _node(node: reading.Node, apart: dict[str, str]) -> nodes.Node:
    return nodes.Node(
        api_version="v1",
        kind="Node",
        metadata=meta.ObjectMeta(
            name=node.name,
            uid=f"node/{node.name}",
            labels={HOSTNAME: node.name} | node.labels | {NODE_LABEL: node.name} | apart,
        ),
        status=nodes.NodeStatus(
            allocatable={name: exact(much) for name, much in node.allocatable.items() if name != GPU_RESOURCE}
        ),
    )


def _gpus(node: reading.Node, *, has_claimed: bool) -> slices.ResourceSlice:
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
    return _slice(f"{node.name}-{GPU_DRIVER}", GPU_DRIVER, node=node.name, pool=node.name, devices=devices)


def _claimable(one: reading.DeviceSlice, *, parts: int) -> slices.ResourceSlice:
    devices = tuple(slices.Device(name=name) for name in one.devices)
    driver = claimed_driver(gpu=one.gpu)
    return _slice(f"{one.name}-{driver}", driver, node=one.node, pool=one.pool, devices=devices, parts=parts)


def _zones(node: reading.Node, held: Held) -> slices.ResourceSlice:
    """The node's zones with what is free of them and what its pods hold; without an aligning policy one without end."""
    zones = node.numa.zones if node.numa is not None and node.numa.policy in ALIGNING else (reading.Zone(id="all"),)
    taken = held.get(node.name, {})
    devices = tuple(
        slices.Device(
            name=zone.id,
            attributes={"zone": slices.DeviceAttribute(string_value=zone.id)},
            capacity={
                name: capacity.DeviceCapacity(
                    value=exact(zone.available[name] + taken.get((zone.id, name), 0))
                    if name in zone.available
                    else ENDLESS
                )
                for name in ("cpu", MEMORY)
            },
            allow_multiple_allocations=True,
        )
        for zone in zones
    )
    return _slice(f"{node.name}-{NUMA_DRIVER}", NUMA_DRIVER, node=node.name, pool=node.name, devices=devices)


def zone_of(node: reading.Node, name: str) -> str | None:
    """The zone a placement means: by its id, or by its place among the node's zones."""
    zones = node.numa.zones if node.numa is not None else ()
    if any(zone.id == name for zone in zones):
        return name
    return zones[int(name)].id if name.isdecimal() and int(name) < len(zones) else None


def _held_of_zones(scenario: reading.Scenario) -> dict[str, dict[tuple[str, str], float]]:
    known = {node.name: node for node in scenario.nodes}
    found: dict[str, dict[tuple[str, str], float]] = {}
    for pod in (pod for job in scenario.jobs for pod in job.pods if pod.state in reading.HOLDING):
        if pod.node is None or pod.qos != GUARANTEED:  # whoever is not aligned holds none of its zones
            continue
        taken = found.setdefault(pod.node, {})
        for name, amounts in pod.numa_placement.items():
            if (zone := zone_of(known[pod.node], name)) is None:
                continue
            for resource, much in amounts.items():
                taken[zone, resource] = taken.get((zone, resource), 0) + much
    return found


def _slice(
    name: str, driver: str, *, node: str, pool: str, devices: tuple[slices.Device, ...], parts: int = 1
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


def _class(name: str, expression: str) -> classes.DeviceClass:
    return classes.DeviceClass(
        api_version="resource.k8s.io/v1",
        kind="DeviceClass",
        metadata=meta.ObjectMeta(name=name),
        spec=classes.DeviceClassSpec(
            selectors=(classes.DeviceSelector(cel=classes.CELDeviceSelector(expression=expression)),)
        ),
    )
