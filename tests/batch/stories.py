"""Words for stories about queues: GPUs of several kinds, work that runs or waits in a queue, what became of it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import namespaces, pods
from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.resource import claims, slices
from dovetail.model import gangs, plan
from dovetail.quantity import quantity
from dovetail.schedule import decide
from dovetail.world.events import Changed, Object
from dovetail.world.world import World
from tests.schedule import build

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-80GB"
H100_NAME = "gpu/product.NVIDIA-H100-80GB-HBM3"
A100_NAME = "gpu/product.NVIDIA-A100-SXM4-80GB"
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "owner",
    "uid": "owner",
    "controller": True,
}
Tree = dict[str, Any]


def stamp(seconds_ago: float) -> str:
    """A moment before now, as objects write it."""
    return (NOW - datetime.timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def queue(name: str, shares: dict[str, Tree] | None = None, **spec: Any) -> queues.Queue:
    """A queue that every namespace may use; `gpu=2` is short for a quota of two GPUs."""
    listed = dict(shares or {})
    if "gpu" in spec:
        listed["gpu"] = {"quota": spec.pop("gpu"), **listed.get("gpu", {})}
    resources = {
        resource: queues.Share(
            quota=_amount(share.get("quota")),
            limit=_amount(share.get("limit")),
            weight=share.get("weight", 1),
        )
        for resource, share in listed.items()
    }
    queue_spec = queues.QueueSpec(
        resources=resources, namespace_selector=meta.LabelSelector(), **spec
    )
    metadata = meta.ObjectMeta(name=name, uid=f"uid-of-{name}", creation_timestamp=stamp(9000))
    return queues.Queue(metadata=metadata, spec=queue_spec)


def _amount(value: object) -> quantity.Quantity | None:
    return None if value is None else quantity.parse(str(value))


def world(*given: Object) -> World:
    """A world with one namespace, a class of GPUs and whatever else is given."""
    space = namespaces.Namespace(metadata=meta.ObjectMeta(name="default"))
    return build.world(space, *given)


def plugin_node(
    name: str, gpus: int = 8, *, resource: str = "nvidia.com/gpu", **labels: str
) -> Object:
    """A node whose device plugin offers GPUs by count."""
    written = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return build.node(name, allocatable={resource: str(gpus)}, labels=written)


def boards(name: str, count: int, product: str, architecture: str) -> tuple[Object, Object]:
    """A node with whole GPUs of one product as devices."""
    kind = {"productName": {"string": product}, "architecture": {"string": architecture}}
    return build.node(name), build.gpu_slice(name, count, **kind)


def partitioned(name: str, product: str = H100) -> tuple[Object, Object]:
    """A node with one GPU that is whole or cut into seven 1g.10gb or two 3g.40gb, by counters."""
    kind = {"productName": {"string": product}, "architecture": {"string": "Hopper"}}
    devices = [_partition("gpu-0", kind, 0, 8, 7)]
    devices += [
        _partition(f"gpu-0-1g-{i}", kind | {"profile": {"string": "1g.10gb"}}, i, 1, 1)
        for i in range(7)
    ]
    devices += [
        _partition(f"gpu-0-3g-{i}", kind | {"profile": {"string": "3g.40gb"}}, i, 4, 3)
        for i in (0, 4)
    ]
    slots = {f"memory-slice-{slot}": {"value": "1"} for slot in range(8)}
    sets = [{"name": "gpu-0", "counters": {"multiprocessors": {"value": "7"}, **slots}}]
    published = build.gpu_pool(name, devices)
    counters = build.struct(
        "ResourceSlice",
        {
            "metadata": {"name": f"{name}-counters"},
            "spec": {
                "driver": build.DRIVER,
                "nodeName": name,
                "sharedCounters": sets,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 2},
            },
        },
    )
    pool = slices.ResourcePool(name=name, generation=1, resource_slice_count=2)
    published = msgspec.structs.replace(
        published, spec=msgspec.structs.replace(published.spec, pool=pool)
    )
    return build.node(name), published, counters  # type: ignore[return-value]


def _partition(name: str, attributes: Tree, start: int, memory: int, compute: int) -> Tree:
    slots = {f"memory-slice-{slot}": {"value": "1"} for slot in range(start, start + memory)}
    counters = {"multiprocessors": {"value": str(compute)}, **slots}
    return {
        "name": name,
        "attributes": attributes,
        "consumesCounters": [{"counterSet": "gpu-0", "counters": counters}],
    }


def pod(name: str, of: str, *, gpus: int = 0, uses: Sequence[str] = (), **facts: Any) -> pods.Pod:
    """A pod of a queue that a controller recreates. `node` and `since` say where and for how many seconds it runs."""
    resource = facts.pop("resource", "nvidia.com/gpu")
    labels = {gangs.QUEUE_LABEL: of, **facts.pop("labels", {})}
    expected = {"cpu": "1", **({resource: str(gpus)} if gpus else {})}
    container = {"name": "main", "resources": {"requests": expected, "limits": dict(expected)}}
    metadata: Tree = {
        "labels": labels,
        "annotations": facts.pop("annotations", {}),
        "ownerReferences": [OWNER],
    }
    metadata |= facts.pop("metadata", {})
    node = facts.pop("node", "")
    since = facts.pop("since", 3600)
    status: Tree = facts.pop("status", {})
    if node:
        facts["nodeName"] = node
        status = {"phase": "Running", "startTime": stamp(since), **status}
    created = stamp(facts.pop("age", since))
    made = build.pod(
        name, uses=tuple(uses), metadata=metadata, containers=[container], created=created, **facts
    )
    return (
        msgspec.structs.replace(made, status=msgspec.convert(status, pods.PodStatus))
        if status
        else made
    )


def member(name: str, of: str, gang: str, least: int, **facts: Any) -> pods.Pod:
    """A pod of a gang that needs so many."""
    labels = {gangs.GANG_LABEL: gang, gangs.MIN_LABEL: str(least), **facts.pop("labels", {})}
    annotations = {gangs.MIN_LABEL: str(least), **facts.pop("annotations", {})}
    return pod(name, of, labels=labels, annotations=annotations, **facts)


def holding(
    name: str, *devices: tuple[str, str], users: Sequence[str] = (), **facts: Any
) -> claims.ResourceClaim:
    """A claim that holds devices, each by node and name, for these pods."""
    made = build.claim(name, max(len(devices), 1), **facts)
    results = tuple(
        claims.DeviceRequestAllocationResult(
            request="gpus", driver=build.DRIVER, pool=pool, device=device
        )
        for pool, device in devices
    )
    allocation = claims.AllocationResult(devices=claims.DeviceAllocationResult(results=results))
    reserved = tuple(
        claims.ResourceClaimConsumerReference(resource="pods", name=user, uid=f"uid-of-{user}")
        for user in users
    )
    status = claims.ResourceClaimStatus(allocation=allocation, reserved_for=reserved)
    return msgspec.structs.replace(made, status=status)


def runs(cluster: World, name: str, of: str, *devices: tuple[str, str], **facts: Any) -> World:
    """A pod that runs on devices of a node, through a claim of its own."""
    when = facts.pop("when", "")
    build.put(cluster, holding(f"{name}-claim", *devices, users=[name], when=when))
    return build.put(cluster, pod(name, of, uses=[f"{name}-claim"], node=devices[0][0], **facts))


def waits(
    cluster: World, name: str, of: str, count: int = 1, *, when: str = "", **facts: Any
) -> World:
    """A pod that waits for devices."""
    build.put(cluster, build.claim(f"{name}-claim", count, when=when))
    return build.put(cluster, pod(name, of, uses=[f"{name}-claim"], **facts))


def decided(cluster: World, **options: Any) -> plan.Plan:
    """The plan, now."""
    return decide.decide(cluster, now=options.pop("now", NOW), **options)


def started(done: plan.Plan) -> dict[str, str]:
    """Pod -> node, of those that start now."""
    return build.nodes_of(done)


def nominated(done: plan.Plan) -> dict[str, str]:
    """Pod -> node, of those that wait for others to leave."""
    return {nomination.pod.name: nomination.node for nomination in done.nominations}


def evicted(done: plan.Plan) -> dict[str, str]:
    """Pod -> rule, of those that have to go."""
    return {eviction.pod.name: eviction.rule.value for eviction in done.evictions}


def detail(done: plan.Plan, name: str) -> str:
    """The message of a pod's eviction."""
    return next(eviction.detail for eviction in done.evictions if eviction.pod.name == name)


def why(done: plan.Plan, name: str) -> str:
    """Why a pod waits."""
    return build.summary_of(done, name)


def carried_out(cluster: World, done: plan.Plan) -> World:
    """The world once the plan was written and those who had to go are gone."""
    for eviction in done.evictions:
        gone = cluster.pods[eviction.pod.uid]
        for key in cluster.claims_used(gone):
            cluster.apply(
                Changed(build.replaced(cluster.claims[key], status=claims.ResourceClaimStatus()))
            )
        fresh = build.replaced(
            gone, spec=build.replaced(gone.spec, node_name=""), status=pods.PodStatus()
        )
        cluster.apply(Changed(fresh))
    return build.carried_out(cluster, done)
