"""The image installed from the chart on a real node: its scheduler and its agent start a pod on a GPU together.

The dashboard shows its users what each may list. All run under the service accounts, rights and admission policies of
the chart; `installation` has what differs.
"""

from __future__ import annotations

import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from tests.image import installation
from tests.nvidia import programs
from tests.support import cluster, gpu_node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).resolve().parents[2]
DRIVER: Final = "gpu.nvidia.com"
GPUS: Final = 2
OTHER_NODE: Final = "another-node"

Tree = dict[str, Any]


class Installed:
    """A node with the product, and the verbs of the stories."""

    def __init__(self, node: gpu_node.GpuNode) -> None:
        self.node = node
        self.plane = node.plane

    def rolled_out(self, workload: str) -> None:
        """Waits until every pod of a Deployment or DaemonSet is ready."""
        done = cluster.run_kubectl(
            self.plane, "rollout", "status", workload, *self._namespace, "--timeout=120s"
        )
        assert done.returncode == 0, done.stderr + self.story()

    def slices(self) -> list[Tree]:
        """The slices that the agent has published."""
        listed = cluster.api(self.plane).list("resourceslices")
        return [tree for tree in listed if tree["spec"]["driver"] == DRIVER]

    def whole_pool(self) -> list[Tree]:
        """The slices once all of them are there: those with the counters come before the devices."""
        slices = self.slices()
        is_whole = bool(slices) and len(slices) == slices[0]["spec"]["pool"]["resourceSliceCount"]
        return slices if is_whole else []

    def pod_of(self, component: str) -> Tree:
        """The one pod of the scheduler, of the agent or of the dashboard."""
        label = f"app.kubernetes.io/component={component}"
        (pod,) = cluster.get(self.plane, "pods", *self._namespace, "-l", label)["items"]
        return dict(pod)

    def story(self) -> str:
        """What pods and programs of the installation say."""
        described = cluster.run_kubectl(self.plane, "describe", "pods", *self._namespace).stdout
        logs = [
            cluster.run_kubectl(self.plane, "logs", workload, *self._namespace, "--tail=40").stdout
            for workload in (
                f"deploy/{installation.SCHEDULER}",
                f"ds/{installation.AGENT}",
                f"deploy/{installation.DASHBOARD}",
            )
        ]
        events = cluster.run_kubectl(self.plane, "get", "events", *self._namespace).stdout
        return "\n".join([described, events, *logs])

    def as_agent(
        self, *arguments: str, bound: bool = True, input: Tree | None = None
    ) -> subprocess.CompletedProcess[str]:
        """kubectl with a token of the agent's service account, bound to its running pod unless said otherwise."""
        pod = self.pod_of("node-agent")["metadata"]["name"]
        binding = ("--bound-object-kind=Pod", f"--bound-object-name={pod}") if bound else ()
        token = cluster.kubectl(
            self.plane, "create", "token", installation.AGENT, *self._namespace, *binding
        )
        kubeconfig = self.plane.write_kubeconfig("agent-of-the-image", token=token.strip())
        text = None if input is None else msgspec.json.encode(input).decode()
        return cluster.run_kubectl(self.plane, *arguments, input=text, kubeconfig=kubeconfig)

    def asked_dashboard(self, path: str, token: str = "") -> tuple[int, Tree]:
        """The status and the document that the dashboard's pod answers with, at its own address."""
        pod = self.pod_of("dashboard")
        (container,) = pod["spec"]["containers"]
        (port,) = (each["containerPort"] for each in container["ports"])
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, msgspec.json.decode(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, msgspec.json.decode(error.read())

    @property
    def _namespace(self) -> tuple[str, str]:
        return ("-n", installation.NAMESPACE)


@pytest.fixture(scope="module")
def installed(node: gpu_node.GpuNode) -> Installed:
    """The product on the node, rolled out."""
    gpus = node.add_gpus("dgx-h100", gpus=GPUS)
    hook = node.node.layout.home / "nvidia-cdi-hook"
    shutil.copy(programs.program("nvidia-cdi-hook"), hook)
    installation.install(node, gpus, cdi_hook=str(hook))
    product = Installed(node)
    product.rolled_out(f"daemonset/{installation.AGENT}")
    product.rolled_out(f"deployment/{installation.SCHEDULER}")
    product.rolled_out(f"deployment/{installation.DASHBOARD}")
    return product


def test_the_deployment_is_ready_under_the_rights_of_the_chart(installed: Installed) -> None:
    pod = installed.pod_of("scheduler")
    (status,) = pod["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"]) == (True, 0)
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["serviceAccountName"] == installation.SCHEDULER


def test_the_daemon_set_publishes_the_gpus_of_its_node(installed: Installed) -> None:
    slices = wait_until(installed.whole_pool, "slices of the node", so_far=installed.story)
    assert {tree["spec"]["nodeName"] for tree in slices} == {installed.node.name}
    devices = [device["name"] for tree in slices for device in tree["spec"].get("devices") or []]
    assert {f"gpu-{index}" for index in range(GPUS)} <= set(devices)


def test_a_pod_gets_its_gpu_from_the_installed_scheduler_and_agent(installed: Installed) -> None:
    namespace = installation.namespace_with_account(installed.plane)
    text = (ROOT / "examples" / "one-gpu.yaml").read_text(encoding="utf-8")
    claim, pod = yaml.safe_load_all(text)
    pod["spec"]["schedulerName"] = "dovetail"
    pod["spec"]["containers"][0] |= {
        "image": gpu_node.IMAGE,
        "imagePullPolicy": "Never",
        "args": ["view"],
    }
    cluster.apply(installed.plane, [claim, pod], namespace=namespace)

    name = pod["metadata"]["name"]
    running = installed.node.wait_for_phase(namespace, name, "Running")
    assert running["spec"]["nodeName"] == installed.node.name
    view = installed.node.container_view(running)
    assert [path for path in view.device_paths if path.startswith("/dev/nvidia")]

    installed.node.delete_pod(namespace, name)
    wait_until(
        lambda: not list(installed.node.cdi.glob("*claim*")),
        "the end of the claim's CDI file",
        so_far=installed.story,
    )


def test_the_dashboard_shows_its_users_what_each_may_list(installed: Installed) -> None:
    plane = installed.plane
    pod = installed.pod_of("dashboard")
    (status,) = pod["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"]) == (True, 0), installed.story()
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["serviceAccountName"] == installation.DASHBOARD

    cluster.kubectl(plane, "create", "serviceaccount", "viewer", "-n", installation.NAMESPACE)
    account = f"--serviceaccount={installation.NAMESPACE}:viewer"
    place = ("-n", installation.NAMESPACE)
    cluster.kubectl(plane, "create", "role", "viewer", "--verb=list", "--resource=pods", *place)
    cluster.kubectl(plane, "create", "rolebinding", "viewer", "--role=viewer", account, *place)
    token = cluster.kubectl(plane, "create", "token", "viewer", *place).strip()
    other = installation.namespace_with_account(plane)
    waits = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waits"},
        "spec": {
            "schedulerName": "none",
            "containers": [{"name": "main", "image": gpu_node.IMAGE}],
        },
    }
    cluster.apply(plane, [waits], namespace=other)

    def is_shown() -> bool:
        shown, document = installed.asked_dashboard("/api/v1/pods", plane.token)
        return shown == 200 and other in {item["namespace"] for item in document["items"]}

    wait_until(is_shown, "the other namespace, shown to the administrator")
    shown, document = installed.asked_dashboard("/api/v1/pods", token)
    assert shown == 200
    assert {item["namespace"] for item in document["items"]} == {installation.NAMESPACE}
    assert installed.asked_dashboard("/api/v1/fleet", token)[0] == 403
    assert installed.asked_dashboard("/api/v1/pods")[0] == 401
    cluster.kubectl(plane, "delete", "pod", "waits", "-n", other, "--wait=false")


def slice_of(node_name: str) -> Tree:
    """A slice that would announce a GPU on a node."""
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"probe-{node_name}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node_name,
            "pool": pool,
            "devices": [{"name": "gpu-9"}],
        },
    }


def test_the_agent_may_write_about_its_own_node_alone(installed: Installed) -> None:
    create = ("create", "--dry-run=server", "-f", "-")  # admitted as usual, not stored
    own = installed.as_agent(*create, input=slice_of(installed.node.name))
    assert own.returncode == 0, own.stderr

    foreign = installed.as_agent(*create, input=slice_of(OTHER_NODE))
    assert foreign.returncode != 0
    refusal = f"the node agent of node {installed.node.name} may not write about node {OTHER_NODE}"
    assert refusal in foreign.stderr


def test_the_agent_may_not_touch_the_node_or_the_slices_of_another(installed: Installed) -> None:
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER_NODE}}
    cluster.apply(installed.plane, [other, slice_of(OTHER_NODE)])
    try:
        for refused in (
            ("label", "node", OTHER_NODE, "nvidia.com/gpu.count=9"),
            ("delete", "resourceslice", f"probe-{OTHER_NODE}"),
        ):
            done = installed.as_agent(*refused)
            assert done.returncode != 0
            assert f"may not write about node {OTHER_NODE}" in done.stderr
    finally:
        cluster.kubectl(installed.plane, "delete", "resourceslice", f"probe-{OTHER_NODE}")
        cluster.kubectl(installed.plane, "delete", "node", OTHER_NODE)


def test_a_token_of_no_pod_is_refused(installed: Installed) -> None:
    create = ("create", "--dry-run=server", "-f", "-")
    done = installed.as_agent(*create, bound=False, input=slice_of(installed.node.name))
    assert done.returncode != 0
    assert "names no node" in done.stderr
