"""Stories of users who come from kubectl: what they try first on the embedded cluster, and what they get."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tests.cli import embedded, running

CLASSES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: low}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 2000
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      priorityClassName: low
      nodeSelector: {kubernetes.io/hostname: h100-1}
      containers: [{name: a, image: x, resources: {requests: {cpu: 150}}}]
"""
FABRIC = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: fabric}
spec:
  driver: fabric.example.com
  nodeName: h100-0
  pool: {name: fabric, generation: 1, resourceSliceCount: 1}
  devices: [{name: d-0, bindsToNode: true, bindingConditions: [Attached], bindingFailureConditions: [Failed]}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: fabric}
spec: {selectors: [{cel: {expression: "device.driver == 'fabric.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: port}
spec: {devices: {requests: [{name: m, exactly: {deviceClassName: fabric}}]}}
"""
USER = """
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  resourceClaims: [{name: c, resourceClaimName: port}]
  containers: [{name: a, image: x, resources: {claims: [{name: c}]}}]
"""
RULE = """
apiVersion: resource.k8s.io/%s
kind: DeviceTaintRule
metadata: {name: broken}
spec: {deviceSelector: {driver: gpu.nvidia.com, pool: h100-0}, taint: {key: broken, effect: NoSchedule}}
"""


def pod(name: str, *, spec: str = "", **requests: str) -> str:
    resources = ", ".join(f"{key}: '{value}'" for key, value in requests.items())
    container = f"{{name: a, image: x, resources: {{requests: {{{resources}}}}}}}"
    head = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
    return f"{head}spec: {{{spec} containers: [{container}]}}\n"


def applied(state: Path, text: str) -> running.Run:
    run = running.inside(state, "apply", "-f", "-", stdin=text)
    assert run.code == 0, run.err
    return run


def statuses(run: running.Run) -> dict[str, str]:
    if not run.lines:
        return {}
    return dict(zip(run.column("NAME"), run.column("STATUS"), strict=True))


def test_a_pod_of_high_priority_that_fits_nowhere_gets_a_reason_beside_others(state: Path) -> None:
    applied(state, CLASSES + "---\n" + pod("runs", cpu="1") + "---\n" + pod("big", cpu="9999"))
    applied(state, pod("important", spec="priorityClassName: high,", cpu="5000"))
    shown = running.inside(state, "get", "pods")
    assert statuses(shown) == {"big": "Pending", "important": "Pending", "runs": "Running"}
    reasons = dict(zip(shown.column("NAME"), shown.column("WHY NOT"), strict=True))
    assert reasons["important"].startswith("26 nodes: 26 lack cpu (needs 5k")


def test_a_job_makes_pods_that_run(state: Path) -> None:
    file = running.EXAMPLES / "live" / "batch-job.yaml"
    assert running.inside(state, "apply", "-f", str(file)).code == 0
    shown = running.inside(state, "get", "pods", "-n", "batch")
    assert len(shown.lines) > 2
    assert set(shown.column("STATUS")) == {"Running"}


def test_a_gang_that_starts_well_leaves_no_warning(state: Path) -> None:
    file = running.EXAMPLES / "live" / "gang-job.yaml"
    assert running.inside(state, "apply", "-f", str(file)).code == 0
    events = running.until(
        state,
        "get",
        "events",
        "-n",
        "gang-job",
        shows=lambda run: run.lines and run.column("REASON").count("Scheduled") == 4,
        what="four pods are bound",
    )
    assert "Warning" not in events.column("TYPE")


def test_who_is_preempted_is_gone_and_the_deployment_makes_another_that_says_why_it_waits(
    state: Path,
) -> None:
    applied(state, CLASSES + "---" + DEPLOYMENT)
    (before,) = running.inside(state, "get", "pods", "-o", "name").lines
    node = "priorityClassName: high, nodeSelector: {kubernetes.io/hostname: h100-1},"
    applied(state, pod("vip", spec=node, cpu="150"))
    shown = running.until(
        state,
        "get",
        "pods",
        shows=lambda run: (
            sorted(run.column("STATUS")) == ["Pending", "Running"] and "lacks cpu" in run.out
        ),
        what="the new pod runs, and the deployment's pod says what it lacks",
    )
    assert statuses(shown)["vip"] == "Running"
    assert before not in running.inside(state, "get", "pods", "-o", "name").lines


def test_a_priority_class_that_is_not_there_is_refused(state: Path) -> None:
    text = pod("p", spec="priorityClassName: nosuch,")
    run = running.inside(state, "apply", "-f", "-", stdin=text)
    assert run.code == 1
    assert "no PriorityClass with name nosuch was found" in run.err


@pytest.mark.parametrize("change", [("cpu: '1'", "cpu: '2'"), ("spec: {", "spec: {nodeName: x,")])
def test_what_runs_cannot_be_rewritten(state: Path, change: tuple[str, str]) -> None:
    applied(state, pod("p", cpu="1"))
    run = running.inside(state, "apply", "-f", "-", stdin=pod("p", cpu="1").replace(*change))
    assert run.code == 1
    assert "pod updates may not change fields other than" in run.err


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_a_taint_rule_keeps_new_pods_off(state: Path, version: str) -> None:
    applied(state, RULE % version)
    node = "nodeSelector: {kubernetes.io/hostname: h100-0},"
    container = "limits: {nvidia.com/gpu: '1'}"
    text = pod("p", spec=node).replace("requests: {}", container)
    applied(state, text)
    (reason,) = running.inside(state, "get", "pods", "-o", "wide").column("WHY NOT")
    assert "8 of class gpu.nvidia.com -> 0 tolerated" in reason
    devices = running.inside(state, "get", "devices", "--node", "h100-0", "-o", "wide")
    assert set(devices.column("STATE")) == {"tainted"}
    assert set(devices.column("TAINTS")) == {"broken:NoSchedule"}
    others = running.inside(state, "get", "devices", "--node", "h100-1", "-o", "wide")
    assert (set(others.column("STATE")), set(others.column("TAINTS"))) == ({"free"}, {"-"})


def test_a_namespace_as_kubectl_prints_it_can_be_applied(state: Path) -> None:
    shown = running.inside(state, "get", "namespace", "default", "-o", "yaml")
    assert applied(state, shown.out).lines == ["namespace/default unchanged"]


def test_a_pod_is_not_bound_before_its_device_is_attached(
    cluster: embedded.Embedded, state: Path
) -> None:
    applied(state, FABRIC)
    user = msgspec.json.decode(msgspec.json.encode(running.yaml_tree(USER)))
    cluster.put(user)
    running.until(
        state,
        "get",
        "claims",
        "port",
        shows=lambda run: run.column("STATE") == ["allocated,reserved"],
        what="its device is allocated",
    )
    shown = running.until(
        state,
        "get",
        "pods",
        "user",
        shows=lambda run: run.column("WHY NOT") != ["-"],
        what="what the pod waits for",
    )
    assert statuses(shown) == {"user": "Pending"}
    (reason,) = shown.column("WHY NOT")
    stamp = r"[-0-9]+T[:0-9]+Z"
    expected = rf"waits until {stamp} for d-0 of claim port \(Attached\), on node h100-0"
    assert re.fullmatch(expected, reason)
    described = running.inside(state, "get", "pod", "user", "-o", "json")
    conditions = msgspec.json.decode(described.out)["status"]["conditions"]
    assert [each["reason"] for each in conditions] == ["DevicesNotPrepared"], (
        "autoscalers add nodes for Unschedulable alone"
    )
    # Others get their answers meanwhile.
    cluster.put(running.yaml_tree(pod("big", cpu="9999")))
    running.until(
        state,
        "get",
        "pods",
        "big",
        shows=lambda run: "lack cpu" in run.out,
        what="the reason of another pod",
    )


def test_every_story_begins_with_the_same_cluster(cluster: embedded.Embedded) -> None:
    state = cluster.directory
    changed = "apiVersion: v1\nkind: Node\nmetadata: {name: h100-0, labels: {left: behind}}\n"
    spec = "spec: {unschedulable: true}\n"
    assert running.inside(state, "apply", "-f", "-", stdin=changed + spec).code == 0
    assert running.inside(state, "delete", "node", "h100-1").code == 0
    cluster.reset()
    names = running.inside(state, "get", "nodes", "-o", "name").lines
    assert {"node/h100-0", "node/h100-1"} <= set(names)
    node = msgspec.json.decode(running.inside(state, "get", "node", "h100-0", "-o", "json").out)
    assert "left" not in node["metadata"]["labels"]
    assert "unschedulable" not in node.get("spec", {})
