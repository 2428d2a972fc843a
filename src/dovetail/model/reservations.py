"""Decides for whom a claim is reserved when a pod uses it: for the pod, or for the PodGroup that names the same claim.

A PodGroup may list claims (gate DRAWorkloadResourceClaims, alpha in 1.36, beta and off in 1.37). An entry of a pod that
equals one of them in name, claim and template means the group's claim: one for all its pods, reserved for the group.
Given pods, claims and what is known about the group. Never allocates, never counts who is left.
"""

from __future__ import annotations

from typing import Final

from dovetail.model import claims, gangs, pods

GROUP_API: Final = "scheduling.k8s.io"
GROUPS: Final = "podgroups"
GROUP_KIND: Final = "PodGroup"


def user_of(pod: pods.Pod, claim: str, group: gangs.Gang | None = None) -> claims.ResourceClaimConsumerReference:
    """Whom to reserve a claim of this name for; `group` is what is known about the pod's PodGroup."""
    if group is not None and group.claims and any(one in group.claims for one in _entries(pod, claim)):
        name = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else None
        return claims.ResourceClaimConsumerReference(
            api_group=GROUP_API, resource=GROUPS, name=name or "", uid=group.uid
        )
    return claims.ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def is_group(user: claims.ResourceClaimConsumerReference) -> bool:
    """Whether a user of a claim is a PodGroup."""
    return user.resource == GROUPS and user.api_group == GROUP_API


def group_key(user: claims.ResourceClaimConsumerReference, namespace: str) -> gangs.GangKey:
    """The gang a PodGroup is known as."""
    return namespace, f"{gangs.POD_GROUP}/{user.name}"


def is_for(user: claims.ResourceClaimConsumerReference, pod: pods.Pod) -> bool:
    """Whether the user of a claim is the pod or its PodGroup. A pod knows no more of its group than the name."""
    native = pod.spec.scheduling_group
    if user.uid == pod.metadata.uid:
        return True
    return native is not None and bool(user.name) and is_group(user) and user.name == native.pod_group_name


def reserves(claim: claims.ResourceClaim, pod: pods.Pod) -> bool:
    """Whether a claim is reserved for the pod, or for its PodGroup."""
    return any(is_for(user, pod) for user in claim.status.reserved_for)


def is_made_for(claim: claims.ResourceClaim, pod: pods.Pod) -> bool:
    """Whether a claim was made from a template for the pod, or for its PodGroup."""
    native = pod.spec.scheduling_group
    for owner in claim.metadata.owner_references:
        if not owner.controller:
            continue
        if owner.uid == pod.metadata.uid:
            return True
        is_native = owner.kind == GROUP_KIND and owner.api_version.startswith(f"{GROUP_API}/")
        if is_native and native is not None and owner.name == native.pod_group_name:
            return True
    return False


def _entries(pod: pods.Pod, claim: str) -> list[pods.PodResourceClaim]:
    """The entries of a pod behind which a claim is."""
    made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    return [one for one in pod.spec.resource_claims if (one.resource_claim_name or made.get(one.name)) == claim]
