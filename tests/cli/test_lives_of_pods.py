"""Pods of the embedded cluster from their start to their end: what they hold meanwhile, and who comes next."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli import embedded, running

CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
---
"""
STORAGE = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: dynamic}
provisioner: disk.example.com
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [h100-2]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 5Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  containers: [{name: main, image: x}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - name: scratch
    ephemeral:
      volumeClaimTemplate:
        spec: {accessModes: [ReadWriteOnce], storageClassName: dynamic, resources: {requests: {storage: 1Gi}}}
"""


def pod(name: str, *, seconds: str = "", spec: str = "") -> str:
    annotation = f", annotations: {{dovetail.dev/run-seconds: '{seconds}'}}" if seconds else ""
    head = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{annotation}}}\n"
    return f"{head}spec: {{{spec} containers: [{{name: a, image: x}}]}}\n---\n"


def applied(state: Path, text: str) -> None:
    run = running.inside(state, "apply", "-f", "-", stdin=text)
    assert run.code == 0, run.err


def users(state: Path) -> list[str]:
    shown = running.inside(state, "get", "claim", "shared", "-o", "json")
    status = msgspec.json.decode(shown.out).get("status", {})
    return [user["name"] for user in status.get("reservedFor", ())]


def test_a_shared_claim_stays_allocated_until_its_last_user_has_ended(
    cluster: embedded.Embedded, state: Path
) -> None:
    shares = "resourceClaims: [{name: c, resourceClaimName: shared}],"
    applied(state, CLAIM + pod("first", spec=shares) + pod("second", spec=shares))
    assert sorted(users(state)) == ["first", "second"]
    (device,) = running.inside(state, "get", "claims", "shared", "-o", "wide").column("DEVICES")

    applied(state, pod("first", seconds="0", spec=shares))
    running.until(
        state,
        "get",
        "claims",
        "shared",
        "-o",
        "wide",
        shows=lambda run: run.column("RESERVED FOR") == ["second"],
        what="the first user is gone",
    )
    held = running.inside(state, "get", "claims", "shared", "-o", "wide")
    assert held.column("DEVICES") == [device]

    applied(state, pod("second", seconds="0", spec=shares))
    running.until(
        state,
        "get",
        "claims",
        "shared",
        shows=lambda run: run.column("STATE") == ["pending"],
        what="the device is given back",
    )


def test_an_end_that_is_set_late_makes_room_for_who_waits(state: Path) -> None:
    whole = "nodeSelector: {kubernetes.io/hostname: h100-0},"
    eight = "resources: {limits: {nvidia.com/gpu: '8'}}"

    def greedy(name: str, seconds: str = "") -> str:
        return pod(name, seconds=seconds, spec=whole).replace("image: x}", f"image: x, {eight}}}")

    applied(state, greedy("first") + greedy("second"))
    shown = running.inside(state, "get", "pods")
    assert sorted(shown.column("STATUS")) == ["Pending", "Running"]
    rows = dict(zip(shown.column("NAME"), shown.column("STATUS"), strict=True))
    (runs,) = [name for name, status in rows.items() if status == "Running"]
    applied(state, greedy(runs, "1"))
    running.until(
        state,
        "get",
        "pods",
        shows=lambda run: sorted(run.column("STATUS")) == ["Running", "Succeeded"],
        what="the other one starts",
    )


@pytest.mark.parametrize("start", ["2026-02-30T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_pod_with_an_impossible_start_time_does_not_stop_the_others(
    cluster: embedded.Embedded, state: Path, start: str
) -> None:
    spec = {
        "nodeName": "h100-0",
        "activeDeadlineSeconds": 5,
        "containers": [{"name": "main", "image": "x"}],
    }
    odd = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "odd", "annotations": {"dovetail.dev/run-seconds": "40"}},
        "spec": spec,
        "status": {"phase": "Running", "startTime": start},
    }
    cluster.put(odd)
    applied(state, pod("fine", seconds="0"))
    running.until(
        state,
        "get",
        "pods",
        "fine",
        shows=lambda run: run.column("STATUS") == ["Succeeded"],
        what="the other pod ends",
    )


def test_a_deadline_ends_a_pod_with_its_reason(state: Path) -> None:
    applied(state, pod("late", spec="activeDeadlineSeconds: 1,"))
    running.until(
        state,
        "get",
        "pods",
        shows=lambda run: run.column("STATUS") == ["Failed"],
        what="the deadline passes",
    )
    shown = running.inside(state, "get", "pod", "late", "-o", "jsonpath={.status.reason}")
    assert shown.out == "DeadlineExceeded"


def test_a_pod_goes_where_its_volume_is_and_gets_an_ephemeral_one_there(state: Path) -> None:
    applied(state, STORAGE)
    shown = running.inside(state, "get", "pods", "user")
    assert (shown.column("STATUS"), shown.column("NODE")) == (["Running"], ["h100-2"])
    claims = running.inside(state, "get", "pvc")
    assert claims.column("NAME") == ["data", "user-scratch"]
    assert claims.column("STATUS") == ["Bound", "Bound"]
