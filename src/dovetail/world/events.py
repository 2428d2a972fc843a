"""Events of the World: an object was added, changed or deleted; and the keys under which objects are stored."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.model import gangs

Object = registry.WorldObject | gangs.Gang


class Changed(NamedTuple):
    """An object was added, or differs from before."""

    object: Object


class Deleted(NamedTuple):
    """An object was deleted."""

    object: Object


Event = Changed | Deleted
ObjectKey = tuple[str, str]  # namespace, name


def key_of(stored: Object) -> ObjectKey:
    """Namespace and name."""
    return stored.metadata.namespace, stored.metadata.name


def pod_id(pod: pods.Pod) -> str:
    """The uid; namespace and name if it has none yet."""
    return pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"
