"""`dovetail stack heal` on a snapshot: what would be done, refusals, and wrong files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import running

XID = {"key": "gpu.nvidia.com/xid", "value": "48", "effect": "NoSchedule"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "gpu-1"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "gpu-1-gpus"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "gpu-1",
        "pool": {"name": "gpu-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "taints": [XID]}, {"name": "gpu-1"}],
    },
}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, SLICE]}))
    return file


def _heal(dump: Path, *words: str) -> running.Run:
    return running.inside(dump.parent, "stack", "heal", *words, "--snapshot", str(dump))


def test_a_fault_leads_to_a_remedy_with_its_reason(dump: Path) -> None:
    run = _heal(dump)
    assert run.code == 0
    assert "reset-gpu of gpu-0 because of xid-48, by the table" in run.out
    (step,) = json.loads(_heal(dump, "-o", "json").out)["steps"]
    assert (step["action"], step["rung"], step["gpus"]) == ("begin", "reset-gpu", ["gpu-0"])


def test_a_refusal_and_a_wrong_policy_have_their_exit_codes(dump: Path) -> None:
    policy = dump.parent / "policy.yaml"
    policy.write_text("highest: restart-app")
    refused = _heal(dump, "--policy", str(policy))
    assert refused.code == 1
    assert "needs reset-gpu; the policy allows up to restart-app" in refused.out
    policy.write_text("trys: 3")
    wrong = _heal(dump, "--policy", str(policy))
    assert wrong.code == 2
    assert "unknown field `trys`" in wrong.err
