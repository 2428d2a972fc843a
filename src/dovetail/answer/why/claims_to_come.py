"""The claims that controllers still have to make from templates, as if they were made.

Given a replica. A pod without them cannot be tried at all, which says nothing about why it would not start then. Yields
edits of the replica; never decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.answer.replica.replica import Edit, Replica
from dovetail.kubetypes import codec, meta, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model.reasons import ReasonCode
from dovetail.schedule.node import preconditions
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims
from dovetail.world.world import World

POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"  # on claims made from a template


def is_awaited(world: World, pod: pods.Pod) -> bool:
    """Whether all that a pod waits for are claims from templates that exist."""
    needs = preconditions.needs(pod, ClaimLookup(world))
    if isinstance(needs, PodClaims):
        return False
    codes = {reason.code for reason in needs}
    return codes == {ReasonCode.CLAIM_NOT_MADE} and all(
        (pod.metadata.namespace, entry.resource_claim_template_name) in world.templates
        for entry in _unmade(pod)
    )


def edits(replica: Replica) -> Iterator[Edit]:
    """Every pending pod with the claims that its templates lead to, and these claims."""
    for pod in replica.world.pending():
        if is_awaited(replica.world, pod):
            yield from _edits(replica, pod)


def _edits(replica: Replica, pod: pods.Pod) -> Iterator[Edit]:
    namespace, statuses = pod.metadata.namespace, list(pod.status.resource_claim_statuses)
    for entry in _unmade(pod):
        template = replica.world.templates[namespace, entry.resource_claim_template_name or ""]
        name = f"{pod.metadata.name}-{entry.name}"
        stored = codec.store(_claim(pod, entry, template, name))
        yield Edit(object_set.key_of(stored.struct), stored)
        statuses.append(pods.PodResourceClaimStatus(name=entry.name, resource_claim_name=name))
    key = object_set.Key(registry.POD.unique_name, namespace, pod.metadata.name)
    before = replica.get(key)
    assert before is not None
    status = msgspec.structs.replace(pod.status, resource_claim_statuses=tuple(statuses))
    yield Edit(key, codec.replace(before, msgspec.structs.replace(pod, status=status)))


def _claim(
    pod: pods.Pod,
    entry: pods.PodResourceClaim,
    template: claims.ResourceClaimTemplate,
    name: str,
) -> claims.ResourceClaim:
    owner = meta.OwnerReference(
        api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
    )
    metadata = meta.ObjectMeta(
        name=name,
        namespace=pod.metadata.namespace,
        uid=f"{pod.metadata.uid}/{entry.name}",
        annotations={POD_CLAIM: entry.name},
        owner_references=(owner,),
    )
    return claims.ResourceClaim(
        api_version=registry.RESOURCE_V1,
        kind="ResourceClaim",
        metadata=metadata,
        spec=template.spec.spec,
    )


def _unmade(pod: pods.Pod) -> list[pods.PodResourceClaim]:
    made = {status.name for status in pod.status.resource_claim_statuses}
    return [
        entry
        for entry in pod.spec.resource_claims
        if entry.resource_claim_name is None and entry.name not in made
    ]
