"""run, wait, queue, top, logs, cancel and explain against a real API server with its own Job controller."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail.devcluster import kube_binaries
from tests.cli import running
from tests.support import cluster as planes
from tests.support import live

pytestmark = pytest.mark.slow
NAMESPACE = "work-commands"
SHORT = """
apiVersion: batch/v1
kind: Job
metadata: {name: short}
spec:
  template:
    metadata: {annotations: {dovetail.dev/run-seconds: "0"}}
    spec:
      schedulerName: dovetail
      restartPolicy: Never
      containers: [{name: a, image: x}]
"""
USER = "engineer"
GROUP = "rbac.authorization.k8s.io"
# What a user has who may work in one namespace and look at the hardware.
RIGHTS = f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {USER}, namespace: {NAMESPACE}}}
---
apiVersion: {GROUP}/v1
kind: Role
metadata: {{name: {USER}, namespace: {NAMESPACE}}}
rules:
  - {{apiGroups: ["", batch, resource.k8s.io], resources: ["*"], verbs: ["*"]}}
---
apiVersion: {GROUP}/v1
kind: RoleBinding
metadata: {{name: {USER}, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: {GROUP}, kind: Role, name: {USER}}}
subjects: [{{kind: ServiceAccount, name: {USER}, namespace: {NAMESPACE}}}]
---
apiVersion: {GROUP}/v1
kind: ClusterRole
metadata: {{name: {NAMESPACE}-hardware}}
rules:
  - {{apiGroups: [""], resources: [nodes], verbs: [list]}}
  - {{apiGroups: [resource.k8s.io], resources: [resourceslices, deviceclasses], verbs: [list]}}
  - {{apiGroups: [dovetail.dev], resources: [queues], verbs: [list]}}
  - {{apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [list]}}
---
apiVersion: {GROUP}/v1
kind: ClusterRoleBinding
metadata: {{name: {NAMESPACE}-hardware}}
roleRef: {{apiGroup: {GROUP}, kind: ClusterRole, name: {NAMESPACE}-hardware}}
subjects: [{{kind: ServiceAccount, name: {USER}, namespace: {NAMESPACE}}}]
"""
Command = Callable[..., running.Run]


@pytest.fixture(scope="module")
def shared() -> Iterator[live.Live]:
    """The shared cluster, with a namespace that goes again."""
    result = live.cluster(kube_binaries.DEFAULT)
    planes.kubectl(result.plane, "create", "namespace", NAMESPACE)
    yield result
    for kind in ("clusterrole", "clusterrolebinding"):
        planes.kubectl(result.plane, "delete", kind, f"{NAMESPACE}-hardware", "--ignore-not-found")
    result.delete_namespace(NAMESPACE)


@pytest.fixture
def dovetail(shared: live.Live, tmp_path: Path) -> Command:
    """Runs a command on that cluster, in that namespace."""
    options = ("--kubeconfig", str(shared.plane.kubeconfig), "-n", NAMESPACE)

    def run(command: str, *arguments: str, stdin: str | None = None) -> running.Run:
        return running.inside(tmp_path / "none", command, *options, *arguments, stdin=stdin)

    return run


def test_a_job_from_its_plan_to_its_end(shared: live.Live, dovetail: Command) -> None:
    done = dovetail(
        "run", "--image", "train:1", "--type", "h100", "--gpus", "8", "--nodes", "2", "--time", "2h",
        "--name", "train", "-y", "-d", "--", "python", "train.py",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "starts now:" in done.out
    planned = {line.split()[1] for line in done.lines if line.startswith("  train-")}
    started = dovetail("wait", "train", "--for", "started", "--timeout", "2m")
    assert (started.code, started.out) == (0, "job.batch/train start met\n"), started.err
    pods = planes.get(shared.plane, "pods", "-n", NAMESPACE)["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == planned

    rows = json.loads(dovetail("queue", "train", "-o", "json").out)["items"]
    assert [(row["state"], row["gpus"]) for row in rows] == [("Running", 16)]
    usage = json.loads(dovetail("top", "--by", "namespace", "-o", "json").out)["rows"]
    assert {row["name"]: row["allocated"] for row in usage}[NAMESPACE] == 16
    logs = dovetail("logs", "job/train", "--all-pods")  # hollow nodes have no kubelet to ask
    assert (logs.code, logs.out) == (1, "")
    assert logs.err.startswith("error: logs of pod train-")

    pod = pods[0]["metadata"]["name"]
    refused = dovetail("cancel", f"pod/{pod}")
    assert refused.code == 2
    assert dovetail("cancel", f"pod/{pod}", "--yes").out == "job.batch/train (2 pods) cancelled\n"
    gone = dovetail("wait", "job/train", "--for", "delete", "--timeout", "2m")
    assert gone.code == 0, gone.err
    shared.wait_for(
        "the template to go with its job",
        lambda: not planes.get(shared.plane, "resourceclaimtemplates", "-n", NAMESPACE)["items"],
    )


def test_a_job_that_ends_is_waited_for(dovetail: Command) -> None:
    assert dovetail("apply", "-f", "-", stdin=SHORT).code == 0
    done = dovetail("wait", "job/short", "--for", "finished", "--timeout", "2m")
    assert (done.code, done.out) == (0, "job.batch/short end met\n"), done.err
    complete = dovetail("wait", "job/short", "--for", "condition=Complete", "--timeout", "2m")
    assert complete.code == 0


def test_a_user_of_one_namespace_gets_no_plan_but_may_submit(
    shared: live.Live, tmp_path: Path
) -> None:
    planes.kubectl(shared.plane, "apply", "-f", "-", input=RIGHTS)
    token = planes.kubectl(
        shared.plane, "create", "token", USER, "-n", NAMESPACE, "--duration=1h"
    ).strip()
    kubeconfig = shared.plane.write_kubeconfig(USER, token=token)
    options = ("--kubeconfig", str(kubeconfig), "-n", NAMESPACE)
    job = ("--image", "x", "--type", "h100", "--name", "mine", "--yes", "--detach")
    done = running.inside(tmp_path / "none", "run", *options, *job, "--", "sh")
    assert done.code == 0, done.err
    assert "no plan, because it needs the right to list all work" in done.err
    assert done.lines[-1] == "job.batch/mine submitted"
    for arguments in (("wait", "mine", "--for", "started"), ("cancel", "mine")):
        command, *more = arguments
        ended = running.inside(tmp_path / "none", command, *options, *more)
        assert ended.code == 0, ended.err
    unknown = running.inside(
        tmp_path / "none", "run", *options, "--image", "x", "--type", "b9000", "--yes"
    )
    assert "h100-80gb-hbm3" in unknown.err
    assert "free" not in unknown.err  # not known without the claims of others


def test_fields_are_explained_in_the_servers_words(shared: live.Live, tmp_path: Path) -> None:
    done = running.inside(
        tmp_path / "none",
        "explain",
        "--kubeconfig",
        str(shared.plane.kubeconfig),
        "resourceclaim.spec.devices.requests.exactly",
    )
    assert done.code == 0, done.err
    assert "  deviceClassName  <string> -required-" in done.lines
    assert "DeviceClassName references a specific DeviceClass" in done.out
