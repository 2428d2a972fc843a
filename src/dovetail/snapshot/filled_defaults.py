"""What an API server and a kubelet would have filled in, for objects that were written by hand.

Given an object of a dump as it was decoded; returns the object, changed only where something was missing: allocation
mode and count of claims, operators of tolerations, the name label of namespaces, what a node can allocate, the phase of
pods, the mark of volume claims that are bound. Priorities need other objects and are set by the reader of the dump.
Never removes, never overrides.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dovetail.admission import admit
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import namespaces, nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.kubetypes.storage import volumes

NAME_LABEL: Final = "kubernetes.io/metadata.name"  # core/v1 LabelMetadataName
PENDING: Final = "Pending"
BOUND: Final = "Bound"

_READ_WITH_DEFAULTS: Final = (claims.ResourceClaim, claims.ResourceClaimTemplate)


def filled(stored: codec.Stored) -> codec.Stored:
    """The object with the defaults of its kind."""
    struct: Any = stored.struct
    complete = _complete(struct)
    return stored if complete == struct else codec.replace(stored, complete)


def _complete(struct: Any) -> Any:
    if isinstance(struct, _READ_WITH_DEFAULTS):
        return admit.as_read(struct, "")  # neither kind records when a default was set
    if isinstance(struct, pods.Pod) and not struct.status.phase:
        status = msgspec.structs.replace(struct.status, phase=PENDING)
        return msgspec.structs.replace(struct, status=status)
    if isinstance(struct, namespaces.Namespace):
        return _labelled(struct)
    if isinstance(struct, nodes.Node) and not struct.status.allocatable:
        whole = msgspec.structs.replace(struct.status, allocatable=struct.status.capacity)
        return msgspec.structs.replace(struct, status=whole)
    if isinstance(struct, volumes.PersistentVolumeClaim) and struct.status.phase == BOUND:
        return _marked(struct)
    return struct


def _labelled(namespace: namespaces.Namespace) -> namespaces.Namespace:
    """The namespace with its name as a label, which API servers set whatever a writer sends."""
    metadata = namespace.metadata
    labels = metadata.labels | {NAME_LABEL: metadata.name}
    return msgspec.structs.replace(
        namespace, metadata=msgspec.structs.replace(metadata, labels=labels)
    )


def _marked(claim: volumes.PersistentVolumeClaim) -> volumes.PersistentVolumeClaim:
    """A bound claim with the annotation that its controller sets, and without which it counts as unbound."""
    metadata = claim.metadata
    annotations = {volumes.BIND_COMPLETED: "yes"} | metadata.annotations
    return msgspec.structs.replace(
        claim, metadata=msgspec.structs.replace(metadata, annotations=annotations)
    )
