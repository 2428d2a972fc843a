"""The kinds of objects an API server is asked for: group and version, plural, scope, and the struct that reads them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dovetail.model import claims, classes, eventing, leases, namespaces, nodes, pods, slices, taintrules, volumes


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
NAMESPACE: Final = Kind("v1", "Namespace", "namespaces", False, namespaces.Namespace)
CLAIM: Final = Kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", True, claims.ResourceClaim)
TEMPLATE: Final = Kind(
    "resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", True, claims.ResourceClaimTemplate
)
SLICE: Final = Kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices", False, slices.ResourceSlice)
DEVICE_CLASS: Final = Kind("resource.k8s.io/v1", "DeviceClass", "deviceclasses", False, classes.DeviceClass)
TAINT_RULE: Final = Kind("resource.k8s.io/v1", "DeviceTaintRule", "devicetaintrules", False, taintrules.DeviceTaintRule)
LEASE: Final = Kind("coordination.k8s.io/v1", "Lease", "leases", True, leases.Lease)

VOLUME: Final = Kind("v1", "PersistentVolume", "persistentvolumes", False, volumes.PersistentVolume)
VOLUME_CLAIM: Final = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, volumes.PersistentVolumeClaim)
STORAGE_CLASS: Final = Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", False, volumes.StorageClass)
CSI_NODE: Final = Kind("storage.k8s.io/v1", "CSINode", "csinodes", False, volumes.CSINode)
CSI_DRIVER: Final = Kind("storage.k8s.io/v1", "CSIDriver", "csidrivers", False, volumes.CSIDriver)
STORAGE_CAPACITY: Final = Kind(
    "storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities", True, volumes.CSIStorageCapacity
)
ATTACHMENT: Final = Kind("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", False, volumes.VolumeAttachment)
STORAGE: Final = (CSI_DRIVER, CSI_NODE, STORAGE_CLASS, STORAGE_CAPACITY, VOLUME, VOLUME_CLAIM, ATTACHMENT)

# What the World is made of, in reading order.
WATCHED: Final = (NAMESPACE, NODE, SLICE, DEVICE_CLASS, TAINT_RULE, *STORAGE, CLAIM, POD)
