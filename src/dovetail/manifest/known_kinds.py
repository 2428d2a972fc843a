"""Decides whether a kind exists in its API group and version, and which one was probably meant.

Given apiVersion and kind. The groups of Kubernetes itself are closed: a kind that is not listed here does not exist. Of
groups of other projects only some kinds are known, so a kind is refused there only if it is a known one misspelt. Kinds
of groups that are not known at all are left alone. Never reads an object.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from dovetail.kubetypes import registry

# The known types of k8s.io/api v0.37, by group and version; lists and options are left out.
KUBERNETES: Final[Mapping[str, tuple[str, ...]]] = {
    "v1": (
        "Binding",
        "ComponentStatus",
        "ConfigMap",
        "Endpoints",
        "Event",
        "LimitRange",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodTemplate",
        "RangeAllocation",
        "ReplicationController",
        "ResourceQuota",
        "Secret",
        "SerializedReference",
        "Service",
        "ServiceAccount",
    ),
    "admissionregistration.k8s.io/v1": (
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    ),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
    "apiregistration.k8s.io/v1": ("APIService",),
    "apps/v1": ("ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    "autoscaling/v1": ("HorizontalPodAutoscaler", "Scale"),
    "autoscaling/v2": ("HorizontalPodAutoscaler",),
    "batch/v1": ("CronJob", "Job"),
    "certificates.k8s.io/v1": (
        "CertificateSigningRequest",
        "ClusterTrustBundle",
        "PodCertificateRequest",
    ),
    "coordination.k8s.io/v1": ("Lease",),
    "discovery.k8s.io/v1": ("EndpointSlice",),
    "events.k8s.io/v1": ("Event",),
    "flowcontrol.apiserver.k8s.io/v1": ("FlowSchema", "PriorityLevelConfiguration"),
    "networking.k8s.io/v1": (
        "IPAddress",
        "Ingress",
        "IngressClass",
        "NetworkPolicy",
        "ServiceCIDR",
    ),
    "node.k8s.io/v1": ("RuntimeClass",),
    "policy/v1": ("Eviction", "PodDisruptionBudget"),
    "rbac.authorization.k8s.io/v1": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "resource.k8s.io/v1": (
        "DeviceClass",
        "DeviceTaintRule",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceSlice",
    ),
    "scheduling.k8s.io/v1": ("PriorityClass",),
    "scheduling.k8s.io/v1beta1": ("PodGroup", "PriorityClass", "Workload"),
    "storage.k8s.io/v1": (
        "CSIDriver",
        "CSINode",
        "CSIStorageCapacity",
        "StorageClass",
        "VolumeAttachment",
        "VolumeAttributesClass",
    ),
}
OURS: Final = tuple(kind.name for kind in (*registry.OURS, registry.INTENT))
CLOSED: Final[Mapping[str, tuple[str, ...]]] = {
    **KUBERNETES,
    registry.DOVETAIL_V1ALPHA1: OURS,
}
_OUR_GROUP: Final = registry.DOVETAIL_V1ALPHA1.partition("/")[0]

NEAR: Final = 0.7  # difflib's ratio from which a kind of a closed group is suggested
SLIP: Final = 0.9  # in a group with kinds that are not known: a letter left out or doubled
SHOWN: Final = 6  # kinds listed where none is near


def problem_of(api_version: str, kind: str) -> str | None:
    """Why no API server could know the kind; None where one might."""
    kinds = CLOSED.get(api_version)
    if kinds is None and api_version.partition("/")[0] == _OUR_GROUP:
        kinds = OURS
    if kinds is None:
        meant = _nearest(kind, _registered(api_version), cutoff=SLIP)
        is_slip = meant is not None and meant != kind
        return _refusal(api_version, kind, f"did you mean {meant}?") if is_slip else None
    if kind in kinds:
        return None
    meant = _nearest(kind, kinds, cutoff=NEAR)
    if meant is not None:
        return _refusal(api_version, kind, f"did you mean {meant}?")
    more = f" and {len(kinds) - SHOWN} more" if len(kinds) > SHOWN else ""
    return _refusal(api_version, kind, f"it has {', '.join(kinds[:SHOWN])}{more}")


def _refusal(api_version: str, kind: str, hint: str) -> str:
    return f'"{kind}" is no kind of {api_version}; {hint}'


def _registered(api_version: str) -> tuple[str, ...]:
    """The kinds of another project's group that the scheduler reads."""
    return tuple(
        kind.name
        for kind in registry.ALL
        if api_version in (kind.api_version, *kind.older_versions)
    )


def _nearest(kind: str, kinds: tuple[str, ...], *, cutoff: float) -> str | None:
    """The kind that differs least; the case of letters does not count."""
    by_lower_case = {name.lower(): name for name in kinds}
    near = difflib.get_close_matches(kind.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[near[0]] if near else None
