"""`dovetail get nodes` and `get pools`: where nodes come from, as their labels say."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.cli import running

FOREIGN = """
apiVersion: v1
kind: Node
metadata:
  name: aks-gpu-0
  labels:
    kubernetes.azure.com/agentpool: gpu
    kubernetes.azure.com/scalesetpriority: spot
    nvidia.com/gpu.product: NVIDIA-A100-80GB-PCIe
    nvidia.com/gpu.count: "2"
    nvidia.com/gpu.replicas: "4"
    nvidia.com/gpu.sharing-strategy: time-slicing
spec:
  taints: [{key: sku, value: gpu, effect: NoSchedule}]
---
apiVersion: v1
kind: Node
metadata:
  name: aks-gpu-1
  labels: {kubernetes.azure.com/agentpool: gpu}
spec:
  taints: [{key: sku, value: gpu, effect: NoSchedule}, {key: other, effect: NoSchedule}]
---
apiVersion: v1
kind: Node
metadata: {name: bare}
"""


def test_nodes_show_their_pool_and_gpu(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=FOREIGN).code == 0
    shown = running.inside(state, "get", "nodes", "aks-gpu-0", "bare", "h100-0", "-o", "wide")
    rows = dict(
        zip(
            shown.column("NAME"),
            zip(shown.column("POOL"), shown.column("OFFERS"), strict=True),
            strict=True,
        )
    )
    assert rows["aks-gpu-0"] == ("gpu", "2 x A100-80GB-PCIe (time-slicing x 4)")
    assert rows["bare"] == ("-", "-")
    assert rows["h100-0"] == ("h100", "8 x H100-80GB-HBM3")
    spot = dict(zip(shown.column("NAME"), shown.column("SPOT"), strict=True))
    assert (spot["aks-gpu-0"], spot["h100-0"]) == ("yes", "-")


def test_pools_gather_nodes_with_the_taints_all_of_them_have(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=FOREIGN).code == 0
    shown = running.inside(state, "get", "pools")
    assert shown.column("POOL") == ["a100", "gb200", "gpu", "h100"]
    place = shown.column("POOL").index("gpu")
    assert [
        shown.column(name)[place] for name in ("PROVIDER", "NODES", "GPUS", "SPOT", "TAINTS")
    ] == [
        "aks",
        "2",
        "2",
        "1 of 2",
        "sku=gpu:NoSchedule",
    ]
    assert running.inside(state, "get", "pool", "nope").code == 1


def test_pools_for_programs_say_what_every_node_offers(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=FOREIGN).code == 0
    listed = msgspec.json.decode(running.inside(state, "get", "pools", "gpu", "-o", "json").out)[
        "items"
    ]
    assert [item["name"] for item in listed] == ["gpu"]
    assert listed[0]["nodes"]["aks-gpu-0"]["clientsPerGpu"] == 4
    assert listed[0]["nodes"]["aks-gpu-1"].get("isSpot", False) is False
    assert running.inside(state, "get", "pools", "-o", "name").lines == [
        "pool/a100",
        "pool/gb200",
        "pool/gpu",
        "pool/h100",
    ]
