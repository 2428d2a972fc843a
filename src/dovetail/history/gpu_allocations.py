"""Finds which part of which GPU each pod holds, priced on the one GPU ledger.

A claim that several pods share is split between those it is reserved for that have not ended; a claim without such
pods is held by itself. Administrative access holds nothing. Counted GPUs are held by bound pods that request them
where the node offers them. Given the World and one claim or pod; allocations begin at 0, as the recorder knows when.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dovetail.history import gpu_assets
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import pod_requests, reservations
from dovetail.model.accounting.records import Allocation, Form, Owner
from dovetail.schedule.node import extended_resources
from dovetail.world import events
from dovetail.world.devices import gpu_ledger
from dovetail.world.devices.device_columns import Devices
from dovetail.world.world import World

MICRO_PER_MILLI: Final = 1_000
SHARED: Final = "nvidia.com/gpu.shared"
MIG_PREFIX: Final = "nvidia.com/mig-"

OwnerOf = Callable[[pods.Pod], Owner]


def of_claim(
    world: World, ledger: gpu_ledger.Ledger, claim: claims.ResourceClaim, owner_of: OwnerOf
) -> Iterator[tuple[Allocation, bool]]:
    """What pods hold through a claim, each with whether its device is published: if not, its price is a guess."""
    allocation = claim.status.allocation
    if allocation is None:
        return
    holders = {events.pod_id(pod): pod for pod in holders_of(world, claim)}
    for result in allocation.devices.results:
        pool = (result.driver, result.pool)
        devices = world.devices_in(pool)
        milli_gpu = ledger.result_cost(result, devices)
        if not milli_gpu:
            continue
        index = _index(devices, result.device)
        parts = gpu_ledger.split(milli_gpu * MICRO_PER_MILLI, holders or {""})
        for holder, micro_gpu in parts.items():
            pod = holders.get(holder)
            owner = owner_of(pod) if pod is not None else _claim_itself(claim)
            yield (
                _of_result(claim, result, devices, index, owner=owner, micro_gpu=micro_gpu),
                index is not None,
            )


def holders_of(world: World, claim: claims.ResourceClaim) -> Iterator[pods.Pod]:
    """The pods that hold a claim: it is reserved for them or their group, and they have not ended."""
    key = events.key_of(claim)
    for user in claim.status.reserved_for:
        if reservations.is_group(user):
            members = world.gangs.owned(reservations.group_key(user, key[0]))
            candidates = [world.pods[member] for member in members if member in world.pods]
        else:
            pod = world.pods.get(user.uid)
            candidates = [pod] if user.resource == "pods" and pod is not None else []
        for pod in candidates:
            has_ended = pod.status.phase in pods.TERMINAL_PHASES
            if not has_ended and key in reservations.used_claims(pod):
                yield pod


def of_pod(
    world: World, pod: pods.Pod, owner_of: OwnerOf, *, behind: dict[str, str]
) -> Iterator[Allocation]:
    """What a pod holds of GPUs that its node counts. `behind`: classes that serve resources by claims."""
    if not is_running(pod):
        return
    node = world.nodes.get(pod.spec.node_name)
    labels = node.metadata.labels if node is not None else {}
    offered = world.offered(pod.spec.node_name) if node is not None else None
    for resource, count in pod_requests.occupied(pod).scalars:
        is_counted = offered is None or offered.scalar(resource) > 0 or resource not in behind
        milli_gpu = gpu_ledger.plugin_cost(resource, count, labels) if is_counted else 0
        if milli_gpu <= 0:
            continue
        yield Allocation(
            allocation=f"{events.pod_id(pod)}/{resource}",
            asset=gpu_assets.counted_name(pod.spec.node_name, resource),
            node=pod.spec.node_name,
            micro_gpu=milli_gpu * MICRO_PER_MILLI,
            form=_counted_form(resource, milli_gpu, count),
            owner=owner_of(pod),
            start=0,
            profile=resource.removeprefix(MIG_PREFIX) if resource.startswith(MIG_PREFIX) else "",
        )


def is_running(pod: pods.Pod) -> bool:
    """Whether a pod is bound and has not ended."""
    return bool(pod.spec.node_name) and pod.status.phase not in pods.TERMINAL_PHASES


def resources_behind(world: World) -> dict[str, str]:
    """The device classes that serve extended resources."""
    return extended_resources.classes_by_resource(world.classes)


def _of_result(
    claim: claims.ResourceClaim,
    result: claims.DeviceRequestAllocationResult,
    devices: Devices | None,
    index: int | None,
    *,
    owner: Owner,
    micro_gpu: int,
) -> Allocation:
    pool = (result.driver, result.pool)
    device = "/".join((*pool, result.device))
    parts = [claim.metadata.uid, result.request, device, result.share_id or "", owner.pod_uid]
    asset, node, profile, memory_bytes = device, "", "", 0
    form = Form.WHOLE if result.share_id is None else Form.SHARE
    if devices is not None and index is not None:
        asset = gpu_assets.of_device(pool, devices, index)
        node = devices.origins[index].node_name or ""
        profile = gpu_assets.text_of(devices, gpu_assets.PROFILE, index)
        memory_bytes = _memory(result, devices, index)
        is_partition = bool(gpu_assets.text_of(devices, gpu_assets.PARENT_UUID, index)) or (
            bool(profile) and bool(devices.templates[index].consumes_counters)
        )
        if is_partition and form is Form.WHOLE:
            form = Form.MIG
    return Allocation(
        allocation="/".join(part for part in parts if part),
        asset=asset,
        node=node,
        micro_gpu=micro_gpu,
        form=form,
        owner=owner,
        start=0,
        profile=profile,
        claim=claim.metadata.name,
        memory_bytes=memory_bytes,
    )


def _index(devices: Devices | None, device: str) -> int | None:
    return devices.names.index(device) if devices is not None and device in devices.names else None


def _memory(result: claims.DeviceRequestAllocationResult, devices: Devices, index: int) -> int:
    for name, amount in result.consumed_capacity.items():
        if name.rpartition("/")[2] == gpu_assets.MEMORY:
            return amount.value()
    return gpu_assets.memory_of(devices.templates[index])


def _claim_itself(claim: claims.ResourceClaim) -> Owner:
    """A claim that holds devices while no pod runs: its namespace pays."""
    return Owner(
        namespace=claim.metadata.namespace, pod="", pod_uid="", labels=dict(claim.metadata.labels)
    )


def _counted_form(resource: str, milli_gpu: int, count: int) -> Form:
    if resource.startswith(MIG_PREFIX):
        return Form.MIG
    if resource == SHARED or milli_gpu < count * gpu_ledger.WHOLE:
        return Form.REPLICA
    return Form.COUNTED
