"""What labels of the clouds and of feature discovery say about a node."""

from __future__ import annotations

import pytest

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.quantity import quantity


def node(labels: dict[str, str], *, provider_id: str = "", **allocatable: str) -> nodes.Node:
    amounts = {
        name.replace("_", "/"): quantity.parse(amount) for name, amount in allocatable.items()
    }
    return nodes.Node(
        metadata=meta.ObjectMeta(name="n", labels=labels),
        spec=nodes.NodeSpec(provider_id=provider_id),
        status=nodes.NodeStatus(allocatable=amounts),
    )


AKS = {
    "kubernetes.azure.com/agentpool": "gpunp",
    "agentpool": "gpunp",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "kubernetes.azure.com/accelerator": "nvidia",
}
GKE = {
    "cloud.google.com/gke-nodepool": "h100",
    "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
    "cloud.google.com/gke-spot": "true",
}
EKS = {"eks.amazonaws.com/nodegroup": "p5", "eks.amazonaws.com/capacityType": "SPOT"}
KARPENTER = {
    "karpenter.sh/nodepool": "gpu",
    "karpenter.sh/capacity-type": "on-demand",
    "karpenter.k8s.aws/instance-gpu-name": "a10g",
}


@pytest.mark.parametrize(
    ("labels", "name", "provider", "is_spot", "accelerator"),
    [
        (AKS, "gpunp", "aks", True, "nvidia"),
        (
            AKS | {"kubernetes.azure.com/scalesetpriority": "regular"},
            "gpunp",
            "aks",
            False,
            "nvidia",
        ),
        ({"agentpool": "old", "accelerator": "nvidia"}, "old", "aks", False, "nvidia"),
        (GKE, "h100", "gke", True, "nvidia-h100-80gb"),
        ({**GKE, "cloud.google.com/gke-spot": "false"}, "h100", "gke", False, "nvidia-h100-80gb"),
        (
            {"cloud.google.com/gke-nodepool": "p", "cloud.google.com/gke-provisioning": "spot"},
            "p",
            "gke",
            True,
            "",
        ),
        (
            {"cloud.google.com/gke-nodepool": "p", "cloud.google.com/gke-preemptible": "true"},
            "p",
            "gke",
            True,
            "",
        ),
        (EKS, "p5", "eks", True, ""),
        (EKS | {"eks.amazonaws.com/capacityType": "ON_DEMAND"}, "p5", "eks", False, ""),
        ({"alpha.eksctl.io/nodegroup-name": "g"}, "g", "eks", False, ""),
        (KARPENTER, "gpu", "eks", False, "a10g"),
        (
            {
                "karpenter.sh/nodepool": "nap",
                "karpenter.azure.com/sku-gpu-name": "A100",
                "karpenter.sh/capacity-type": "spot",
            },
            "nap",
            "aks",
            True,
            "A100",
        ),
        ({"dovetail.dev/pool": "mine"} | EKS, "mine", "eks", True, ""),
        ({"kubernetes.io/hostname": "n"}, "", "", False, ""),
    ],
)
def test_each_cloud_names_its_pools_in_its_own_way(
    labels: dict[str, str], name: str, provider: str, is_spot: bool, accelerator: str
) -> None:
    node_pool = node_pools.pool_of(node(labels))
    assert (node_pool.name, node_pool.provider, node_pool.is_spot, node_pool.accelerator) == (
        name,
        provider,
        is_spot,
        accelerator,
    )
    assert node_pools.name_of(node(labels)) == name
    if name:
        assert labels[node_pool.label] == name


@pytest.mark.parametrize(
    ("provider_id", "provider"),
    [
        ("aws:///us-east-1a/i-0", "eks"),
        ("azure:///subscriptions/x", "aks"),
        ("gce://p/z/n", "gke"),
        ("kind://x", ""),
    ],
)
def test_the_provider_id_is_used_where_labels_are_missing(provider_id: str, provider: str) -> None:
    assert node_pools.pool_of(node({}, provider_id=provider_id)).provider == provider


def discovered(**labels: str) -> dict[str, str]:
    return {
        f"nvidia.com/{name.replace('__', '-').replace('_', '.')}": value
        for name, value in labels.items()
    }


WHOLE = discovered(
    gpu_product="NVIDIA-H100-80GB-HBM3",
    gpu_count="8",
    gpu_replicas="1",
    gpu_sharing__strategy="none",
    mig_strategy="single",
)


@pytest.mark.parametrize(
    ("labels", "offer"),
    [
        (WHOLE, "8 x H100-80GB-HBM3"),
        (
            WHOLE
            | discovered(
                gpu_product="NVIDIA-L4-SHARED",
                gpu_count="1",
                gpu_replicas="4",
                gpu_sharing__strategy="time-slicing",
            ),
            "1 x L4 (time-slicing x 4)",
        ),
        (
            WHOLE | discovered(gpu_replicas="10", gpu_sharing__strategy="mps"),
            "8 x H100-80GB-HBM3 (mps x 10)",
        ),
        (
            discovered(
                gpu_product="NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
                gpu_count="56",
                mig_strategy="single",
            ),
            "A100-SXM4-40GB (1g.5gb x 56)",
        ),
        (
            discovered(gpu_product="NVIDIA-A100-SXM4-80GB", gpu_count="4", mig_strategy="mixed")
            | {"nvidia.com/mig-3g.40gb.count": "4", "nvidia.com/mig-1g.10gb.count": "12"},
            "4 x A100-SXM4-80GB (1g.10gb x 12, 3g.40gb x 4)",
        ),
        (
            {
                "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
                "cloud.google.com/gke-gpu-partition-size": "1g.5gb",
                "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
                "cloud.google.com/gke-max-shared-clients-per-gpu": "3",
            },
            "nvidia-tesla-a100 (1g.5gb, time-slicing x 3)",
        ),
        ({}, ""),
    ],
)
def test_what_is_offered_is_said_in_one_line(labels: dict[str, str], offer: str) -> None:
    node_pool = node_pools.pool_of(node(labels))
    assert node_pool.offer == offer
    assert node_pool.has_gpus is bool(offer)


def test_a_strategy_counts_only_where_there_are_partitions() -> None:
    assert node_pools.pool_of(node(WHOLE)).mig_strategy == ""
    mixed = discovered(mig_strategy="mixed") | {"nvidia.com/mig-7g.80gb.count": "1"}
    assert node_pools.pool_of(node(mixed)).mig_strategy == "mixed"


@pytest.mark.parametrize("text", ["", "-1", "many", "9" * 40, "\u0661"])
def test_a_label_that_is_no_number_counts_nothing(text: str) -> None:
    assert node_pools.pool_of(node(discovered(gpu_count=text))).gpu_count == 0


def test_device_plugin_resources_are_distinguished_from_others() -> None:
    result = node({}, nvidia_com="0")
    assert node_pools.plugin_gpus(result) == {}
    amounts = {
        "cpu": "8",
        "nvidia.com/gpu": "8",
        "nvidia.com/mig-1g.10gb": "7",
        "nvidia.com/gpu.shared": "0",
        "example.com/gpu": "1",
    }
    status = nodes.NodeStatus(
        allocatable={name: quantity.parse(amount) for name, amount in amounts.items()}
    )
    assert node_pools.plugin_gpus(nodes.Node(status=status)) == {
        "nvidia.com/gpu": 8,
        "nvidia.com/mig-1g.10gb": 7,
    }
