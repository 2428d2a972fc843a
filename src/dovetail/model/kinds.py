"""The kinds of objects an API server is asked for: group and version, plural, scope, and the struct that reads them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dovetail.model import (
    budgets,
    claims,
    classes,
    eventing,
    gangs,
    intents,
    leases,
    namespaces,
    nodes,
    pods,
    queues,
    slices,
    taintrules,
    topologies,
    volumes,
)
from dovetail.model.workloads import owners


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

QUEUE: Final = Kind("dovetail.dev/v1alpha1", "Queue", "queues", False, queues.Queue)
TOPOLOGY: Final = Kind("dovetail.dev/v1alpha1", "Topology", "topologies", False, topologies.Topology)

BUDGET: Final = Kind(  # read when pods have to yield
    "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", True, budgets.PodDisruptionBudget
)
INTENT: Final = Kind("dovetail.dev/v1alpha1", "Intent", "intents", True, intents.Intent)  # read once by a new leader

# What the World is made of, in reading order.
WATCHED: Final = (NAMESPACE, NODE, SLICE, DEVICE_CLASS, TAINT_RULE, *STORAGE, CLAIM, POD)
# Kinds of our own that the World is made of too, where they are installed.
OURS: Final = (QUEUE, TOPOLOGY)

# Objects that own pods: gangs are read off those that are served. Kinds of kubeflow.org differ in their roles only.
JOB: Final = Kind("batch/v1", "Job", "jobs", True, owners.Job)
STATEFUL_SET: Final = Kind("apps/v1", "StatefulSet", "statefulsets", True, owners.StatefulSet)
JOB_SET: Final = Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", True, owners.JobSet)
LEADER_WORKER_SET: Final = Kind(
    "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", True, owners.LeaderWorkerSet
)
TRAINING: Final = tuple(
    Kind("kubeflow.org/v1", name, f"{name.lower()}s", True, owners.TrainingJob)
    for name in ("PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "PaddleJob")
)
MPI_JOB: Final = Kind("kubeflow.org/v2beta1", "MPIJob", "mpijobs", True, owners.TrainingJob)
RAY_CLUSTER: Final = Kind("ray.io/v1", "RayCluster", "rayclusters", True, owners.RayCluster)
POD_GROUP: Final = Kind("scheduling.k8s.io/v1beta1", "PodGroup", "podgroups", True, owners.PodGroup)
COMPOSITE: Final = Kind(
    "scheduling.k8s.io/v1alpha3", "CompositePodGroup", "compositepodgroups", True, owners.CompositePodGroup
)
OWNERS: Final = (JOB, STATEFUL_SET, JOB_SET, LEADER_WORKER_SET, *TRAINING, MPI_JOB, RAY_CLUSTER, POD_GROUP, COMPOSITE)
# What makes such owners: what is asked of it is asked of them.
PARENTS: Final = (
    Kind("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs", True, owners.Parent),
    Kind("ray.io/v1", "RayJob", "rayjobs", True, owners.Parent),
    Kind("ray.io/v1", "RayService", "rayservices", True, owners.Parent),
)
OLDER: Final = {  # versions under which a kind is served where its own is not, best first
    MPI_JOB: ("kubeflow.org/v1",),
    POD_GROUP: ("scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1alpha2"),
}
# Not served by anybody: made of owners, and a part of the World like all others.
GANG: Final = Kind("", "Gang", "gangs", True, gangs.Gang)
