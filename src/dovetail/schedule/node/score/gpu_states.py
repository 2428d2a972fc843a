"""What is free of a node's GPUs, device by device in milli-GPU, with its CPU and memory: what a placement's cost reads.

Given the World inside a trial. A device of a driver that may be shared counts by its scarcest capacity, a GPU that is
divided into partitions by its scarcest counter, replicas of a device plugin by their part of a GPU. Partitions that a
device plugin offers are not counted: they are divided already. Keeps the states of all nodes, by the World's journal of
changes. Never scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import claims
from dovetail.model import gpu_annotations, pod_mix, pod_requests
from dovetail.model.queue import queue_resources
from dovetail.world.devices import gpu_ledger
from dovetail.world.views.node_view import NodeView
from dovetail.world.world import World

MIB = 1 << 20
PRODUCT_ATTRIBUTE = "productName"


class GpuState(NamedTuple):
    """A node as costs see it. `devices` is free milli-GPU of each, smallest first, without those that have none."""

    model: str
    milli_cpu: int
    memory_mib: int
    devices: tuple[int, ...]
    idle: int
    full: int  # devices that are wholly free


class Taken(NamedTuple):
    """What an allocation takes of one device, in milli-GPU."""

    free_before: int
    free_after: int


def state_of(world: World, node: str, view: NodeView, ledger: gpu_ledger.Ledger) -> GpuState:
    """The node as it is now."""
    labels = view.node.metadata.labels
    by_device = free_by_device(view, ledger)
    return _state(model_of(view), world.free(node), labels, by_device.values())


def after(
    state: GpuState,
    free: pod_requests.Resources,
    need: pod_requests.Resources,
    *,
    labels: Mapping[str, str],
    taken: Iterable[Taken],
) -> GpuState:
    """The same node with a pod on it that needs so much and takes these devices."""
    devices = Counter(state.devices)
    devices.subtract(_of_plugins(free, labels))
    for device in taken:
        devices[device.free_before] -= 1
        devices[device.free_after] += 1
    return _state(state.model, free.minus(need), labels, devices.elements())


def _state(
    model: str,
    free: pod_requests.Resources,
    labels: Mapping[str, str],
    by_claims: Iterable[int],
) -> GpuState:
    devices = sorted([milli for milli in by_claims if milli > 0] + _of_plugins(free, labels))
    return GpuState(
        model=model,
        milli_cpu=free.milli_cpu,
        memory_mib=free.memory_bytes // MIB,
        devices=tuple(devices),
        idle=sum(devices),
        full=devices.count(pod_mix.MILLI),
    )


def _of_plugins(free: pod_requests.Resources, labels: Mapping[str, str]) -> list[int]:
    """Free replicas, as if they were packed onto as few GPUs as possible: no plugin says where they are."""
    milli = sum(
        gpu_ledger.plugin_cost(name, count, labels)
        for name, count in free.scalars
        if name in gpu_ledger.PLUGIN_GPUS and count > 0
    )
    whole, part = divmod(milli, pod_mix.MILLI)
    return [pod_mix.MILLI] * whole + ([part] if part else [])


def model_of(view: NodeView) -> str:
    """The product of the node's GPUs: the first that its drivers publish, else the one in its label."""
    for pool in view.pools:
        column = pool.devices.column(PRODUCT_ATTRIBUTE)
        product = next((value for value in column or () if value is not None), None)
        if product is not None and gpu_ledger.publishes_gpus(pool.driver):
            return queue_resources.slug(product.string_value or "")
    return labelled_model(view.node)


def labelled_model(node: nodes.Node) -> str:
    """The product that the node's label states."""
    return queue_resources.slug(node.metadata.labels.get(gpu_annotations.PRODUCT_LABEL, ""))


DeviceKey = tuple[str, str, str]  # driver, pool, and the device or the counter set that it draws on


def free_by_device(view: NodeView, ledger: gpu_ledger.Ledger) -> dict[DeviceKey, int]:
    """Free milli-GPU of every GPU that drivers publish, those in use included."""
    free: dict[DeviceKey, int] = {}
    for pool in view.pools:
        for name, milli in ledger.free_by_gpu(pool).items():
            free[pool.driver, pool.name, name] = milli
    return free


def views_by_free(view: NodeView, ledger: gpu_ledger.Ledger) -> list[tuple[int, NodeView]]:
    """The node with only those of its GPUs that have so much free, for every amount, smallest first."""
    free = free_by_device(view, ledger)
    options = []
    for amount in sorted({milli for milli in free.values() if milli}):
        pools = []
        for pool in view.pools:
            others = sum(
                1 << index
                for index, name in enumerate(pool.devices.names)
                if free.get((pool.driver, pool.name, name), amount) != amount
            )
            pools.append(pool._replace(barred=pool.barred | others) if others else pool)
        options.append((amount, view._replace(pools=tuple(pools))))
    return options


def taken_by(
    results: Iterable[claims.AllocationResult], view: NodeView, ledger: gpu_ledger.Ledger
) -> tuple[Taken, ...]:
    """What allocations take of the GPUs of a node; administrative access takes nothing."""
    before = free_by_device(view, ledger)
    pools = {(pool.driver, pool.name): pool.devices for pool in view.pools}
    left = dict(before)
    for allocation in results:
        for result in allocation.devices.results:
            devices = pools.get((result.driver, result.pool))
            cost = ledger.result_cost(result, devices)
            if devices is None or not cost:
                continue
            consumed = devices.templates[devices.names.index(result.device)].consumes_counters
            name = consumed[0].counter_set if consumed else result.device
            key = (result.driver, result.pool, name)
            left[key] = max(left.get(key, 0) - cost, 0)
    return tuple(Taken(milli, left[key]) for key, milli in before.items() if left[key] != milli)


class GpuStates:
    """The states of all nodes, and a sum over them."""

    def __init__(self, watch: Callable[[GpuState, int], None]) -> None:
        """`watch` is called with each state that is added (1) or no longer holds (-1)."""
        self._watch = watch
        self._states: dict[str, GpuState] = {}
        self._read = -1  # position in the World's journal

    def refresh(self, world: World, state_of_node: Callable[[str], GpuState]) -> None:
        """Reads the nodes that changed since the last call. Linear in them, and in all nodes the first time."""
        changed = world.node_changes.since(self._read)
        self._read = world.node_changes.end
        if changed is None:
            changed = sorted(world.nodes.keys() | self._states.keys())
        for name in dict.fromkeys(changed):
            state = state_of_node(name) if name in world.nodes else None
            before = self._states.pop(name, None)
            if before is not None:
                self._watch(before, -1)
            if state is not None:
                self._states[name] = state
                self._watch(state, 1)
