"""Whole GPUs and MIG devices, from the kubelet's request to the hardware and back."""

from __future__ import annotations

from tests.node.claims.conftest import MakeNode
from tests.node.claims.node import Node


def test_a_whole_gpu_is_prepared_and_leaves_nothing_behind(node: Node) -> None:
    answer = node.prepared("train", "gpu-0")
    (device,) = answer.devices
    assert device.device_name == "gpu-0"
    assert device.request_names == ("r0",)
    assert device.cdi_device_ids == (f"k8s.gpu.nvidia.com/claim={node.uid('train')}-gpu-0",)
    assert node.cdi_files() == [f"k8s.gpu.nvidia.com-claim_{node.uid('train')}.yaml"]
    assert node.unprepare("train") is None
    node.assert_clean()


def test_a_partition_is_made_for_its_claim_and_destroyed_with_it(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-3g40gb-9-4")
    assert node.instances() == [("3g.40gb", 4)]
    assert node.is_mig_on()
    assert node.unprepare("eval") is None
    node.assert_clean()
    assert not node.is_mig_on(), "the agent switched MIG mode on, so it switches it off"
