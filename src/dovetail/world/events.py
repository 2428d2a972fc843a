"""What changes the World: an object came or changed, or it went. Objects are frozen structs of model/."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.model import claims, classes, nodes, pods, slices, taintrules

Object = (
    nodes.Node
    | pods.Pod
    | slices.ResourceSlice
    | claims.ResourceClaim
    | claims.ResourceClaimTemplate
    | classes.DeviceClass
    | taintrules.DeviceTaintRule
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
