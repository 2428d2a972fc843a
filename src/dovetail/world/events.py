"""What changes the World: an object came or changed, or it went. Objects are frozen structs of model/."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.model import (
    claims,
    classes,
    gangs,
    namespaces,
    nodes,
    pods,
    queues,
    slices,
    taintrules,
    topologies,
    volumes,
)

Object = (
    nodes.Node
    | pods.Pod
    | slices.ResourceSlice
    | claims.ResourceClaim
    | claims.ResourceClaimTemplate
    | classes.DeviceClass
    | taintrules.DeviceTaintRule
    | namespaces.Namespace
    | queues.Queue
    | topologies.Topology
    | gangs.Gang
    | volumes.Object
)


class Changed(NamedTuple):
    """An object is there, new or different from before."""

    object: Object


class Deleted(NamedTuple):
    """An object is gone."""

    object: Object


Event = Changed | Deleted
ObjectKey = tuple[str, str]  # namespace, name


def key_of(found: Object) -> ObjectKey:
    """Namespace and name."""
    return found.metadata.namespace, found.metadata.name


def pod_id(pod: pods.Pod) -> str:
    """The uid, or the name where there is none yet."""
    return pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"


def claims_of(pod: pods.Pod) -> tuple[ObjectKey, ...]:
    """The claims a pod uses, as far as they have names."""
    entries = pod.spec.resource_claims
    if not entries:
        return ()
    if len(entries) == 1:
        name = claim_name(pod, entries[0])
        return ((pod.metadata.namespace, name),) if name else ()
    names = (claim_name(pod, entry) for entry in pod.spec.resource_claims)
    return tuple((pod.metadata.namespace, name) for name in dict.fromkeys(names) if name)


def claim_name(pod: pods.Pod, entry: pods.PodResourceClaim) -> str | None:
    """The claim behind an entry of the pod's resourceClaims; None if there is none, or not yet."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    return next((s.resource_claim_name for s in pod.status.resource_claim_statuses if s.name == entry.name), None)
