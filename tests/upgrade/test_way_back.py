"""The versions to go back to are spelled as an installer takes them: 580.95.05, which a slice has to call 580.95.5."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes import codec, object_set
from dovetail.upgrade import judging
from dovetail.upgrade.machine.cluster_facts import Readiness
from dovetail.upgrade.validation import validation_checks
from tests.upgrade import trees

LABEL = {"nvidia.com/cuda.driver-version.full": "580.95.05"}


def readiness(*objects: dict[str, Any]) -> Readiness:
    stored = object_set.of("test", [codec.decode(tree) for tree in objects])
    judges = judging.judges_of(stored, validation_checks.DEFAULTS)
    return judges.readiness("gpu-01", {"driver": trees.NEW})


def published(version: str) -> dict[str, Any]:
    device = {"name": "gpu-0", "attributes": {"driverVersion": {"version": version}}}
    pool = {"name": "gpu-01", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "gpu-01", "pool": pool, "devices": [device]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "gpu-01"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("labels", "slice_version", "policy", "expected"),
    [
        ({}, "580.95.5", "580.95.05", "580.95.05"),  # as the operator's object names it
        (LABEL, "580.95.5", "570.124.06", "580.95.05"),  # as feature discovery spells it
        ({}, "580.95.5", "570.124.06", "580.95.5"),  # loaded, though the object names another
    ],
)
def test_the_driver_to_go_back_to_keeps_its_leading_zeros(
    labels: dict[str, str], slice_version: str, policy: str, expected: str
) -> None:
    node = trees.node("gpu-01", labels)
    ready = readiness(node, published(slice_version), trees.policy(policy))
    assert ready.previous == {"driver": expected}


def test_what_is_not_known_is_not_gone_back_to() -> None:
    assert readiness(trees.node("gpu-01"), trees.policy()).previous == {}
