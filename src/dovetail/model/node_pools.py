"""What a node's labels show about its origin: pool, provider, spot, accelerator, partitions, sharing.

Given a Node. Knows the labels of AKS, GKE, EKS, Karpenter and NVIDIA's GPU feature discovery, and our own
`dovetail.dev/pool`. The platform writes these labels: they are trusted, never completed. Never decides a placement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.kubetypes.core import nodes

OWN_POOL: Final = "dovetail.dev/pool"
RACK: Final = "dovetail.dev/rack"
CLIQUE: Final = "nvidia.com/gpu.clique"  # of GPU feature discovery: the NVLink partition
GPU_DRIVER: Final = "gpu.nvidia.com"  # whose ResourceSlices publish GPUs
AKS, GKE, EKS = "aks", "gke", "eks"

# Which label names the pool; the first that is there counts. Karpenter's nodes of EKS and AKS carry only its own.
POOL_LABELS: Final = (
    (OWN_POOL, ""),
    ("kubernetes.azure.com/agentpool", AKS),
    ("cloud.google.com/gke-nodepool", GKE),
    ("eks.amazonaws.com/nodegroup", EKS),
    ("alpha.eksctl.io/nodegroup-name", EKS),
    ("karpenter.sh/nodepool", ""),
    ("agentpool", AKS),  # AKS before it used its own domain
)
PROVIDER_PREFIXES: Final = (
    ("azure://", AKS),
    ("gce://", GKE),
    ("aws://", EKS),
)  # of spec.providerID
PROVIDER_DOMAINS: Final = (
    ("kubernetes.azure.com/", AKS),
    ("karpenter.azure.com/", AKS),
    ("cloud.google.com/gke-", GKE),
    ("eks.amazonaws.com/", EKS),
    ("karpenter.k8s.aws/", EKS),
)
SPOT_LABELS: Final = frozenset(
    {
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        ("cloud.google.com/gke-spot", "true"),
        ("cloud.google.com/gke-preemptible", "true"),
        ("cloud.google.com/gke-provisioning", "spot"),
        ("cloud.google.com/gke-provisioning", "preemptible"),
        (
            "eks.amazonaws.com/capacitytype",
            "spot",
        ),  # compared in lower case: EKS writes capacityType and SPOT
        ("karpenter.sh/capacity-type", "spot"),
        ("node.kubernetes.io/lifecycle", "spot"),
    }
)
PRODUCT: Final = "nvidia.com/gpu.product"
# What the accelerator is called, the most exact name first. AKS' own label says only who made it.
ACCELERATOR_LABELS: Final = (
    "cloud.google.com/gke-accelerator",
    "eks.amazonaws.com/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.azure.com/sku-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator",
    "accelerator",  # AKS up to 1.31
)
PRESENT: Final = "nvidia.com/gpu.present"
COUNT: Final = "nvidia.com/gpu.count"
REPLICAS: Final = "nvidia.com/gpu.replicas"
SHARING: Final = "nvidia.com/gpu.sharing-strategy"
MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
MIG_STATE: Final = "nvidia.com/mig.config.state"
GKE_PARTITION: Final = "cloud.google.com/gke-gpu-partition-size"
GKE_SHARING: Final = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_CLIENTS: Final = "cloud.google.com/gke-max-shared-clients-per-gpu"
SHARED_SUFFIX: Final = (
    "-SHARED"  # of the product, where replicas are offered under the resource's usual name
)

GPU_RESOURCE: Final = "nvidia.com/gpu"
_GPU_RESOURCES: Final = re.compile(
    r"nvidia\.com/(gpu(\.shared)?|mig-[a-z0-9.+-]+)|amd\.com/gpu|gpu\.intel\.com/(i915|xe)"
)
_MIG_COUNT: Final = re.compile(r"nvidia\.com/mig-(?P<profile>[^/]+)\.count")
_MIG_PRODUCT: Final = re.compile(r"(?P<product>.+)-MIG-(?P<profile>[^-]+)")


class NodePool(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A node's origin by its labels; what they do not show is empty."""

    name: str = ""
    label: str = ""  # the label that names it, for selectors and commands
    provider: str = ""  # aks | gke | eks
    is_spot: bool = False
    accelerator: str = ""
    gpu_count: int = 0  # physical GPUs; 0 where only partitions are counted
    mig_strategy: str = ""  # single | mixed, where there are partitions
    mig_profiles: dict[str, int] = {}  # partitions on the node by profile; 0: not counted, on GKE
    mig_state: str = ""  # of a re-partitioning: pending, rebooting, success, failed
    sharing: str = ""  # time-slicing | mps
    clients_per_gpu: int = 0  # where GPUs are shared

    @property
    def has_gpus(self) -> bool:
        """Whether the labels speak of GPUs at all."""
        return bool(self.gpu_count or self.accelerator)

    @property
    def offer(self) -> str:
        """How the GPUs are offered, for people: `8 x H100`, `4 x A100 (1g.10gb x 28)`, `1 x L4 (time-slicing x 4)`."""
        if not self.has_gpus:
            return ""
        parts = [_times(name, count) for name, count in self.mig_profiles.items()]
        if self.sharing:
            parts.append(_times(self.sharing, self.clients_per_gpu))
        whole = self.accelerator or f"{self.gpu_count} GPUs"
        if self.gpu_count and self.accelerator:
            whole = f"{self.gpu_count} x {self.accelerator}"
        return f"{whole} ({', '.join(parts)})" if parts else whole


def _times(name: str, count: int) -> str:
    return f"{name} x {count}" if count else name


def pool_of(node: nodes.Node) -> NodePool:
    """The pool of a node by its labels. Linear in its labels."""
    labels = node.metadata.labels
    label, name, by_label = next(
        ((key, labels[key], provider) for key, provider in POOL_LABELS if labels.get(key)),
        ("", "", ""),
    )
    product, profiles, is_single = _product(labels)
    sharing, clients = _sharing(labels)
    strategy = labels.get(MIG_STRATEGY, "") if profiles else ""
    return NodePool(
        name=name,
        label=label,
        provider=by_label or _provider(node),
        is_spot=any((key.lower(), value.lower()) in SPOT_LABELS for key, value in labels.items()),
        accelerator=product,
        gpu_count=0 if is_single else _number(labels.get(COUNT)),
        mig_strategy="" if strategy == "none" else strategy,
        mig_profiles=profiles,
        mig_state=labels.get(MIG_STATE, ""),
        sharing=sharing,
        clients_per_gpu=clients,
    )


def name_of(node: nodes.Node) -> str:
    """The pool's name alone; nothing where no label names one."""
    labels = node.metadata.labels
    return next((labels[key] for key, _ in POOL_LABELS if labels.get(key)), "")


def is_gpu_resource(name: str) -> bool:
    """Whether an extended resource is GPUs, parts or shares of them, as device plugins name them."""
    return _GPU_RESOURCES.fullmatch(name) is not None


def plugin_gpus(node: nodes.Node) -> dict[str, int]:
    """GPUs, parts and shares a device plugin counts on the node, by resource."""
    amounts = node.status.allocatable.items()
    return {
        name: amount.value()
        for name, amount in amounts
        if is_gpu_resource(name) and amount.sign > 0
    }


def _provider(node: nodes.Node) -> str:
    for prefix, provider in PROVIDER_PREFIXES:
        if node.spec.provider_id.startswith(prefix):
            return provider
    for key in node.metadata.labels:
        for domain, provider in PROVIDER_DOMAINS:
            if key.startswith(domain):
                return provider
    return ""


def _product(labels: Mapping[str, str]) -> tuple[str, dict[str, int], bool]:
    """The GPU's name without the suffixes of discovery, its partitions, and whether the count is theirs."""
    profiles: dict[str, int] = {}
    for key, value in labels.items():
        if count_label := _MIG_COUNT.fullmatch(key):
            profiles[count_label["profile"]] = _number(value)
    product = labels.get(PRODUCT, "").removesuffix(SHARED_SUFFIX)
    single = _MIG_PRODUCT.fullmatch(product)
    if single is not None:  # strategy "single": partitions stand in for GPUs, the count is theirs
        product = single["product"]
        profiles.setdefault(single["profile"], _number(labels.get(COUNT)))
    if size := labels.get(GKE_PARTITION):
        profiles.setdefault(size, 0)
    product = product or next((labels[key] for key in ACCELERATOR_LABELS if labels.get(key)), "")
    return product.removeprefix("NVIDIA-"), dict(sorted(profiles.items())), single is not None


def _sharing(labels: Mapping[str, str]) -> tuple[str, int]:
    if strategy := labels.get(GKE_SHARING):
        name = strategy.lower().replace("time-sharing", "time-slicing")
        return name, _number(labels.get(GKE_CLIENTS))
    strategy = labels.get(SHARING, "none")
    replicas = _number(labels.get(REPLICAS))
    if strategy == "none" or replicas < 2:
        return "", 0
    return strategy, replicas


def _number(text: str | None) -> int:
    if not text or len(text) >= 10 or not text.isascii():
        return 0
    return int(text) if text.isdecimal() else 0
