"""A cluster with one real GPU node for stories of the node agent: our scheduler, kubelet, containerd, fake GPUs.

`opened` starts all of it on a control plane of its own. The agent runs as the chart's service account, with a token of
its node and exactly the chart's rights; containers get NVIDIA's own CDI hook. Pods come from the files of
examples/node, with the one image that the node has.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dovetail.devcluster.fake_gpus import hardware_state
from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.install import chart
from tests.nvidia import programs
from tests.support import cluster, gpu_node, live
from tests.support.waiting import wait_until

EXAMPLES: Final = live.ROOT / "examples" / "node"
AGENT_ACCOUNT: Final = "dovetail-node-agent"
AGENT_KINDS: Final = (
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "DeviceClass",
)
DRIVER: Final = "gpu.nvidia.com"
GPUS: Final = 2

Tree = dict[str, Any]


class Geometry(msgspec.Struct, frozen=True):
    """How a GPU is set up: what a claim may change and must put back."""

    mig_mode: int
    compute_mode: int
    time_slice: int
    gpu_instances: tuple[hardware_state.GpuInstance, ...]


class GpuCluster:
    """One cluster, its one node, and the verbs of the stories."""

    def __init__(self, place: live.Live, node: gpu_node.GpuNode) -> None:
        self.live = place
        self.plane = place.plane
        self.node = node

    @property
    def hardware(self) -> Hardware:
        """The GPUs of the node."""
        assert self.node.hardware is not None
        return self.node.hardware

    # ---- the agent

    def start_agent(self, *options: str) -> None:
        """Starts the agent and waits until the node's devices are published."""
        self.node.start_agent(
            f"--kubeconfig={self._agent_kubeconfig()}",
            f"--nvidia-cdi-hook={self._hook()}",
            *options,
        )
        self.wait_for("the devices of the node", self.devices)

    def agent_log(self) -> str:
        """What all agents of the node have said."""
        return self.node.node.layout.log_of("node-agent").read_text(encoding="utf-8")

    # ---- what the API server has

    def devices(self) -> dict[str, Tree]:
        """The devices of the node's complete pool by name; empty while slices are missing."""
        slices = [
            tree
            for tree in cluster.get(self.plane, "resourceslices")["items"]
            if tree["spec"]["driver"] == DRIVER and tree["spec"].get("nodeName") == self.node.name
        ]
        newest = max((tree["spec"]["pool"]["generation"] for tree in slices), default=0)
        pool = [tree for tree in slices if tree["spec"]["pool"]["generation"] == newest]
        if not pool or len(pool) != pool[0]["spec"]["pool"]["resourceSliceCount"]:
            return {}
        listed = [device for tree in pool for device in tree["spec"].get("devices") or []]
        return {device["name"]: device for device in listed}

    def claims(self, namespace: str) -> list[Tree]:
        """The claims of a namespace."""
        return self.live.claims(namespace)

    def allocated(self, namespace: str) -> list[str]:
        """The devices that the claims of a namespace hold."""
        held = [live.devices_of(claim) for claim in self.claims(namespace)]
        return sorted(device for devices in held for _, _, device in devices)

    # ---- examples

    def apply_example(self, name: str) -> str:
        """Applies a file of examples/node with the node's image; returns its namespace."""
        documents = [runnable(tree) for tree in trees_of(EXAMPLES / name)]
        names = [tree["metadata"]["name"] for tree in documents if tree["kind"] == "Namespace"]
        (namespace,) = names
        cluster.apply(self.plane, documents, namespace=namespace)
        return str(namespace)

    def running(self, namespace: str, count: int = 1) -> dict[str, Tree]:
        """The pods of a namespace by name, once so many of them run."""

        def pods() -> list[Tree] | None:
            found = self.live.pods(namespace)
            phases = [pod["status"].get("phase") for pod in found]
            return found if phases == ["Running"] * count else None

        running = self.wait_for(f"{count} running pods in {namespace}", pods, namespace=namespace)
        return {pod["metadata"]["name"]: pod for pod in running}

    def view(self, pod: Tree, container: str = "main") -> gpu_node.View:
        """What a container of a running pod sees."""
        return self.node.container_view(pod, container)

    def delete_namespace(self, namespace: str) -> None:
        """Deletes a namespace and waits until it and its claims on the node are gone."""
        claims = [claim["metadata"]["uid"] for claim in self.claims(namespace)]
        cluster.kubectl(self.plane, "delete", "namespace", namespace, "--timeout=120s")
        self.wait_for(
            f"the end of the CDI files of {namespace}",
            lambda: not any(self.cdi_file(uid).exists() for uid in claims),
        )

    def cdi_file(self, claim_uid: str) -> Path:
        """Where the CDI spec of a prepared claim is."""
        return self.node.cdi / f"k8s.{DRIVER}-claim_{claim_uid}.yaml"

    # ---- the GPUs

    def geometry(self) -> tuple[Geometry, ...]:
        """How the GPUs are set up at this moment."""
        return tuple(geometry_of(gpu) for gpu in self.hardware.snapshot().gpus)

    # ---- waiting

    def wait_for(self, what: str, condition: Any, *, namespace: str | None = None) -> Any:
        """Waits for a condition; a failure shows pods, scheduler and agent."""

        def so_far() -> str:
            story = [f"agent:\n{self.agent_log()[-3000:]}"]
            if "dovetail" in self.live.ports:
                story.append(f"scheduler:\n{self.live.log()[-1500:]}")
            if namespace is not None:
                described = cluster.run_kubectl(self.plane, "describe", "pods", "-n", namespace)
                story.insert(0, described.stdout)
            return "\n".join(story)

        return wait_until(condition, what, pause=0.2, so_far=so_far)

    # ---- inside

    def _agent_kubeconfig(self) -> Path:
        """Of the agent's service account, with a token that names the node."""
        token = cluster.kubectl(
            self.plane,
            *("create", "token", AGENT_ACCOUNT, "-n", live.RELEASE.namespace),
            *("--bound-object-kind=Node", f"--bound-object-name={self.node.name}"),
            "--duration=24h",
        ).strip()
        return self.plane.write_kubeconfig(f"agent-{self.node.name}", token=token)

    def _hook(self) -> Path:
        """NVIDIA's hook program, where the node sees it."""
        hook = self.node.node.layout.home / "nvidia-cdi-hook"
        if not hook.exists():
            shutil.copy(programs.program("nvidia-cdi-hook"), hook)
        return hook


@contextlib.contextmanager
def opened(
    *agent_options: str, machine: str = "dgx-h100", gpus: int = GPUS
) -> Iterator[GpuCluster]:
    """A cluster whose scheduler leads and whose agent has published."""
    with live.private() as place:
        cluster.apply(place.plane, agent_objects(), namespace=live.RELEASE.namespace)
        with gpu_node.private_node(place.plane) as node:
            node.add_gpus(machine, gpus=gpus)
            place.schedule()
            gpu_cluster = GpuCluster(place, node)
            gpu_cluster.start_agent(*agent_options)
            place.wait_for("a scheduler that leads", place.leads)
            yield gpu_cluster


def agent_objects() -> list[Tree]:
    """What the chart installs for the agent, but the DaemonSet."""
    settings = ["image.repository=example", "nodeAgent.enabled=true"]
    installed = chart.objects(chart.values_of(settings=settings), live.RELEASE)
    return [tree for tree in installed if tree["kind"] in AGENT_KINDS]


def trees_of(file: Path) -> list[Tree]:
    """The objects of an example."""
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def runnable(tree: Mapping[str, Any]) -> Tree:
    """The object with the image that the node has, if it is a pod, and a quick end."""
    if tree["kind"] != "Pod":
        return dict(tree)
    containers = [
        container | {"image": gpu_node.IMAGE, "imagePullPolicy": "Never", "args": ["view"]}
        for container in tree["spec"]["containers"]
    ]
    spec = tree["spec"] | {"containers": containers, "terminationGracePeriodSeconds": 1}
    return {**tree, "spec": spec}


def geometry_of(gpu: hardware_state.GpuState) -> Geometry:
    """What a claim may change of a GPU."""
    return Geometry(gpu.mig_mode, gpu.compute_mode, gpu.time_slice, gpu.gpu_instances)
