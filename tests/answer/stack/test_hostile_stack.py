"""Labels, images, variables and fields that say nonsense: an answer all the same, never an error, never a pass."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.answer.stack.stack_check import Outcome
from tests.answer.stack import fleets

NONSENSE = (
    "",
    "latest",
    "999999999999999999999999.1",
    "٥٨٠.١",
    "1.2.3.4.5.6.7.8",
    "-1",
    "580.95.05-\x1b[31m",
    "v" * 5000,
    "cuda>=",
    ":::",
)


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_everywhere_is_unknown_rather_than_an_error(text: str) -> None:
    node = fleets.node("h100-0", driver=text, cuda=text, containerd=text, kubelet=text)
    labels: dict[str, str] = node["metadata"]["labels"]
    labels |= {
        "nvidia.com/gpu.family": text,
        "nvidia.com/gpu.compute.major": text,
        "nvidia.com/cuda.runtime-version.major": text,
        "nvidia.com/mig.strategy": text,
        "nvidia.com/gpu-operator.driver.owner": text,
    }
    attributes: dict[str, Any] = {
        name: {"version": text}
        for name in ("driverVersion", "cudaDriverVersion", "cudaComputeCapability")
    }
    attributes |= {name: {"string": text} for name in ("productName", "architecture", "brand")}
    published = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "h100-0",
            "pool": {"name": "h100-0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": attributes}],
        },
    }
    env = dict.fromkeys(("CUDA_VERSION", "NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_X"), text)
    trees = [
        node,
        published,
        fleets.pod("a", f"nvidia/pytorch:{text}", "h100-0", env=env),
        fleets.pod("b", text, "h100-0", annotations={"dovetail.dev/cuda": text}),
        fleets.pod("c", "x", "gone-node"),
        fleets.policy(text, text),
        fleets.daemon_set("nvidia-driver-daemonset", f"driver:{text}"),
        fleets.daemon_set("nvidia-container-toolkit-daemonset", text),
    ]
    for target in ("", "driver=595.91.07,kubernetes=1.36,operator=26.7"):
        check = fleets.check(*trees, to=target, server="")
        assert check.outcome is not Outcome.GO
