"""Pod of core v1, with the fields scheduling reads: resources, claims, placement, ports, volumes, priority.

Other fields Kubernetes knows are listed, not modelled; they stay in the document.
Never adds up resources, never fills in defaults.
"""

from typing import Final

import msgspec

from dovetail.kubetypes import meta, node_selectors
from dovetail.quantity import quantity as quantities

TERMINAL_PHASES: Final = ("Succeeded", "Failed")  # core/v1: a pod in one of these never runs again


class ContainerClaim(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A claim of the pod that a container uses, whole or one request of it."""

    name: str = ""
    request: str = ""


class ResourceRequirements(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a container or pod needs and may use."""

    requests: dict[str, quantities.Quantity] = {}
    limits: dict[str, quantities.Quantity] = {}
    claims: tuple[ContainerClaim, ...] = ()


class ContainerPort(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A port a container listens on; with a host port it occupies that port of the node."""

    name: str = ""
    container_port: meta.Int32 = 0
    host_port: meta.Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class ContainerRestartRule(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What is restarted when a container ends."""

    action: str = ""


class VolumeMount(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A volume as a container sees it."""

    name: str = ""
    bind_mount_options: tuple[str, ...] = ()


class EnvVar(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A variable that the pod sets for a container. A value from another object is not modelled."""

    name: str = ""
    value: str = ""


class Container(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A container of a pod. An init container with restartPolicy Always is a sidecar."""

    name: str = ""
    image: str = ""
    env: tuple[EnvVar, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()


class PreferredSchedulingTerm(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Nodes the pod would rather have."""

    weight: meta.Int32 = 0
    preference: node_selectors.NodeSelectorTerm = node_selectors.NodeSelectorTerm()


class NodeAffinity(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Nodes the pod must have and would rather have."""

    required_during_scheduling_ignored_during_execution: node_selectors.NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Other pods, by label and namespace, and the topology that counts as together."""

    label_selector: meta.LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: meta.LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A pod affinity term the pod would rather see met."""

    weight: meta.Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Pods to be near to, or in an anti-affinity to be away from."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Every attraction and repulsion of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Node taints a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: meta.Int64 | None = None


class TopologySpreadConstraint(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How evenly pods like this one lie across a topology."""

    max_skew: meta.Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: meta.LabelSelector | None = None
    min_domains: meta.Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class PersistentVolumeClaimVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A volume by the name of its claim."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A volume whose claim is made with the pod, kept as the JSON it came in."""

    volume_claim_template: msgspec.Raw = meta.NO_RAW


class CSIVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A volume a CSI driver makes inline."""

    driver: str = ""


class GCEPersistentDiskVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A disk of Google Cloud: several pods of a node may have it only to read."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A disk of Amazon: one pod of a node may have it."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class ISCSIVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """An iSCSI disk: several pods of a node may have it only to read."""

    iqn: str = ""
    read_only: bool = False


class RBDVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A Ceph image: several pods of a node may have it only to read."""

    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool = False


class AzureDiskVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A disk of Azure."""

    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class CinderVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A disk of OpenStack."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolumeSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A volume of Portworx."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class Volume(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A volume of the pod; other kinds than these do not bind a pod to nodes."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None


class PodSchedulingGate(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A reason not to schedule the pod yet."""

    name: str = ""


class PodResourceClaim(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A claim the pod uses, by name or made from a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The gang a pod is part of."""

    pod_group_name: str | None = None


class PodSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a pod needs of a node."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: dict[str, quantities.Quantity] = {}
    resource_claims: tuple[PodResourceClaim, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    priority: meta.Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    runtime_class_name: str | None = None
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: meta.Int64 | None = None
    active_deadline_seconds: meta.Int64 | None = None


class PodCondition(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One observed aspect of a pod."""

    type: str = ""
    status: str = ""
    observed_generation: meta.Int64 = 0
    last_probe_time: meta.Time | None = None
    last_transition_time: meta.Time | None = None
    reason: str = ""
    message: str = ""


class PodResourceClaimStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The claim made for one entry of resourceClaims; none if the pod needs none."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Which request of the generated claim serves a container's extended resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The claim that serves the pod's extended resources."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class NodeAllocatableMappedResource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A node resource that devices of a claim stand for."""

    name: str = ""
    quantity: quantities.Quantity | None = None


class NodeAllocatableOverheadResource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A node resource the use of a claim costs."""

    name: str = ""
    per_pod: quantities.Quantity | None = None
    per_container: quantities.Quantity | None = None


class NodeAllocatableResourceClaimStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Node resources a claim of the pod accounts for. Alpha."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    mapping: tuple[NodeAllocatableMappedResource, ...] = ()
    overhead: tuple[NodeAllocatableOverheadResource, ...] = ()


class PodStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Where a pod is in its life, and the claims made for it."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str = ""
    start_time: meta.Time | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()
    resources: ResourceRequirements | None = None


class Pod(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A workload's unit of placement, namespaced."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNMODELLED: Final[dict[type, frozenset[str]]] = {  # core/v1 of Kubernetes 1.37
    ContainerRestartRule: _names("exitCodes"),
    VolumeMount: _names(
        "readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr"
    ),
    EnvVar: _names("valueFrom"),
    Container: _names(
        "command args workingDir envFrom resizePolicy volumeDevices"
        " livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath terminationMessagePolicy"
        " imagePullPolicy securityContext stdin stdinOnce tty"
    ),
    EphemeralVolumeSource: _names("readOnly"),
    CSIVolumeSource: _names("readOnly fsType volumeAttributes nodePublishSecretRef"),
    GCEPersistentDiskVolumeSource: _names("fsType partition"),
    AWSElasticBlockStoreVolumeSource: _names("fsType partition"),
    ISCSIVolumeSource: _names(
        "targetPortal lun iscsiInterface fsType portals chapAuthDiscovery chapAuthSession secretRef initiatorName"
    ),
    RBDVolumeSource: _names("fsType user keyring secretRef"),
    AzureDiskVolumeSource: _names("diskName cachingMode fsType readOnly"),
    CinderVolumeSource: _names("fsType readOnly secretRef"),
    PortworxVolumeSource: _names("fsType readOnly"),
    Volume: _names(
        "hostPath emptyDir gitRepo secret nfs glusterfs flexVolume cephfs flocker downwardAPI fc azureFile"
        " configMap vsphereVolume quobyte photonPersistentDisk projected scaleIO"
        " storageos image"
    ),
    PodSpec: _names(
        "ephemeralContainers dnsPolicy serviceAccountName serviceAccount automountServiceAccountToken hostPID"
        " hostIPC shareProcessNamespace securityContext imagePullSecrets hostname subdomain hostAliases"
        " dnsConfig readinessGates enableServiceLinks setHostnameAsFQDN os hostnameOverride"
        " evictionResponders"
    ),
    PodStatus: _names(
        "observedGeneration message reason hostIP hostIPs podIP podIPs initContainerStatuses"
        " containerStatuses qosClass ephemeralContainerStatuses resize allocatedResources volumeHealth"
    ),
}


def occupies_node(pod: Pod) -> bool:
    """Whether the pod is bound and may still run: a kubelet reports the end before it releases a pod."""
    return bool(pod.spec.node_name) and pod.status.phase not in TERMINAL_PHASES
