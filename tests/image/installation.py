"""Installs the product from its chart on a node of the tests, with what the test machine forces upon it.

The objects are those of `dovetail install --dry-run`. `adapted` changes what a cluster of loopback addresses and fake
GPUs needs, and nothing else:

- The API server listens on loopback alone and there is no kube-proxy: pods use the node's network, and environment
  variables say where the API server is. The scheduler and the dashboard serve on loopback too.
- The fake driver keeps its state in files: the agent mounts them, and is given its /sys and /proc.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import yaml

from dovetail.devcluster import control_plane, free_ports
from dovetail.devcluster.fake_gpus import hardware
from tests.cli import running
from tests.support import cluster, gpu_node, product_image
from tests.support.waiting import wait_until

NAME: Final = "dovetail"
NAMESPACE: Final = "dovetail-system"
SCHEDULER: Final = f"{NAME}-scheduler"
AGENT: Final = f"{NAME}-node-agent"
DASHBOARD: Final = f"{NAME}-dashboard"
SERVED_POLICY: Final = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

Tree = dict[str, Any]


def namespace_with_account(plane: control_plane.ControlPlane) -> str:
    """A new namespace in which pods may be created: its default service account exists."""
    namespace = cluster.fresh_namespace(plane)
    account = ("get", "serviceaccount", "default", "-n", namespace)
    wait_until(
        lambda: cluster.run_kubectl(plane, *account).returncode == 0,
        f"the service account of {namespace}",
    )
    return namespace


def install(node: gpu_node.GpuNode, gpus: hardware.Hardware, *, cdi_hook: str) -> None:
    """Applies the chart's objects for this node."""
    trees = [adapted(tree, node, gpus) for tree in printed(node, gpus, cdi_hook=cdi_hook)]
    cluster.kubectl(node.plane, "create", "namespace", NAMESPACE)
    definitions = [tree for tree in trees if tree["kind"] == "CustomResourceDefinition"]
    others = [tree for tree in trees if tree["kind"] != "CustomResourceDefinition"]
    cluster.apply(node.plane, definitions)
    names = [f"crd/{tree['metadata']['name']}" for tree in definitions]
    cluster.kubectl(node.plane, "wait", "--for=condition=Established", *names)
    cluster.apply(node.plane, others, namespace=NAMESPACE)


def printed(node: gpu_node.GpuNode, gpus: hardware.Hardware, *, cdi_hook: str) -> list[Tree]:
    """What `dovetail install --dry-run` prints for one scheduler, one agent and one dashboard on this node."""
    repository, _, tag = product_image.NAME.rpartition(":")
    here = f"{{kubernetes.io/hostname: {node.name}}}"
    settings = (
        f"image.repository={repository}",
        f"image.tag={tag}",
        "image.pullPolicy=Never",
        "replicas=1",
        f"port={free_ports.reserve()}",
        f"nodeSelector={here}",
        "nodeAgent.enabled=true",
        f"nodeAgent.nodeSelector={here}",
        f"nodeAgent.driverRoot={gpus.driver_root}",
        f"nodeAgent.cdiHook={cdi_hook}",
        "dashboard.enabled=true",
        f"dashboard.port={free_ports.reserve()}",
        f"dashboard.nodeSelector={here}",
    )
    options = [part for setting in settings for part in ("--set", setting)]
    where = ["--name", NAME, "--namespace", NAMESPACE, "--api-versions", SERVED_POLICY]
    run = running.inside(node.plane.directory, "install", "--dry-run", *where, *options)
    assert run.code == 0, run.err
    return [tree for tree in yaml.safe_load_all(run.out) if tree]


def adapted(tree: Tree, node: gpu_node.GpuNode, gpus: hardware.Hardware) -> Tree:
    """An object of the chart as this machine can run it."""
    tree = copy.deepcopy(tree)
    if tree["kind"] == "ConfigMap":
        text = tree["data"]["scheduler.yaml"]
        assert "address: 0.0.0.0" in text
        tree["data"]["scheduler.yaml"] = text.replace("address: 0.0.0.0", "address: 127.0.0.1")
    if tree["kind"] in {"Deployment", "DaemonSet"}:
        spec = tree["spec"]["template"]["spec"]
        spec["hostNetwork"] = True
        (container,) = spec["containers"]
        container.setdefault("env", []).extend(_api_server(node.plane))
        if tree["metadata"]["name"] == DASHBOARD:
            container["args"].remove("--address=0.0.0.0")
            container["args"].append("--address=127.0.0.1")
    if tree["kind"] == "DaemonSet":
        _add_fake_driver(tree["spec"]["template"]["spec"], gpus)
    return tree


def _api_server(plane: control_plane.ControlPlane) -> list[Tree]:
    return [
        {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(plane.port)},
    ]


def _add_fake_driver(spec: Tree, gpus: hardware.Hardware) -> None:
    (agent,) = spec["containers"]
    agent["args"] += [f"--sysfs-root={gpus.sysfs_root}", f"--proc-root={gpus.proc_root}"]
    agent["env"].append({"name": hardware.HOME_VARIABLE, "value": str(gpus.home)})
    agent["volumeMounts"].append({"name": "fake-driver", "mountPath": str(gpus.home)})
    files = {"path": str(gpus.home), "type": "Directory"}
    spec["volumes"].append({"name": "fake-driver", "hostPath": files})
