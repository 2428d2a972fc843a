"""The kinds of a snapshot: what the World is made of, what owns pods, and what else explains why a pod waits.

One record per kind, those of the registry first. Never reads an object.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes import gpu_stack_kinds, registry
from dovetail.kubetypes.core import pod_limits, resource_quotas
from dovetail.kubetypes.workloads import kueue_workloads

PRIORITY_CLASS: Final = registry.Kind(
    "scheduling.k8s.io/v1",
    "PriorityClass",
    "priorityclasses",
    False,
    pod_limits.PriorityClass,
    redacted_as="priority",
)
QUOTA: Final = registry.Kind(
    "v1",
    "ResourceQuota",
    "resourcequotas",
    True,
    resource_quotas.ResourceQuota,
    has_generation=False,
    redacted_as="quota",
)
LIMIT_RANGE: Final = registry.Kind(
    "v1",
    "LimitRange",
    "limitranges",
    True,
    pod_limits.LimitRange,
    has_generation=False,
    redacted_as="limit-range",
)
KUEUE_WORKLOAD: Final = registry.Kind(
    "kueue.x-k8s.io/v1beta2",
    "Workload",
    "workloads",
    True,
    kueue_workloads.Workload,
    redacted_as="owner",
    older_versions=("kueue.x-k8s.io/v1beta1",),
    shares_name=True,
)

OWNERS: Final = (*registry.OWNERS, *registry.PARENTS)  # gangs are derived from them
# The World is not made of these; they say why an API server, a quota or a scheduler holds a pod back, and how GPU nodes
# were set up.
EXPLAINING: Final = (
    registry.EVENT,
    registry.INTENT,
    QUOTA,
    LIMIT_RANGE,
    PRIORITY_CLASS,
    registry.BUDGET,
    KUEUE_WORKLOAD,
    *gpu_stack_kinds.ALL,
)
# A cluster that is loaded has no use for these: a scheduler would act on what another one intended, and DaemonSets
# would create pods again.
NOT_LOADED: Final = (registry.INTENT, KUEUE_WORKLOAD, *gpu_stack_kinds.ALL)
_FRAME: Final = (registry.NAMESPACE, *registry.OURS)
# In the order a reader wants them: machines and workloads first, the frame around them last.
KINDS: Final = (
    *(kind for kind in registry.WORLD if kind not in _FRAME),
    *OWNERS,
    *_FRAME,
    *EXPLAINING,
)
# A snapshot without the other kinds still answers every question about devices.
NEEDED: Final = (
    registry.NODE,
    registry.SLICE,
    registry.DEVICE_CLASS,
    registry.TAINT_RULE,
    registry.CLAIM,
    registry.POD,
)
