"""Fragmentation: free GPUs that the observed mix of jobs cannot use.

The mix is the pods that run and wait and use GPUs, by shape, each weighted by its number of pods. For one shape the
unusable GPUs of a node are what is free there minus what copies of the shape could take. The measure of a node is the
mean over the shapes that such a node could take were it empty, as in FGD (USENIX ATC 2023), with the engine's own
placement instead of a model of it. In thousandths of GPUs; never above what is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.answer.capacity import gpu_room, headroom, shapes
from dovetail.answer.replica.replica import Replica
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools, pod_requests
from dovetail.world.devices import gpu_ledger
from dovetail.world.world import World

MOST_SHAPES: Final = 12  # of the mix, the most common first; the others are left out and counted
PRODUCT: Final = "productName"
# What decides whether an empty node could take a shape.
_EXAMPLE_KINDS: Final = (registry.NAMESPACE, registry.NODE, registry.SLICE, registry.DEVICE_CLASS)


_NameOf = Callable[[World, str], str]


class ObservedShape(NamedTuple):
    """A shape of the mix, and how many pods have it."""

    shape: shapes.Shape
    pods: int


class Unusable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Free GPUs of one group of nodes, and how many of these the mix cannot use."""

    name: str
    gpus: float
    free: float
    unusable: float


class Fragmentation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The measure for the cluster, by GPU type and by node pool."""

    free: float
    unusable: float
    shapes: int  # of the mix that were asked about
    by_type: tuple[Unusable, ...]
    by_pool: tuple[Unusable, ...]


def observed_mix(replica: Replica) -> list[ObservedShape]:
    """The shapes of all pods that run or wait and use GPUs, the most common first."""
    world = replica.world
    members: dict[object, list[pods.Pod]] = {}
    for pod in world.pods.values():
        if pod.status.phase in pods.TERMINAL_PHASES or not uses_gpus(world, pod):
            continue
        members.setdefault(shape_key(world, pod), []).append(pod)
    mix: list[ObservedShape] = []
    for alike in members.values():
        try:
            shape = shapes.shape_of(replica, alike[0])
        except errors.InputError:
            continue  # a pod whose claims do not exist has no shape
        mix.append(ObservedShape(shape, len(alike)))
    return sorted(mix, key=lambda observed: (-observed.pods, observed.shape.name))


class FragmentationOfNodes(NamedTuple):
    """Free GPUs by node, and how many of these the mix cannot use; in thousandths."""

    free: Mapping[str, int]
    unusable: Mapping[str, float]


def fragmentation(replica: Replica, mix: Sequence[ObservedShape]) -> Fragmentation:
    """The free GPUs that the mix cannot use, on average over its pods."""
    return summary(replica.world, of_nodes(replica, mix), shapes=len(mix[:MOST_SHAPES]))


def summary(world: World, measured: FragmentationOfNodes, *, shapes: int) -> Fragmentation:
    """The measure by GPU type and by node pool."""
    free, unusable = measured
    return Fragmentation(
        free=_gpus(free.values()),
        unusable=_gpus(unusable.values()),
        shapes=shapes,
        by_type=_grouped(world, free, unusable, type_of),
        by_pool=_grouped(world, free, unusable, _pool_of),
    )


def of_nodes(replica: Replica, mix: Sequence[ObservedShape]) -> FragmentationOfNodes:
    """The measure node by node."""
    world = replica.world
    asked = mix[:MOST_SHAPES]
    free = {node: gpu_room.free_milli_gpu(world, node) for node in world.nodes}
    examples = examples_of(replica)
    unusable: Counter[str] = Counter()
    pods_counted: Counter[str] = Counter()
    for observed in asked:
        with replica.edited(headroom.without_queues(replica)):
            fit = headroom.free_room(replica, observed.shape)
        takers = headroom.free_room(examples.replica, observed.shape).by_node
        for node, milli_gpu in free.items():
            if examples.of[node] not in takers:
                continue  # another type of GPU, or another pool: not a matter of fragmentation
            left = max(milli_gpu - fit.milli_gpu_by_node.get(node, 0), 0)
            unusable[node] += left * observed.pods
            pods_counted[node] += observed.pods
    mean = {node: unusable[node] / max(pods_counted[node], 1) for node in free}
    return FragmentationOfNodes(free, mean)


class Examples(NamedTuple):
    """A cluster with one empty node of each kind, and the example of every node."""

    replica: Replica
    of: Mapping[str, str]


def examples_of(replica: Replica) -> Examples:
    """One empty node of each kind: what could take a shape at all is asked of these."""
    world = replica.world
    example_of_kind: dict[object, str] = {}
    example_of: dict[str, str] = {}
    for name, node in world.nodes.items():
        kind = (
            type_of(world, name),
            node_pools.name_of(node),
            whole_milli_gpu(world, name),
            world.offered(name),
            node.spec,
        )
        example_of[name] = example_of_kind.setdefault(_hashable(kind), name)
    kept_nodes = frozenset(example_of_kind.values())
    stored = [each for kind in _EXAMPLE_KINDS for each in replica.listed(kind.unique_name)]
    kept = [each for each in stored if _is_kept(each.struct, kept_nodes)]
    small = Replica(object_set.of("examples", kept), replica.policy, replica.now)
    return Examples(small, example_of)


def _hashable(kind: tuple[object, ...]) -> bytes:
    return msgspec.json.encode(kind, enc_hook=str)


def _is_kept(struct: object, kept_nodes: frozenset[str]) -> bool:
    """Nodes that are examples, and slices that publish their devices or those of no single node."""
    if isinstance(struct, nodes.Node):
        return struct.metadata.name in kept_nodes
    if isinstance(struct, slices.ResourceSlice):
        return not struct.spec.node_name or struct.spec.node_name in kept_nodes
    return True


def whole_milli_gpu(world: World, node: str) -> int:
    """All GPUs of a node, in use or not."""
    ledger = gpu_ledger.Ledger()
    whole = sum(ledger.whole_milli_gpu(pool.devices) for pool in world.view(node).pools)
    labels = world.nodes[node].metadata.labels
    for name, count in world.offered(node).scalars:
        whole += gpu_ledger.plugin_cost(name, count, labels)
    return whole


def uses_gpus(world: World, pod: pods.Pod) -> bool:
    """Whether a pod holds or requests GPUs."""
    if any(node_pools.is_gpu_resource(name) for name, _ in pod_requests.pod_request(pod).scalars):
        return True
    if not pod.spec.resource_claims:
        return False
    for key in world.claims_used(pod):
        allocation = world.allocation(key)
        if allocation is None or any(
            gpu_ledger.publishes_gpus(result.driver) for result in allocation.devices.results
        ):
            return True
    return False


def shape_key(world: World, pod: pods.Pod) -> object:
    """Equal for pods that request the same: resources, device requests, and rules about nodes."""
    specs = []
    for key in world.claims_used(pod):
        claim = world.claims.get(key)
        specs.append(msgspec.json.encode(claim.spec, enc_hook=str) if claim is not None else key)
    spec = pod.spec
    rules = msgspec.json.encode([spec.node_selector, spec.affinity, spec.tolerations], enc_hook=str)
    return pod.metadata.namespace, pod_requests.pod_request(pod), tuple(specs), rules


def _grouped(
    world: World, free: Mapping[str, int], unusable: Mapping[str, float], name_of: _NameOf
) -> tuple[Unusable, ...]:
    """By name; groups without GPUs are left out."""
    members: dict[str, list[str]] = {}
    for node in free:
        members.setdefault(name_of(world, node), []).append(node)
    groups = [
        Unusable(
            name=name,
            gpus=_gpus(whole_milli_gpu(world, node) for node in nodes),
            free=_gpus(free[node] for node in nodes),
            unusable=_gpus(unusable[node] for node in nodes),
        )
        for name, nodes in sorted(members.items())
    ]
    return tuple(group for group in groups if group.gpus)


def type_of(world: World, node: str) -> str:
    """The product of a node's GPUs, as its driver publishes it or its labels name it; empty without GPUs."""
    for pool in world.view(node).pools:
        if not gpu_ledger.publishes_gpus(pool.driver) or not len(pool.devices):
            continue
        attribute = pool.devices.templates[0].attributes.get(PRODUCT)
        if attribute is not None and attribute.string_value:
            return attribute.string_value
    return node_pools.pool_of(world.nodes[node]).accelerator


def _pool_of(world: World, node: str) -> str:
    return node_pools.name_of(world.nodes[node])


def _gpus(milli_gpu: Iterable[float]) -> float:
    return round(sum(milli_gpu) / gpu_ledger.WHOLE, 3)
