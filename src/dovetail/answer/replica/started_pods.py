"""What a cluster holds once a placement is carried out: the claims with their devices, and the pod on its node.

Given a World or a replica, and placements of the engine's plan about it. Returns objects; never stores them.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator

import msgspec

from dovetail.answer.replica.replica import Edit, Replica
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import plan
from dovetail.world.events import ObjectKey, key_of
from dovetail.world.world import World


def objects_of(
    world: World, placement: plan.Placement, now: datetime.datetime
) -> Iterator[claims.ResourceClaim | pods.Pod]:
    """The claims of the pod, allocated and reserved, then the pod, which runs at once."""
    results: dict[ObjectKey, claims.AllocationResult] = {
        (allocation.claim.namespace, allocation.claim.name): allocation.result
        for allocation in placement.allocations
    }
    pod = world.pods[placement.pod.uid]
    for ref in placement.reservations:
        claim = world.claims[ref.namespace, ref.name]
        user = world.user_of(pod, key_of(claim))
        yield _reserved(claim, results.get(key_of(claim)), user)
    start_time = now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = msgspec.structs.replace(pod.status, phase="Running", start_time=start_time)
    if placement.made is not None:
        new_claim = _named(placement.made, pod)
        user = claims.ResourceClaimConsumerReference(
            resource="pods", name=pod.metadata.name, uid=pod.metadata.uid
        )
        yield _reserved(new_claim, placement.made.result, user)
        claim_status = pods.PodExtendedResourceClaimStatus(
            request_mappings=placement.made.mappings,
            resource_claim_name=new_claim.metadata.name,
        )
        status = msgspec.structs.replace(status, extended_resource_claim_status=claim_status)
    spec = msgspec.structs.replace(pod.spec, node_name=placement.node)
    yield msgspec.structs.replace(pod, spec=spec, status=status)


def edits(replica: Replica, decided: plan.Plan, *, without: Collection[str] = ()) -> list[Edit]:
    """The replica's objects once everything has started that starts now, except the pods with these ids.

    Claims that several pods share are reserved for the last of them only: enough to keep their devices.
    """
    made: list[Edit] = []
    for placement in decided.placements:
        if placement.pod.uid in without or placement.pod.uid not in replica.world.pods:
            continue
        for struct in objects_of(replica.world, placement, replica.now):
            made.append(Edit(object_set.key_of(struct), codec.store(struct)))
    return made


def coming(replica: Replica, decided: plan.Plan, *, without: Collection[str] = ()) -> list[Edit]:
    """Pods for which others leave or move, on the nodes kept for them, and those that move, on the nodes they move to.

    Those that leave are counted where they are as well: what is about to be taken is not free in between.
    """
    pods_by_id = replica.world.pods
    moving = [
        _moved(pods_by_id[eviction.pod.uid], eviction.moves_to)
        for eviction in decided.evictions
        if eviction.moves_to and eviction.pod.uid in pods_by_id
    ]
    kept = [
        _on_node(pods_by_id[nomination.pod.uid], nomination.node)
        for nomination in decided.nominations
        if nomination.pod.uid in pods_by_id and nomination.pod.uid not in without
    ]
    arrivals = [*kept, *moving] if kept else []
    return [Edit(object_set.key_of(pod), codec.store(pod)) for pod in arrivals]


def _moved(pod: pods.Pod, node: str) -> pods.Pod:
    """What takes the place of a pod on another node, beside the pod itself."""
    metadata = msgspec.structs.replace(
        pod.metadata,
        name=f"{pod.metadata.name}-moved",
        uid=f"{pod.metadata.uid}-moved",
        owner_references=(),
    )
    return _on_node(msgspec.structs.replace(pod, metadata=metadata), node)


def _on_node(pod: pods.Pod, node: str) -> pods.Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def _reserved(
    claim: claims.ResourceClaim,
    result: claims.AllocationResult | None,
    user: claims.ResourceClaimConsumerReference,
) -> claims.ResourceClaim:
    users = claim.status.reserved_for
    status = msgspec.structs.replace(
        claim.status,
        allocation=claim.status.allocation or result,
        reserved_for=users if user in users else (*users, user),
    )
    return msgspec.structs.replace(claim, status=status)


def _named(new_claim: plan.ExtendedResourceClaim, pod: pods.Pod) -> claims.ResourceClaim:
    """The claim for extended resources, under a unique name."""
    if new_claim.existing is not None:
        return new_claim.claim
    name = f"{pod.metadata.name}-extended-resources"
    metadata = msgspec.structs.replace(
        new_claim.claim.metadata, name=name, namespace=pod.metadata.namespace
    )
    return msgspec.structs.replace(
        new_claim.claim,
        metadata=metadata,
        api_version=new_claim.claim.api_version or registry.CLAIM.api_version,
        kind=new_claim.claim.kind or registry.CLAIM.name,
    )
