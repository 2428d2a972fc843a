"""An installation on a real API server: by our own commands and by Helm, up to date, refused, and gone again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.devcluster import kube_binaries
from dovetail.install import chart
from tests.cli import running
from tests.deploy import build
from tests.e2e import installing
from tests.support import cluster as planes
from tests.support import helm, live
from tests.support.live import Live

pytestmark = pytest.mark.slow

CRD = "queues.dovetail.dev"
# Also rights in namespaces that are not the installation's.
UPGRADES = (
    "lifecycle.enabled=true",
    "lifecycle.operator.enabled=true",
    "lifecycle.operator.namespace=default",
)
OF_OPERATOR = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}


@pytest.fixture
def one() -> Live:
    """The newest version only, where the other would tell nothing new."""
    return live.cluster(kube_binaries.DEFAULT)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for the installation and its namespace; whatever is left of it goes afterwards."""
    text = f"try-{uuid.uuid4().hex[:8]}"
    yield text
    cluster = request.node.funcargs.get("cluster") or live.cluster(kube_binaries.DEFAULT)
    installing.run(cluster, "uninstall", text, "--purge")
    planes.run_kubectl(cluster.plane, "delete", "namespace", text, "--ignore-not-found")


def test_our_own_commands_install_change_and_remove_everything(cluster: Live, name: str) -> None:
    """Both versions accept all of it, restricted pods included; a second time changes nothing; nothing stays."""
    before = installing.everything(cluster, name)
    release = chart.Release(name, name)
    expected = build.objects(*UPGRADES, release=release, api_versions=chart.OPTIONAL[:1])
    settings = [word for setting in UPGRADES for word in ("--set", setting)]
    done = installing.run(cluster, "install", name, *settings)
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if not line.startswith("next:")]
    assert len(lines) == len(expected) + 1  # and the namespace
    assert [line for line in lines if not line.endswith(" created")] == []
    assert installing.present(cluster, expected) == {
        (item["kind"], item["metadata"]["name"]) for item in expected
    }
    cluster.wait_for("pods the namespace's policy admits", lambda: len(cluster.pods(name)) == 4)

    again = installing.run(cluster, "install", name, *settings)
    assert again.code == 0, again.err
    assert {line.rpartition(" ")[2] for line in again.err.splitlines()[:-1]} <= {
        "unchanged",
        "changed",
    }
    changed = [line for line in again.err.splitlines()[:-1] if line.endswith(" changed")]
    assert changed == []

    smaller = installing.run(
        cluster, "upgrade", name, "--set", "networkPolicy.enabled=false", "--set", "replicas=1"
    )
    assert smaller.code == 0, smaller.err
    assert f"networkpolicy.networking.k8s.io/{name}-scheduler deleted" in smaller.err
    assert f"deployment.apps/{name}-scheduler changed" in smaller.err
    assert f"role.rbac.authorization.k8s.io/{name}-lifecycle-events deleted" in smaller.err
    rights = [row for row in installing.everything(cluster, name) if row[0] in live.RIGHTS]
    assert not [row for row in rights if "lifecycle" in row[2]]

    gone = installing.run(cluster, "uninstall", name)
    assert gone.code == 0, gone.err
    assert installing.everything(cluster, name) == before
    twice = installing.run(cluster, "uninstall", name)
    assert (twice.code, "nothing is installed" in twice.err) == (0, True)


def test_helm_installs_upgrades_and_removes_everything(one: Live, name: str) -> None:
    """What Helm makes is what we would make; our commands leave Helm's installation alone."""
    before = installing.everything(one, name)
    expected = build.objects(release=chart.Release(name, name), api_versions=chart.OPTIONAL[:1])
    common = [name, str(helm.CHART), "-n", name, "--set", build.IMAGE]
    config = one.plane.kubeconfig
    helm.said("install", *common, "--create-namespace", kubeconfig=config)
    assert installing.present(one, expected) == {
        (tree["kind"], tree["metadata"]["name"]) for tree in expected
    }

    for command in ("install", "upgrade", "uninstall"):
        refused = installing.run(one, command, name)
        assert refused.code == 1
        assert "installed by Helm\nnext: helm" in refused.err
    assert installing.present(one, expected) == {
        (tree["kind"], tree["metadata"]["name"]) for tree in expected
    }

    helm.said(
        "upgrade",
        *common,
        "--set",
        "networkPolicy.enabled=false",
        "--set",
        "replicas=3",
        kubeconfig=config,
    )
    left = {kind for kind, _ in installing.present(one, expected)}
    assert left == {tree["kind"] for tree in expected} - {"NetworkPolicy"}
    assert _deployment(one, name)["spec"]["replicas"] == 3

    helm.said("uninstall", name, "-n", name, "--wait", kubeconfig=config)
    planes.kubectl(one.plane, "delete", "namespace", name)  # Helm never deletes one
    kept = {
        tree["metadata"]["name"] for tree in expected if tree["kind"] == "CustomResourceDefinition"
    }
    assert CRD in kept
    assert installing.everything(one, name) - before == {
        ("CustomResourceDefinition", "<none>", crd) for crd in kept
    }

    done = installing.run(
        one, "install", name, "--set", "replicas=0"
    )  # what Helm kept is no obstacle
    assert done.code == 0, done.err
    assert f"customresourcedefinition.apiextensions.k8s.io/{CRD} changed" in done.err
    assert installing.run(one, "uninstall", name).code == 0
    assert installing.everything(one, name) == before


def test_bad_input_changes_nothing(one: Live, name: str) -> None:
    """Refused by ourselves, or by the server in the rehearsal: the cluster is as it was."""
    before = installing.everything(one, name)
    for setting, words in (
        ("replicas=many", "values: replicas: expected a whole number"),
        ("resources={requests: {cpu: lots}}", "quantities must match"),
        ("resources={request: {cpu: 1}}", "resources.request: field not declared"),
        ("priorityClassName=absent_", "priorityClassName"),
        ("podLabels={a b: c}", "label"),
        ("monitoring.serviceMonitors.enabled=true", "does not serve ServiceMonitor"),
        ("monitoring.rules.enabled=true", "does not serve PrometheusRule"),
    ):
        done = installing.run(one, "install", name, "--set", setting)
        assert done.code == 1, setting
        assert words in done.err, done.err
    assert installing.run(one, "upgrade", name).code == 1  # nothing there to bring up to date
    assert installing.everything(one, name) == before


def test_what_is_not_ours_is_not_taken_over(one: Live, name: str) -> None:
    """An object of that name, or a field that another manager changed, is reported and left; --force takes it."""
    plane = one.plane
    planes.kubectl(
        plane, "create", "clusterrole", f"{name}-scheduler", "--verb=get", "--resource=pods"
    )
    refused = installing.run(one, "install", name)
    assert refused.code == 1
    assert (
        f"clusterrole.rbac.authorization.k8s.io/{name}-scheduler exists and is not part of"
        in refused.err
    )
    planes.kubectl(plane, "delete", "clusterrole", f"{name}-scheduler")

    assert installing.run(one, "install", name).code == 0
    planes.kubectl(plane, "scale", "deployment", f"{name}-scheduler", "-n", name, "--replicas=5")
    refused = installing.run(one, "install", name)
    assert refused.code == 1
    assert ".spec.replicas" in refused.err
    assert "--force takes these fields over\nnothing was changed" in refused.err
    assert _deployment(one, name)["spec"]["replicas"] == 5
    assert installing.run(one, "install", name, "--force").code == 0
    assert _deployment(one, name)["spec"]["replicas"] == 2

    elsewhere = installing.run(one, "install", name, "--namespace", f"{name}-b")
    assert elsewhere.code == 1
    assert f'"{name}" is installed in namespace {name} already' in elsewhere.err


def test_queues_and_foreign_objects_stay_until_asked_for(one: Live, name: str) -> None:
    """With everything that can be switched on."""
    plane = one.plane
    for kind, plural in OF_OPERATOR.items():
        definition = _of_operator(kind, plural)
        planes.apply(plane, [definition])
        crd = f"crd/{definition['metadata']['name']}"
        planes.kubectl(plane, "wait", "--for=condition=Established", crd, "--timeout=60s")
    # The cluster has the device classes of its simulated driver already.
    chosen = ("replicas=0", *build.EVERYTHING, "nodeAgent.deviceClasses=false")
    settings = [part for setting in chosen for part in ("--set", setting)]
    refused = installing.run(one, "install", name, *settings)
    assert refused.code != 0
    assert 'namespaces "gpu-operator" not found; create it' in refused.err
    assert planes.run_kubectl(plane, "get", "namespace", name).returncode != 0
    planes.kubectl(plane, "create", "namespace", "gpu-operator")

    installed = installing.run(one, "install", name, *settings)
    assert installed.code == 0, installed.err
    queue = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {},
    }
    planes.apply(plane, [queue])
    planes.kubectl(plane, "create", "configmap", "mine", "-n", name)
    done = installing.run(one, "uninstall", name)
    assert done.code == 0, done.err
    assert (
        f"customresourcedefinition.apiextensions.k8s.io/{CRD} stays: it has 1 queue; --purge"
        in done.err
    )
    assert f"namespace/{name} stays: it holds configmap/mine" in done.err
    assert planes.run_kubectl(plane, "get", "queue", name).returncode == 0

    planes.kubectl(plane, "delete", "configmap", "mine", "-n", name)
    done = installing.run(one, "uninstall", name, "--purge")
    assert done.code == 0, done.err
    assert installing.everything(one, name) == set()
    for plural in OF_OPERATOR.values():
        planes.kubectl(plane, "delete", "crd", f"{plural}.monitoring.coreos.com")
    planes.kubectl(plane, "delete", "namespace", "gpu-operator")


def test_waiting_ends_when_every_replica_is_ready(one: Live, name: str) -> None:
    """The pods are bound by hand: this cluster has no scheduler for them."""
    late = installing.run(one, "install", name, "--wait", "--timeout", "1")
    assert late.code == 1
    assert f"0 of 2 replicas ready after 1 s\nnext: kubectl -n {name} describe pods" in late.err

    waiting = installing.start(one, "install", name, "--wait", "--timeout", "120")
    node = planes.get(one.plane, "nodes")["items"][0]["metadata"]["name"]
    for pod in one.pods(name):
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod["metadata"]["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        one.rest.ask(
            "POST", f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}/binding", body
        )
    messages, _ = waiting.communicate(timeout=150)
    assert waiting.returncode == 0, messages
    assert "2 of 2 replicas ready" in messages
    assert installing.run(one, "uninstall", name).code == 0


def test_pods_of_namespaces_that_opt_in_become_ours(cluster: Live, name: str) -> None:
    """The API server itself sets the scheduler's name: of pods that ask for GPUs and name none, and only there."""
    done = installing.run(cluster, "install", name, "--set", "replicas=0")
    assert done.code == 0, done.err
    inside, outside = planes.fresh_namespace(cluster.plane), planes.fresh_namespace(cluster.plane)
    cluster.rest.patch(
        "namespaces", inside, {"metadata": {"labels": {"dovetail.dev/scheduling": "enabled"}}}
    )
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    cluster.wait_for(
        "the policy to be known", lambda: _scheduler_of(cluster, inside, gpu) == "dovetail"
    )
    assert _scheduler_of(cluster, outside, gpu) == "default-scheduler"
    assert _scheduler_of(cluster, inside, {}) == "default-scheduler"
    assert _scheduler_of(cluster, inside, gpu, schedulerName="another") == "another"
    assert _scheduler_of(cluster, inside, gpu, nodeName="pinned") == "default-scheduler"
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    assert _scheduler_of(cluster, inside, {}, resourceClaims=claims) == "dovetail"
    sidecar = [{"name": "first", "image": "example"} | gpu]
    assert _scheduler_of(cluster, inside, {}, initContainers=sidecar) == "dovetail"
    planes.kubectl(cluster.plane, "delete", "namespace", inside, outside, "--wait=false")


def _scheduler_of(cluster: Live, namespace: str, container: dict[str, Any], **spec: Any) -> str:
    """The scheduler's name a pod would get; nothing is stored."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asked"},
        "spec": {"containers": [{"name": "main", "image": "example"} | container]} | spec,
    }
    made = cluster.rest.ask("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    return str(made["spec"]["schedulerName"])


def _of_operator(kind: str, plural: str) -> dict[str, Any]:
    """As much of the Prometheus operator as an installation meets."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def _deployment(cluster: Live, name: str) -> Any:
    return planes.get(cluster.plane, "deployment", f"{name}-scheduler", "-n", name)


def test_the_stack_gives_every_node_an_agent_that_pod_security_admits(one: Live, name: str) -> None:
    """Agents are privileged: in a restricted namespace the DaemonSet controller would get none admitted."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.present": "true", "stack": name}},
    }
    planes.apply(one.plane, [node])
    only_here = ("--set", f"nodeAgent.nodeSelector={{stack: {name}}}", "--stack")
    try:
        done = installing.run(one, "install", name, *only_here)
        assert done.code == 0, done.err
        assert "next: dovetail stack parts" in done.err
        one.wait_for("an agent on the node", lambda: _agents_on(one, name) == [name])

        parts = running.inside(
            one.directory, "stack", "parts", "-o", "json", "--kubeconfig", str(one.plane.kubeconfig)
        )
        report = {node["node"]: node for node in json.loads(parts.out)["nodes"]}
        codes = {gap["code"] for gap in report[name]["gaps"]}
        assert "no-driver" in codes, report[name]
        assert "agent-absent" not in codes

        pools = (
            f"nodeAgent.pools=[{{name: a, nodeSelector: {{stack: {name}}}, mode: device-plugin}}]"
        )
        assert installing.run(one, "upgrade", name, "--stack", "--set", pools).code == 0
        sets = planes.get(one.plane, "daemonsets", "-n", name)["items"]
        assert [each["metadata"]["name"] for each in sets] == [f"{name}-node-agent-a"]
    finally:
        planes.run_kubectl(one.plane, "delete", "node", name, "--ignore-not-found")


def _agents_on(cluster: Live, namespace: str) -> list[str]:
    """The nodes that agents are meant for."""
    component = "app.kubernetes.io/component"
    agents = [
        pod
        for pod in cluster.pods(namespace)
        if pod["metadata"]["labels"].get(component) == "node-agent"
    ]
    return [pod["spec"].get("nodeName") or _wanted_node(pod) for pod in agents]


def _wanted_node(pod: dict[str, Any]) -> str:
    """The node that the DaemonSet controller names before the pod is bound."""
    required = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
