"""The registry of kinds: every kind of object the scheduler, its simulators and its snapshots handle, one record each.

A record gives the API version, kind, plural and scope, the struct that decodes the object, the role the kind plays for
the scheduler, and how a redacted snapshot treats its names. Tables elsewhere (what the codec decodes, what the informer
watches, what the simulated API server serves, what a snapshot holds) are derived from these records. Never reads an
object.
"""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple

from dovetail.kubetypes.core import api_events, disruption_budgets, leases, namespaces, nodes, pods
from dovetail.kubetypes.custom import intents, queues, stack_upgrades, topologies
from dovetail.kubetypes.resource import claims, device_classes, slices, taint_rules
from dovetail.kubetypes.storage import volumes
from dovetail.kubetypes.workloads import owners

CORE_V1: Final = "v1"
RESOURCE_V1: Final = "resource.k8s.io/v1"
RESOURCE_V1BETA2: Final = "resource.k8s.io/v1beta2"
STORAGE_V1: Final = "storage.k8s.io/v1"
DOVETAIL_V1ALPHA1: Final = "dovetail.dev/v1alpha1"


class Role(enum.Enum):
    """What the scheduler uses the objects of a kind for."""

    WATCHED = "part of the World; every cluster serves it"
    INSTALLED = "part of the World; served where our resource definitions are installed"
    OWNER = "owns pods; gangs are derived from it"
    PARENT = "creates owners; its annotations apply to the owners it creates"
    RECORD = "written by the scheduler for itself or for people"
    ON_DEMAND = "listed when a decision needs it"


_WORLD_ROLES: Final = frozenset({Role.WATCHED, Role.INSTALLED})


class Kind(NamedTuple):
    """One kind of object."""

    api_version: str
    name: str
    plural: str
    is_namespaced: bool
    struct: type[Any]
    role: Role = Role.ON_DEMAND
    has_generation: bool = True  # whether the API server counts changes of the spec
    redacted_as: str = ""  # the word that replaces names in a redacted snapshot; empty keeps them
    older_versions: tuple[str, ...] = ()  # served instead in older clusters, best first
    shares_name: bool = False  # a kind of another group, earlier in the table, has the same name

    @property
    def group(self) -> str:
        """The API group; empty for core kinds."""
        return self.api_version.rpartition("/")[0]

    @property
    def unique_name(self) -> str:
        """The name that no other kind of the table has: with the group, as kubectl writes it, where names collide."""
        if not self.shares_name:
            return self.name
        group = self.api_version.rpartition("/")[0]
        return f"{self.name}.{group}"

    @property
    def is_core(self) -> bool:
        """Whether it is served under /api instead of /apis."""
        return "/" not in self.api_version

    @property
    def is_in_world(self) -> bool:
        """Whether the World is made of its objects, so that the codec decodes and snapshots hold them."""
        return self.role in _WORLD_ROLES


NAMESPACE: Final = Kind(
    CORE_V1,
    "Namespace",
    "namespaces",
    False,
    namespaces.Namespace,
    Role.WATCHED,
    has_generation=False,
    redacted_as="namespace",
)
NODE: Final = Kind(
    CORE_V1,
    "Node",
    "nodes",
    False,
    nodes.Node,
    Role.WATCHED,
    has_generation=False,
    redacted_as="node",
)
SLICE: Final = Kind(
    RESOURCE_V1,
    "ResourceSlice",
    "resourceslices",
    False,
    slices.ResourceSlice,
    Role.WATCHED,
    redacted_as="slice",
)
DEVICE_CLASS: Final = Kind(
    RESOURCE_V1,
    "DeviceClass",
    "deviceclasses",
    False,
    device_classes.DeviceClass,
    Role.WATCHED,
)
TAINT_RULE: Final = Kind(
    RESOURCE_V1,
    "DeviceTaintRule",
    "devicetaintrules",
    False,
    taint_rules.DeviceTaintRule,
    Role.WATCHED,
    redacted_as="rule",
    older_versions=(RESOURCE_V1BETA2,),
)
CSI_DRIVER: Final = Kind(
    STORAGE_V1,
    "CSIDriver",
    "csidrivers",
    False,
    volumes.CSIDriver,
    Role.WATCHED,
    has_generation=False,
)
CSI_NODE: Final = Kind(
    STORAGE_V1,
    "CSINode",
    "csinodes",
    False,
    volumes.CSINode,
    Role.WATCHED,
    has_generation=False,
    redacted_as="node",
)
STORAGE_CLASS: Final = Kind(
    STORAGE_V1,
    "StorageClass",
    "storageclasses",
    False,
    volumes.StorageClass,
    Role.WATCHED,
    has_generation=False,
    redacted_as="storage-class",
)
STORAGE_CAPACITY: Final = Kind(
    STORAGE_V1,
    "CSIStorageCapacity",
    "csistoragecapacities",
    True,
    volumes.CSIStorageCapacity,
    Role.WATCHED,
    has_generation=False,
    redacted_as="capacity",
)
VOLUME: Final = Kind(
    CORE_V1,
    "PersistentVolume",
    "persistentvolumes",
    False,
    volumes.PersistentVolume,
    Role.WATCHED,
    has_generation=False,
    redacted_as="persistent-volume",
)
VOLUME_CLAIM: Final = Kind(
    CORE_V1,
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    True,
    volumes.PersistentVolumeClaim,
    Role.WATCHED,
    has_generation=False,
    redacted_as="volume-claim",
)
ATTACHMENT: Final = Kind(
    STORAGE_V1,
    "VolumeAttachment",
    "volumeattachments",
    False,
    volumes.VolumeAttachment,
    Role.WATCHED,
    has_generation=False,
    redacted_as="attachment",
)
CLAIM: Final = Kind(
    RESOURCE_V1,
    "ResourceClaim",
    "resourceclaims",
    True,
    claims.ResourceClaim,
    Role.WATCHED,
    has_generation=False,
    redacted_as="claim",
)
TEMPLATE: Final = Kind(
    RESOURCE_V1,
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    True,
    claims.ResourceClaimTemplate,
    Role.WATCHED,
    has_generation=False,
    redacted_as="template",
)
POD: Final = Kind(CORE_V1, "Pod", "pods", True, pods.Pod, Role.WATCHED, redacted_as="pod")

# Labels of any scheduler name queues, so queues and topologies are renamed as label values are.
QUEUE: Final = Kind(
    DOVETAIL_V1ALPHA1,
    "Queue",
    "queues",
    False,
    queues.Queue,
    Role.INSTALLED,
    redacted_as="value",
)
TOPOLOGY: Final = Kind(
    DOVETAIL_V1ALPHA1,
    "Topology",
    "topologies",
    False,
    topologies.Topology,
    Role.INSTALLED,
    redacted_as="value",
)

EVENT: Final = Kind(
    "events.k8s.io/v1",
    "Event",
    "events",
    True,
    api_events.Event,
    Role.RECORD,
    has_generation=False,
    redacted_as="event",
)
LEASE: Final = Kind(
    "coordination.k8s.io/v1",
    "Lease",
    "leases",
    True,
    leases.Lease,
    Role.RECORD,
    has_generation=False,
)
INTENT: Final = Kind(  # a new leader reads them once
    DOVETAIL_V1ALPHA1,
    "Intent",
    "intents",
    True,
    intents.Intent,
    Role.RECORD,
    redacted_as="intent",
)
STACK_UPGRADE: Final = Kind(  # of the lifecycle process
    DOVETAIL_V1ALPHA1,
    "StackUpgrade",
    "stackupgrades",
    False,
    stack_upgrades.StackUpgrade,
    Role.ON_DEMAND,
    redacted_as="value",
)
BUDGET: Final = Kind(  # read before pods are evicted
    "policy/v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    True,
    disruption_budgets.PodDisruptionBudget,
    Role.ON_DEMAND,
    redacted_as="budget",
)

JOB: Final = Kind("batch/v1", "Job", "jobs", True, owners.Job, Role.OWNER, redacted_as="owner")
STATEFUL_SET: Final = Kind(
    "apps/v1",
    "StatefulSet",
    "statefulsets",
    True,
    owners.StatefulSet,
    Role.OWNER,
    redacted_as="owner",
)
JOB_SET: Final = Kind(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    "jobsets",
    True,
    owners.JobSet,
    Role.OWNER,
    redacted_as="owner",
)
LEADER_WORKER_SET: Final = Kind(
    "leaderworkerset.x-k8s.io/v1",
    "LeaderWorkerSet",
    "leaderworkersets",
    True,
    owners.LeaderWorkerSet,
    Role.OWNER,
    redacted_as="owner",
)
# The training kinds of kubeflow.org differ only in the names of their roles.
TRAINING: Final = tuple(
    Kind(
        "kubeflow.org/v1",
        name,
        f"{name.lower()}s",
        True,
        owners.TrainingJob,
        Role.OWNER,
        redacted_as="owner",
    )
    for name in ("PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "PaddleJob")
)
MPI_JOB: Final = Kind(
    "kubeflow.org/v2beta1",
    "MPIJob",
    "mpijobs",
    True,
    owners.TrainingJob,
    Role.OWNER,
    redacted_as="owner",
    older_versions=("kubeflow.org/v1",),
)
RAY_CLUSTER: Final = Kind(
    "ray.io/v1",
    "RayCluster",
    "rayclusters",
    True,
    owners.RayCluster,
    Role.OWNER,
    redacted_as="owner",
)
POD_GROUP: Final = Kind(
    "scheduling.k8s.io/v1beta1",
    "PodGroup",
    "podgroups",
    True,
    owners.PodGroup,
    Role.OWNER,
    redacted_as="group",
    older_versions=("scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1alpha2"),
)
COMPOSITE: Final = Kind(
    "scheduling.k8s.io/v1alpha3",
    "CompositePodGroup",
    "compositepodgroups",
    True,
    owners.CompositePodGroup,
    Role.OWNER,
    redacted_as="group",
)
KAI_POD_GROUP: Final = Kind(
    "scheduling.run.ai/v2alpha2",
    "PodGroup",
    "podgroups",
    True,
    owners.KaiPodGroup,
    Role.OWNER,
    redacted_as="group",
    shares_name=True,
)
TRAIN_JOB: Final = Kind(
    "trainer.kubeflow.org/v1alpha1",
    "TrainJob",
    "trainjobs",
    True,
    owners.Parent,
    Role.PARENT,
    redacted_as="owner",
)
RAY_JOB: Final = Kind(
    "ray.io/v1", "RayJob", "rayjobs", True, owners.Parent, Role.PARENT, redacted_as="owner"
)
RAY_SERVICE: Final = Kind(
    "ray.io/v1", "RayService", "rayservices", True, owners.Parent, Role.PARENT, redacted_as="owner"
)

# The table. Within a role the order is the order of reading: what others refer to comes first.
ALL: Final = (
    NAMESPACE,
    NODE,
    SLICE,
    DEVICE_CLASS,
    TAINT_RULE,
    CSI_DRIVER,
    CSI_NODE,
    STORAGE_CLASS,
    STORAGE_CAPACITY,
    VOLUME,
    VOLUME_CLAIM,
    ATTACHMENT,
    CLAIM,
    TEMPLATE,
    POD,
    QUEUE,
    TOPOLOGY,
    LEASE,
    EVENT,
    INTENT,
    STACK_UPGRADE,
    BUDGET,
    JOB,
    STATEFUL_SET,
    JOB_SET,
    LEADER_WORKER_SET,
    *TRAINING,
    MPI_JOB,
    RAY_CLUSTER,
    POD_GROUP,
    COMPOSITE,
    KAI_POD_GROUP,
    TRAIN_JOB,
    RAY_JOB,
    RAY_SERVICE,
)
STORAGE: Final = (
    CSI_DRIVER,
    CSI_NODE,
    STORAGE_CLASS,
    STORAGE_CAPACITY,
    VOLUME,
    VOLUME_CLAIM,
    ATTACHMENT,
)


def _in_role(role: Role) -> tuple[Kind, ...]:
    return tuple(kind for kind in ALL if kind.role is role)


WATCHED: Final = _in_role(Role.WATCHED)
OURS: Final = _in_role(Role.INSTALLED)
RECORDS: Final = _in_role(Role.RECORD)
OWNERS: Final = _in_role(Role.OWNER)
PARENTS: Final = _in_role(Role.PARENT)
WORLD: Final = tuple(kind for kind in ALL if kind.is_in_world)
OLDER: Final = {kind: kind.older_versions for kind in ALL if kind.older_versions}

# The structs of WORLD as a type; a test compares the two.
WorldObject = (
    namespaces.Namespace
    | nodes.Node
    | slices.ResourceSlice
    | device_classes.DeviceClass
    | taint_rules.DeviceTaintRule
    | volumes.Object
    | claims.ResourceClaim
    | claims.ResourceClaimTemplate
    | pods.Pod
    | queues.Queue
    | topologies.Topology
)
