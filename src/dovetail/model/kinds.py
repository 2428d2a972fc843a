"""The kinds of objects an API server is asked for: group and version, plural, scope, and the struct that reads them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dovetail.model import claims, classes, eventing, leases, nodes, objects, pods, slices, taintrules


class Kind(NamedTuple):
    """One kind of object."""

    api_version: str
    name: str
    plural: str
    is_namespaced: bool
    struct: type[Any]

    @property
    def is_core(self) -> bool:
        """Whether it is served under /api instead of /apis."""
        return "/" not in self.api_version


POD: Final = Kind("v1", "Pod", "pods", True, pods.Pod)
NODE: Final = Kind("v1", "Node", "nodes", False, nodes.Node)
EVENT: Final = Kind("events.k8s.io/v1", "Event", "events", True, eventing.Event)
NAMESPACE: Final = Kind("v1", "Namespace", "namespaces", False, objects.Generic)
CLAIM: Final = Kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", True, claims.ResourceClaim)
TEMPLATE: Final = Kind(
    "resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", True, claims.ResourceClaimTemplate
)
SLICE: Final = Kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices", False, slices.ResourceSlice)
DEVICE_CLASS: Final = Kind("resource.k8s.io/v1", "DeviceClass", "deviceclasses", False, classes.DeviceClass)
TAINT_RULE: Final = Kind("resource.k8s.io/v1", "DeviceTaintRule", "devicetaintrules", False, taintrules.DeviceTaintRule)
LEASE: Final = Kind("coordination.k8s.io/v1", "Lease", "leases", True, leases.Lease)

WATCHED: Final = (NODE, SLICE, DEVICE_CLASS, TAINT_RULE, CLAIM, POD)  # what the World is made of, in reading order
