"""Decides for which user a claim is reserved when a pod uses it: the pod, or the PodGroup that lists the same claim.

A PodGroup may list claims (gate DRAWorkloadResourceClaims, alpha in 1.36, beta and off in 1.37). An entry of a pod that
equals one of them in name, claim and template means the group's claim: one for all its pods, reserved for the group.
Given pods, claims and the gang of the group. Never allocates, never counts the remaining users.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import gangs

GROUP_API: Final = "scheduling.k8s.io"
GROUPS: Final = "podgroups"
GROUP_KIND: Final = "PodGroup"


ClaimKey = tuple[str, str]  # namespace, name


def claim_name(pod: pods.Pod, entry: pods.PodResourceClaim) -> str | None:
    """The claim behind an entry of the pod's resourceClaims; None if it needs none, or has none yet."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    return None


def named_claims(pod: pods.Pod) -> tuple[ClaimKey, ...]:
    """The claims the pod's spec refers to that exist by name, each once.

    Leaves out the claim the scheduler creates for extended resources; `used_claims` has that one, too.
    """
    entries = pod.spec.resource_claims
    if not entries:
        return ()
    namespace = pod.metadata.namespace
    if len(entries) == 1:  # nearly every pod
        name = claim_name(pod, entries[0])
        return ((namespace, name),) if name else ()
    names = dict.fromkeys(claim_name(pod, entry) for entry in entries)
    return tuple((namespace, name) for name in names if name)


def used_claims(pod: pods.Pod) -> tuple[ClaimKey, ...]:
    """Every claim that holds devices for the pod: the named ones, then the one for its extended resources."""
    keys = named_claims(pod)
    extended = pod.status.extended_resource_claim_status
    if extended is None or not extended.resource_claim_name:
        return keys
    key = (pod.metadata.namespace, extended.resource_claim_name)
    return keys if key in keys else (*keys, key)


def user_of(
    pod: pods.Pod, claim: str, group: gangs.Gang | None = None
) -> claims.ResourceClaimConsumerReference:
    """The user to reserve a claim of this name for; `group` is the gang of the pod's PodGroup, where it is known."""
    if group is None or not any(entry in group.claims for entry in _entries(pod, claim)):
        return claims.ResourceClaimConsumerReference(
            resource="pods", name=pod.metadata.name, uid=pod.metadata.uid
        )
    native = pod.spec.scheduling_group
    name = native.pod_group_name if native is not None else None
    return claims.ResourceClaimConsumerReference(
        api_group=GROUP_API, resource=GROUPS, name=name or "", uid=group.uid
    )


def is_group(user: claims.ResourceClaimConsumerReference) -> bool:
    """Whether a user of a claim is a PodGroup."""
    return user.resource == GROUPS and user.api_group == GROUP_API


def group_key(user: claims.ResourceClaimConsumerReference, namespace: str) -> gangs.GangKey:
    """The key of a PodGroup's gang."""
    return namespace, f"{gangs.POD_GROUP}/{user.name}"


def is_for(user: claims.ResourceClaimConsumerReference, pod: pods.Pod) -> bool:
    """Whether the user of a claim is the pod or its PodGroup. A pod holds only the name of its group, not the uid."""
    if user.uid == pod.metadata.uid:
        return True
    native = pod.spec.scheduling_group
    if native is None or not user.name:
        return False
    return is_group(user) and user.name == native.pod_group_name


def reserves(claim: claims.ResourceClaim, pod: pods.Pod) -> bool:
    """Whether a claim is reserved for the pod, or for its PodGroup."""
    return any(is_for(user, pod) for user in claim.status.reserved_for)


def is_made_for(claim: claims.ResourceClaim, pod: pods.Pod) -> bool:
    """Whether a claim was created from a template for the pod, or for its PodGroup."""
    native = pod.spec.scheduling_group
    controllers = [owner for owner in claim.metadata.owner_references if owner.controller]
    for owner in controllers:
        if owner.uid == pod.metadata.uid:
            return True
        is_native = owner.kind == GROUP_KIND and owner.api_version.startswith(f"{GROUP_API}/")
        if is_native and native is not None and owner.name == native.pod_group_name:
            return True
    return False


def _entries(pod: pods.Pod, claim: str) -> list[pods.PodResourceClaim]:
    """The entries of a pod that stand for the claim."""
    return [entry for entry in pod.spec.resource_claims if claim_name(pod, entry) == claim]
