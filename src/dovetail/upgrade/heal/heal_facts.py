"""What the healer sees: faults by GPU, the pods on each GPU, the gangs they belong to, and its own records on Nodes.

Given a replica of the cluster. A pod holds a GPU while it occupies the node and a claim of it has a device of that GPU.
Where a device plugin gave out GPUs, which pod has which GPU is not known, and stays so. Never decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail import timestamps
from dovetail.answer.drain import drain_filters
from dovetail.answer.replica import gang_departure
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import displaced_pods
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import slices
from dovetail.model import gangs, node_annotations, node_pools, reservations
from dovetail.node.health import node_report
from dovetail.upgrade import read_facts
from dovetail.upgrade.heal import heal_record, remedy_ladder
from dovetail.upgrade.heal.heal_record import MovedPod, Record, Unreadable
from dovetail.upgrade.heal.remedy_ladder import SeenFault

UPGRADE_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"  # of the GPU Operator
_SETTLED: Final = frozenset({"", "upgrade-done", "upgrade-required"})
_GPU: Final = re.compile(r"gpu-[0-9]{1,4}")  # NVIDIA's names: a partition's begins with its GPU's


class PodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that may have to leave."""

    uid: str
    namespace: str
    name: str
    node: str
    has_controller: bool
    is_ending: bool
    unit: str  # what leaves together
    with_it: tuple[str, ...]  # uids of all pods of the unit, its own included


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU with all its partitions."""

    name: str
    faults: tuple[SeenFault, ...] = ()
    holders: tuple[str, ...] = ()  # uids of pods

    @property
    def is_blocked(self) -> bool:
        """Whether a fault keeps new work away."""
        return any(fault.is_blocking for fault in self.faults)


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node with GPUs."""

    name: str
    pool: str
    version: str  # resourceVersion, for the writes that follow
    is_ready: bool
    gpus: tuple[GpuFacts, ...]
    gpu_pods: tuple[str, ...] = ()  # uids, also of those whose GPU is not known
    all_pods: tuple[str, ...] = ()  # uids of what a drain would move
    record: Record | Unreadable = Record()
    response: node_annotations.HealResponse | None = None
    taints: tuple[nodes.Taint, ...] = ()
    upgrade: str = ""  # that works on the node, for a sentence
    unlocated: str = ""  # faults of GPUs that no device shows


class HealFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, as far as healing goes."""

    nodes: tuple[NodeFacts, ...]
    pods: Mapping[str, PodFacts]

    def moved(self, uids: Iterable[str]) -> tuple[MovedPod, ...]:
        """These pods and all that leave with them."""
        present = [self.pods[uid] for uid in uids if uid in self.pods]
        units = {pod.unit: pod.with_it for pod in present}
        return tuple(
            sorted(
                MovedPod(unit, self.pods[uid].namespace, self.pods[uid].name, uid)
                for unit, members in units.items()
                for uid in members
                if uid in self.pods
            )
        )


def has_work(objects: object_set.ObjectSet) -> bool:
    """Whether nodes and slices alone show a fault or a record: else the healer needs nothing more."""
    devices = (
        device
        for stored in objects.listed(registry.SLICE.name)
        if isinstance(stored.struct, slices.ResourceSlice)
        and stored.struct.spec.driver == node_pools.GPU_DRIVER
        for device in stored.struct.spec.devices
    )
    if any(True for device in devices for _ in _faults(device)):
        return True
    present = (stored.struct for stored in objects.listed(registry.NODE.name))
    return any(_is_noted(node) for node in present if isinstance(node, nodes.Node))


def _is_noted(node: nodes.Node) -> bool:
    """Whether a Node says itself that it is healed, or that its GPUs are not well."""
    is_unwell = any(
        each.type == node_report.CONDITION and each.status == "False"
        for each in node.status.conditions
    )
    return is_unwell or heal_record.RECORD in node.metadata.annotations


def read(replica: Replica) -> HealFacts:
    """The facts. Linear in pods and devices."""
    placed = {
        uid: pod
        for uid, pod in replica.world.pods.items()
        if pods.occupies_node(pod) and pod.spec.node_name in replica.world.nodes
    }
    gpus = _gpus(replica, placed)
    by_node: dict[str, list[str]] = {}
    for uid, pod in placed.items():
        by_node.setdefault(pod.spec.node_name, []).append(uid)
    return HealFacts(
        nodes=tuple(
            _node(replica, node, gpus.get(name, {}), by_node.get(name, ()))
            for name, node in sorted(replica.world.nodes.items())
            if name in gpus or node_pools.plugin_gpus(node)
        ),
        pods={uid: _pod(replica, uid, pod) for uid, pod in placed.items()},
    )


def _node(
    replica: Replica, node: nodes.Node, gpus: Mapping[str, GpuFacts], present: Iterable[str]
) -> NodeFacts:
    annotations = node.metadata.annotations
    conditions = {each.type: each for each in node.status.conditions}
    ready, health = conditions.get("Ready"), conditions.get(node_report.CONDITION)
    is_unlocated = not gpus and health is not None and health.status == "False"
    movable = [uid for uid in present if not displaced_pods.is_bound_to_node(_of(replica, uid))]
    held = {uid for gpu in gpus.values() for uid in gpu.holders}
    return NodeFacts(
        name=node.metadata.name,
        pool=node_pools.name_of(node) or "none",
        version=node.metadata.resource_version,
        is_ready=ready is not None and ready.status == "True",
        gpus=tuple(gpus[name] for name in sorted(gpus)),
        gpu_pods=tuple(
            sorted(uid for uid in movable if uid in held or _counts_gpus(_of(replica, uid)))
        ),
        all_pods=tuple(sorted(movable)),
        record=heal_record.record_of(annotations),
        response=node_annotations.heal_response_of(annotations),
        taints=node.spec.taints,
        upgrade=_upgrade(node),
        unlocated=health.message if health is not None and is_unlocated else "",
    )


def _upgrade(node: nodes.Node) -> str:
    """What is being installed on the node: faults are to be expected then, and the node is drained already."""
    fences = [taint.value for taint in node.spec.taints if taint.key == read_facts.FENCE]
    if fences:
        return f"StackUpgrade {fences[0]} has fenced the node"
    state = node.metadata.labels.get(UPGRADE_STATE, "")
    return "" if state in _SETTLED else f"the GPU Operator has the node in {state}"


def _gpus(replica: Replica, placed: Mapping[str, pods.Pod]) -> dict[str, dict[str, GpuFacts]]:
    """The GPUs of each node, by name."""
    faults: dict[tuple[str, str], dict[SeenFault, None]] = {}
    for stored in replica.listed(registry.SLICE.unique_name):
        published = stored.struct
        if not isinstance(published, slices.ResourceSlice):
            continue
        spec = published.spec
        if spec.driver == node_pools.GPU_DRIVER and spec.node_name:
            for device in spec.devices:
                seen = faults.setdefault((spec.node_name, gpu_name(device.name)), {})
                seen.update(dict.fromkeys(_faults(device)))

    holders = _holders(replica, placed)
    by_node: dict[str, dict[str, GpuFacts]] = {}
    for (node, gpu), seen in faults.items():
        by_node.setdefault(node, {})[gpu] = GpuFacts(
            name=gpu,
            faults=tuple(sorted(seen, key=lambda fault: (fault.since, fault.name))),
            holders=tuple(sorted(holders.get((node, gpu), ()))),
        )
    return by_node


def gpu_name(device: str) -> str:
    """The GPU that a device is, or is a part of."""
    match = _GPU.match(device)
    return match[0] if match else device


def _faults(device: slices.Device) -> Iterable[SeenFault]:
    for taint in device.taints:
        added = timestamps.parse_or_none(taint.time_added)
        since = added.timestamp() if added is not None else 0.0
        fault = remedy_ladder.fault_of(taint, since=since)
        if fault is not None:
            yield fault


def _holders(replica: Replica, placed: Mapping[str, pods.Pod]) -> dict[tuple[str, str], set[str]]:
    """The pods on each GPU, by node and GPU. Admin access holds nothing: monitors have it."""
    holders: dict[tuple[str, str], set[str]] = {}
    for uid, pod in placed.items():
        for key in reservations.used_claims(pod):
            claim = replica.world.claims.get(key)
            allocation = claim.status.allocation if claim is not None else None
            for result in allocation.devices.results if allocation is not None else ():
                if result.driver == node_pools.GPU_DRIVER and not result.admin_access:
                    place = (pod.spec.node_name, gpu_name(result.device))
                    holders.setdefault(place, set()).add(uid)
    return holders


def _pod(replica: Replica, uid: str, pod: pods.Pod) -> PodFacts:
    member = replica.world.gangs.of(uid) or gangs.lone_membership(pod)
    with_it = gang_departure.leaving_with(replica.world, uid, member.gang)
    is_gang = len(with_it) > 1
    own_name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return PodFacts(
        uid=uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.node_name,
        has_controller=drain_filters.controller_of(pod) is not None,
        is_ending=pod.metadata.deletion_timestamp is not None,
        unit="/".join(member.gang) if is_gang else own_name,
        with_it=tuple(with_it),
    )


def _of(replica: Replica, uid: str) -> pods.Pod:
    return replica.world.pods[uid]


def _counts_gpus(pod: pods.Pod) -> bool:
    """Whether a device plugin gave the pod GPUs."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    names = {name for each in containers for name in each.resources.limits}
    return any(node_pools.is_gpu_resource(name) for name in names)
