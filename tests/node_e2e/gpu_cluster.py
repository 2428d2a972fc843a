"""A cluster with one real GPU node for stories of the node agent: our scheduler, kubelet, containerd, fake GPUs.

`opened` starts all of it on a control plane of its own. Scheduler and agent run with exactly the chart's rights, and
containers get NVIDIA's own CDI hook. Pods come from the files of examples/node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dovetail.devcluster.fake_gpus import hardware_state
from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.install import chart
from tests.node.nvml.conftest import require_compiler
from tests.nvidia import programs
from tests.support import cluster, gpu_node, live
from tests.support.waiting import wait_until

EXAMPLES: Final = live.ROOT / "examples" / "node"
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
        self.node.start_agent(*options)
        self.wait_for("the devices of the node", self.devices)

    def agent_log(self) -> str:
        """What all agents of the node have said."""
        return self.node.node.layout.log_of("node-agent").read_text(encoding="utf-8")

    # ---- what the API server has

    def devices(self) -> dict[str, Tree]:
        """The devices of the node's complete pool by name; empty while slices are missing."""
        slices = [
            tree
            for tree in self.live.rest.list("resourceslices")
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
        """Applies a file of examples/node as a user would; returns its namespace."""
        (namespace,) = [
            tree["metadata"]["name"] for tree in trees_of(name) if tree["kind"] == "Namespace"
        ]
        cluster.kubectl(self.plane, "apply", "-f", str(EXAMPLES / name))
        return str(namespace)

    def running(self, namespace: str, count: int = 1) -> dict[str, Tree]:
        """The pods of a namespace by name, once so many of them run."""

        def pods() -> list[Tree] | None:
            found = self.live.pods(namespace)
            phases = [pod["status"].get("phase") for pod in found]
            return found if phases == ["Running"] * count else None

        running = self.wait_for(f"{count} running pods in {namespace}", pods, namespace=namespace)
        return {pod["metadata"]["name"]: pod for pod in running}

    def is_unschedulable(self, namespace: str, pod: str) -> bool:
        """Whether the scheduler gave a pod a reason why it waits."""
        status = self.live.rest.read("pods", pod, namespace)["status"]
        return any(
            condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
            for condition in status.get("conditions", [])
        )

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


@contextlib.contextmanager
def opened(
    *agent_options: str, machine: str = "dgx-h100", gpus: int = GPUS
) -> Iterator[GpuCluster]:
    """A cluster whose scheduler leads and whose agent has published. Skips where its parts cannot be built."""
    gpu_node.need_node()
    require_compiler()
    programs.program("nvidia-cdi-hook")
    with live.private() as place:
        cluster.apply(place.plane, device_classes())
        with gpu_node.private_node(place.plane) as node:
            node.add_gpus(machine, gpus=gpus)
            place.schedule()
            gpu_cluster = GpuCluster(place, node)
            gpu_cluster.start_agent(*agent_options)
            place.wait_for("a scheduler that leads", place.leads)
            yield gpu_cluster


def device_classes() -> list[Tree]:
    """Those that the chart installs with the agent."""
    settings = ["image.repository=example", "nodeAgent.enabled=true"]
    installed = chart.objects(chart.values_of(settings=settings), live.RELEASE)
    return [tree for tree in installed if tree["kind"] == "DeviceClass"]


def trees_of(example: str) -> list[Tree]:
    """The objects of a file of examples/node."""
    return list(yaml.safe_load_all((EXAMPLES / example).read_text(encoding="utf-8")))


def pod_of(example: str) -> Tree:
    """The one pod of a file of examples/node."""
    (pod,) = [tree for tree in trees_of(example) if tree["kind"] == "Pod"]
    return pod


def geometry_of(gpu: hardware_state.GpuState) -> Geometry:
    """What a claim may change of a GPU."""
    return Geometry(gpu.mig_mode, gpu.compute_mode, gpu.time_slice, gpu.gpu_instances)
