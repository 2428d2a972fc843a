"""Volumes of core v1 and storage.k8s.io/v1, with the fields scheduling reads: what exists, what it is bound to, where.

Other fields Kubernetes knows are listed, not modelled; they stay in the document. Answers what single objects state
about themselves (which class, whether bound). Never decides whether a volume suits a pod.
"""

from typing import Final

import msgspec

from dovetail.kubetypes import meta, node_selectors
from dovetail.kubetypes.core import pods
from dovetail.quantity import quantity

STORAGE: Final = "storage"  # the one resource volumes are sized by
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"  # component-helpers storage/volume
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BETA_CLASS: Final = (
    "volume.beta.kubernetes.io/storage-class"  # core/v1: still read before the field
)
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
FILESYSTEM: Final = "Filesystem"
AVAILABLE: Final = "Available"
LOST: Final = "Lost"


class VolumeResourceRequirements(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How large a volume must and may be."""

    requests: dict[str, quantity.Quantity] = {}
    limits: dict[str, quantity.Quantity] = {}


class PersistentVolumeClaimSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a claim asks of a volume, and which one it has."""

    access_modes: tuple[str, ...] = ()
    selector: meta.LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Where a claim is in its life."""

    phase: str = ""


class PersistentVolumeClaim(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A wish for a volume, namespaced."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def storage_class(self) -> str:
        """The class asked for; empty if none is."""
        beta_class = self.metadata.annotations.get(BETA_CLASS)
        return beta_class if beta_class is not None else self.spec.storage_class_name or ""

    @property
    def is_bound(self) -> bool:
        """Whether it has its volume for good: the controller says so on both sides."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def size(self) -> quantity.Quantity | None:
        """How much it asks for."""
        return self.spec.resources.requests.get(STORAGE)


class ObjectReference(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Another object, as a volume names its claim."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class VolumeNodeAffinity(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The nodes a volume can be reached from."""

    required: node_selectors.NodeSelector | None = None


class CSIPersistentVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A volume a CSI driver serves, by the handle the driver knows it by."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a volume offers, where, and to whom it is given."""

    capacity: dict[str, quantity.Quantity] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    csi: CSIPersistentVolumeSource | None = None
    aws_elastic_block_store: pods.AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: pods.AzureDiskVolumeSource | None = None
    cinder: pods.CinderVolumeSource | None = None
    gce_persistent_disk: pods.GCEPersistentDiskVolumeSource | None = None
    portworx_volume: pods.PortworxVolumeSource | None = None


class PersistentVolumeStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Where a volume is in its life."""

    phase: str = ""


class PersistentVolume(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A piece of storage, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def storage_class(self) -> str:
        """The class it belongs to; empty if to none."""
        beta_class = self.metadata.annotations.get(BETA_CLASS)
        return beta_class if beta_class is not None else self.spec.storage_class_name


class TopologySelectorLabelRequirement(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A label of nodes and the values it may have."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Labels that must all hold. Without any it picks nothing."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Who makes volumes, when they are bound, and where they may be made. Cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How many volumes of a driver a node can have attached."""

    count: meta.Int32 | None = None


class CSINodeDriver(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A CSI driver that is installed on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The CSI drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a node can do with volumes, under the name of the node. Cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a driver asks of schedulers."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A CSI driver of the cluster, under its own name. Cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How much a driver can still provision of a class for some nodes. Namespaced, but meant for all."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    node_topology: meta.LabelSelector | None = None
    storage_class_name: str = ""
    capacity: quantity.Quantity | None = None
    maximum_volume_size: quantity.Quantity | None = None

    @property
    def largest(self) -> quantity.Quantity | None:
        """The largest volume it promises room for."""
        return self.maximum_volume_size if self.maximum_volume_size is not None else self.capacity


class VolumeAttachmentSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Who attaches what where."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A volume that is or will be attached to a node; it may outlive the pod it was for. Cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


Object = (
    PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNMODELLED: Final[
    dict[type, frozenset[str]]
] = {  # core/v1 and storage.k8s.io/v1 of Kubernetes 1.37
    PersistentVolumeClaimSpec: _names("dataSource dataSourceRef"),
    PersistentVolumeClaimStatus: _names(
        "accessModes capacity conditions allocatedResources resizeStatus allocatedResourceStatuses"
        " currentVolumeAttributesClassName modifyVolumeStatus healthStatus"
    ),
    PersistentVolumeSpec: _names(
        "hostPath glusterfs nfs rbd iscsi cephfs fc flocker flexVolume azureFile vsphereVolume quobyte"
        " photonPersistentDisk scaleIO local storageos persistentVolumeReclaimPolicy mountOptions"
    ),
    PersistentVolumeStatus: _names("message reason lastPhaseTransitionTime"),
    CSIPersistentVolumeSource: _names(
        "readOnly fsType volumeAttributes controllerPublishSecretRef nodeStageSecretRef nodePublishSecretRef"
        " controllerExpandSecretRef nodeExpandSecretRef"
    ),
    StorageClass: _names("parameters reclaimPolicy mountOptions allowVolumeExpansion"),
    CSINode: _names("status"),
    CSINodeDriver: _names("nodeID topologyKeys"),
    CSIDriverSpec: _names(
        "attachRequired podInfoOnMount volumeLifecycleModes fsGroupPolicy tokenRequests requiresRepublish seLinuxMount"
        " nodeAllocatableUpdatePeriodSeconds serviceAccountTokenInSecrets"
    ),
    VolumeAttachmentSource: _names("inlineVolumeSpec"),
    VolumeAttachment: _names("status"),
}
