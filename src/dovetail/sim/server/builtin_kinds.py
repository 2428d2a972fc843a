"""The table of built-in kinds of the in-memory API server: what Kubernetes 1.37 serves, plus the kinds of the registry.

One row per kind: version, kind, plural, short names, scope, categories, subresources. Kinds of the registry keep their
struct; all others are stored as plain trees. Never reads an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import resource_quotas
from dovetail.kubetypes.registry import Kind


class Scale(NamedTuple):
    """Where an object keeps what its scale subresource shows. Paths as in a CustomResourceDefinition."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ""  # a status field with the selector as text; empty: spec.selector


class Column(NamedTuple):
    """One printer column of a custom resource."""

    name: str
    type: str
    json_path: str
    priority: int = 0
    description: str = ""
    format: str = ""


class Resource(NamedTuple):
    """One kind as the server serves it."""

    kind: Kind  # in the version in which objects are stored
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    other_versions: tuple[str, ...] = ()  # further apiVersions of the same stored objects
    has_status: bool = False
    scale: Scale | None = None
    columns: tuple[Column, ...] = ()  # of a custom resource
    schemas: tuple[tuple[str, Any], ...] = ()  # of a custom resource: apiVersion, OpenAPI v3 schema
    is_custom: bool = False

    @property
    def api_versions(self) -> tuple[str, ...]:
        """All served apiVersions, the stored one first."""
        return (self.kind.api_version, *self.other_versions)


CORE_EVENTS: Final = "v1"  # the second version of events.k8s.io/v1 Event
CRD: Final = Kind(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    False,
    codec.Generic,
)
PRIORITY_CLASS: Final = Kind(
    "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False, codec.Generic
)
RESOURCE_QUOTA: Final = Kind(
    "v1",
    "ResourceQuota",
    "resourcequotas",
    True,
    resource_quotas.ResourceQuota,
    has_generation=False,
)
LIMIT_RANGE: Final = Kind(
    "v1", "LimitRange", "limitranges", True, codec.Generic, has_generation=False
)
SERVICE_ACCOUNT: Final = Kind(
    "v1", "ServiceAccount", "serviceaccounts", True, codec.Generic, has_generation=False
)

_SCALE: Final = Scale()
_ALL: Final = ("all",)
_EXTENSIONS: Final = ("api-extensions",)
_IN_REGISTRY: Final = {
    (kind.api_version.rpartition("/")[0], kind.plural): kind for kind in registry.ALL
}


def _kind(api_version: str, name: str, plural: str, *, namespaced: bool, generation: bool) -> Kind:
    known = _IN_REGISTRY.get((api_version.rpartition("/")[0], plural))
    if known is not None:
        return known
    return Kind(api_version, name, plural, namespaced, codec.Generic, has_generation=generation)


def _row(
    api_version: str,
    name: str,
    plural: str,
    *short_names: str,
    cluster: bool = False,
    generation: bool = False,
    status: bool = False,
    scale: Scale | None = None,
    categories: tuple[str, ...] = (),
    others: tuple[str, ...] = (),
    columns: tuple[Column, ...] = (),
) -> Resource:
    kind = _kind(api_version, name, plural, namespaced=not cluster, generation=generation)
    return Resource(
        kind,
        name.lower(),
        short_names,
        categories,
        other_versions=others,
        has_status=status,
        scale=scale,
        columns=columns,
    )


_AGE: Final = Column("Age", "date", ".metadata.creationTimestamp")
_READY: Final = '.status.conditions[?(@.type=="Ready")]'
# The printer columns of our own definitions in deploy/chart; a test compares the two.
_QUEUE_COLUMNS: Final = (
    Column("Parent", "string", ".spec.parent"),
    Column("Priority", "integer", ".spec.priority"),
    Column("GPUs", "string", ".status.resources.gpu.charged"),
    Column("Fair", "string", ".status.resources.gpu.fairShare"),
    Column("Pending", "integer", ".status.pending"),
    Column("Ready", "string", f"{_READY}.status"),
    Column("Reason", "string", f"{_READY}.reason", 1),
    Column("Running", "integer", ".status.running", 1),
    Column("Dominant", "string", ".status.dominantShare", 1),
    Column("Aliases", "string", ".spec.aliases", 1),
    _AGE,
)
_TOPOLOGY_COLUMNS: Final = (
    Column("Widest", "string", ".spec.levels[0].nodeLabel"),
    Column("Narrowest", "string", ".spec.levels[-1:].nodeLabel"),
    _AGE,
)
_INTENT_COLUMNS: Final = (
    Column("Gang", "string", ".spec.gang"),
    Column("Attempt", "integer", ".spec.attempt"),
    Column("Start", "string", ".spec.promise.start"),
    Column("Kept", "string", ".spec.slot.node"),
    Column("Deadline", "string", ".spec.deadline"),
    _AGE,
)
_UPGRADE_COLUMNS: Final = (
    Column("Phase", "string", ".status.phase"),
    Column("Nodes", "string", ".status.progress"),
    Column("Driver", "string", ".spec.to.driver"),
    Column("Reason", "string", ".status.reason"),
    _AGE,
)

_CORE: Final = (
    _row("v1", "ComponentStatus", "componentstatuses", "cs", cluster=True),
    _row("v1", "ConfigMap", "configmaps", "cm"),
    _row("v1", "Endpoints", "endpoints", "ep"),
    _row("events.k8s.io/v1", "Event", "events", "ev", others=(CORE_EVENTS,)),
    _row("v1", "LimitRange", "limitranges", "limits"),
    _row("v1", "Namespace", "namespaces", "ns", cluster=True, status=True),
    _row("v1", "Node", "nodes", "no", cluster=True, status=True),
    _row("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", status=True),
    _row("v1", "PersistentVolume", "persistentvolumes", "pv", cluster=True, status=True),
    _row("v1", "Pod", "pods", "po", status=True, categories=_ALL),
    _row("v1", "PodTemplate", "podtemplates", generation=True),
    _row(
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        "rc",
        generation=True,
        status=True,
        scale=_SCALE,
        categories=_ALL,
    ),
    Resource(RESOURCE_QUOTA, "resourcequota", ("quota",), has_status=True),
    _row("v1", "Secret", "secrets"),
    _row("v1", "ServiceAccount", "serviceaccounts", "sa"),
    _row("v1", "Service", "services", "svc", status=True, categories=_ALL),
)

_WORKLOADS: Final = (
    _row("apps/v1", "ControllerRevision", "controllerrevisions"),
    _row(
        "apps/v1",
        "DaemonSet",
        "daemonsets",
        "ds",
        generation=True,
        status=True,
        categories=_ALL,
    ),
    _row(
        "apps/v1",
        "Deployment",
        "deployments",
        "deploy",
        generation=True,
        status=True,
        scale=_SCALE,
        categories=_ALL,
    ),
    _row(
        "apps/v1",
        "ReplicaSet",
        "replicasets",
        "rs",
        generation=True,
        status=True,
        scale=_SCALE,
        categories=_ALL,
    ),
    _row(
        "apps/v1", "StatefulSet", "statefulsets", "sts", status=True, scale=_SCALE, categories=_ALL
    ),
    _row("batch/v1", "CronJob", "cronjobs", "cj", generation=True, status=True, categories=_ALL),
    _row("batch/v1", "Job", "jobs", status=True, categories=_ALL),
    _row(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "hpa",
        status=True,
        categories=_ALL,
    ),
    _row("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", status=True),
)

_CLUSTER: Final = (
    _row(
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        cluster=True,
        generation=True,
        categories=_EXTENSIONS,
        others=("admissionregistration.k8s.io/v1beta1",),
    ),
    _row(
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        cluster=True,
        generation=True,
        categories=_EXTENSIONS,
        others=("admissionregistration.k8s.io/v1beta1",),
    ),
    _row(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        cluster=True,
        generation=True,
        categories=_EXTENSIONS,
    ),
    _row(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        cluster=True,
        generation=True,
        status=True,
        categories=_EXTENSIONS,
    ),
    _row(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        cluster=True,
        generation=True,
        categories=_EXTENSIONS,
    ),
    _row(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        cluster=True,
        generation=True,
        categories=_EXTENSIONS,
    ),
    Resource(CRD, "customresourcedefinition", ("crd", "crds"), _EXTENSIONS, has_status=True),
    _row(
        "apiregistration.k8s.io/v1",
        "APIService",
        "apiservices",
        cluster=True,
        status=True,
        categories=_EXTENSIONS,
    ),
    _row(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "csr",
        cluster=True,
        status=True,
    ),
    _row("coordination.k8s.io/v1", "Lease", "leases"),
    _row("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", generation=True),
    _row("networking.k8s.io/v1", "IngressClass", "ingressclasses", cluster=True, generation=True),
    _row("networking.k8s.io/v1", "Ingress", "ingresses", "ing", generation=True, status=True),
    _row("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", "netpol", generation=True),
    _row("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", cluster=True),
    _row("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", cluster=True),
    _row("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", cluster=True),
    _row("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    _row("rbac.authorization.k8s.io/v1", "Role", "roles"),
    Resource(PRIORITY_CLASS, "priorityclass", ("pc",)),
    _row("scheduling.k8s.io/v1beta1", "Workload", "workloads", generation=True),
    _row("storage.k8s.io/v1", "CSIDriver", "csidrivers", cluster=True),
    _row("storage.k8s.io/v1", "CSINode", "csinodes", cluster=True),
    _row("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities"),
    _row("storage.k8s.io/v1", "StorageClass", "storageclasses", "sc", cluster=True),
    _row("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", cluster=True, status=True),
    _row(
        "storage.k8s.io/v1", "VolumeAttributesClass", "volumeattributesclasses", "vac", cluster=True
    ),
)

_SCHEDULING: Final = (
    _row("resource.k8s.io/v1", "DeviceClass", "deviceclasses", cluster=True),
    _row(
        "resource.k8s.io/v1",
        "DeviceTaintRule",
        "devicetaintrules",
        cluster=True,
        status=True,
        others=("resource.k8s.io/v1beta2",),
    ),
    _row("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", status=True),
    _row("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    _row("resource.k8s.io/v1", "ResourceSlice", "resourceslices", cluster=True),
    _row("scheduling.k8s.io/v1beta1", "PodGroup", "podgroups", status=True),
    _row("scheduling.k8s.io/v1alpha3", "CompositePodGroup", "compositepodgroups", status=True),
    _row(
        "dovetail.dev/v1alpha1",
        "Queue",
        "queues",
        cluster=True,
        status=True,
        categories=("dovetail",),
        columns=_QUEUE_COLUMNS,
    ),
    _row(
        "dovetail.dev/v1alpha1",
        "Topology",
        "topologies",
        cluster=True,
        categories=("dovetail",),
        columns=_TOPOLOGY_COLUMNS,
    ),
    _row(
        "dovetail.dev/v1alpha1",
        "Intent",
        "intents",
        categories=("dovetail",),
        columns=_INTENT_COLUMNS,
    ),
    _row(
        "dovetail.dev/v1alpha1",
        "StackUpgrade",
        "stackupgrades",
        cluster=True,
        status=True,
        categories=("dovetail",),
        columns=_UPGRADE_COLUMNS,
    ),
)


def _remaining(rows: Iterable[Resource]) -> Iterator[Resource]:
    """Rows for the kinds of the registry that have none yet: the workloads of other projects."""
    listed = {row.kind for row in rows}
    for kind in registry.ALL:
        if kind not in listed:
            yield Resource(kind, kind.name.lower(), has_status=True)


_KUBERNETES: Final = (*_CORE, *_WORKLOADS, *_CLUSTER, *_SCHEDULING)
TABLE: Final = (*_KUBERNETES, *_remaining(_KUBERNETES))
