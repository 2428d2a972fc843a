"""The kinds that say how a GPU node was set up, beside those of the registry: DaemonSets, and the GPU Operator's.

One record per kind. Questions about the stack read them where a cluster serves them. Never reads an object.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes import registry
from dovetail.kubetypes.custom import gpu_operator
from dovetail.kubetypes.workloads import daemon_sets

DAEMON_SET: Final = registry.Kind(
    "apps/v1",
    "DaemonSet",
    "daemonsets",
    True,
    daemon_sets.DaemonSet,
    redacted_as="owner",
)
# The unique names of kinds outside the registry carry the group.
CLUSTER_POLICY: Final = registry.Kind(
    "nvidia.com/v1",
    "ClusterPolicy",
    "clusterpolicies",
    False,
    gpu_operator.ClusterPolicy,
    redacted_as="value",
    shares_name=True,
)
NVIDIA_DRIVER: Final = registry.Kind(
    "nvidia.com/v1alpha1",
    "NVIDIADriver",
    "nvidiadrivers",
    False,
    gpu_operator.NVIDIADriver,
    redacted_as="value",
    shares_name=True,
)
GPU_CLUSTER: Final = registry.Kind(
    "nvidia.com/v1alpha1",
    "GPUCluster",
    "gpuclusters",
    False,
    gpu_operator.GPUCluster,
    redacted_as="value",
    shares_name=True,
)
OPERATOR_KINDS: Final = (CLUSTER_POLICY, NVIDIA_DRIVER, GPU_CLUSTER)
ALL: Final = (DAEMON_SET, *OPERATOR_KINDS)
