"""GPUs that a device plugin counts: whole ones, MIG partitions and replicas, and how many of each are in use.

Given a node and the pods bound to it. A device plugin publishes numbers without names, so which of a node's GPUs a pod
holds is not known: use is shown from the first GPU on. Returns numbers. Never prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.kubetypes import object_set
from dovetail.kubetypes.core import nodes, pods
from dovetail.model import node_pools, pod_requests

WHOLE, MIG, SHARED = "gpu", "mig", "shared"
MIG_PREFIX: Final = "nvidia.com/mig-"
SHARED_NAME: Final = "nvidia.com/gpu.shared"
MOST_COUNTED: Final = (
    10_000  # GPUs, slices or replicas of one node; more is a mistake, or an attack
)


class Resource(msgspec.Struct, frozen=True):
    """One extended resource of a node: how many there are and how many bound pods request."""

    node: str
    name: str
    type: str
    total: int
    used: int

    @property
    def profile(self) -> str:
        """The MIG profile; empty for others."""
        return self.name.removeprefix(MIG_PREFIX) if self.type == MIG else ""


def resources_of(node: nodes.Node, used: Mapping[str, int]) -> tuple[Resource, ...]:
    """The GPU resources of a node, by name."""
    pool = node_pools.pool_of(node)
    found = sorted(node_pools.plugin_gpus(node).items())
    return tuple(
        Resource(node.metadata.name, name, _type(name, pool), total, min(total, used.get(name, 0)))
        for name, total in found
    )


def implausible(node: nodes.Node) -> str:
    """What the node counts that no machine has; nothing where its numbers can be shown."""
    for name, total in sorted(node_pools.plugin_gpus(node).items()):
        if total > MOST_COUNTED:
            return f"{total} {name}"
    if node_pools.COUNT not in node.metadata.labels:
        return ""
    labelled = node_pools.pool_of(node).gpu_count
    return f"{labelled} {node_pools.COUNT}" if labelled > MOST_COUNTED else ""


def used_by_node(bound_pods: Iterable[pods.Pod]) -> dict[str, dict[str, int]]:
    """What the pods of every node request of extended resources, by node and resource."""
    by_node: dict[str, dict[str, int]] = {}
    for pod in bound_pods:
        if not pod.spec.node_name or pod.status.phase in pods.TERMINAL_PHASES:
            continue
        amounts = by_node.setdefault(pod.spec.node_name, {})
        for name, amount in pod_requests.occupied(pod).scalars:
            amounts[name] = amounts.get(name, 0) + amount
    return by_node


def used_in(objects: object_set.ObjectSet) -> dict[str, dict[str, int]]:
    """As `used_by_node`, for the pods of a set."""
    structs = [stored.struct for stored in objects.listed("Pod")]
    return used_by_node(pod for pod in structs if isinstance(pod, pods.Pod))


def _type(name: str, pool: node_pools.NodePool) -> str:
    """What one unit of the resource is. Replicas may go by the usual name, and partitions too (strategy "single")."""
    if name.startswith(MIG_PREFIX) or (pool.mig_profiles and not pool.gpu_count):
        return MIG
    if name == SHARED_NAME or (pool.sharing and name == node_pools.GPU_RESOURCE):
        return SHARED
    return WHOLE
