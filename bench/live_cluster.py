"""The cluster of the live benchmark: a real control plane, nodes that are plain objects, GPUs in use, pods that wait.

Given programs and a size; makes nodes and slices, fills a share of the GPUs with claims that hold them, makes pods
with a claim each, and takes them away again. Never schedules. Pods stay bound and pending: there is no kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dovetail.devcluster import control_plane, dev_cluster, kube_binaries, processes
from dovetail.kube.auth import client_config
from dovetail.kube.http import paths, transport
from dovetail.kubetypes import registry
from dovetail.kubetypes.resource import claims
from dovetail.ports import api
from dovetail.sim.fleet import fleet_objects

GPUS_PER_NODE = 8
WRITERS = 32  # requests of ours under way while a run is prepared
WORK, FILL, CROWD = "work", "fill", "crowd"  # namespaces
SCHEDULER_NAME = "default-scheduler"  # one name for all: the pods of every run are the same
SELECTOR = "device.attributes['gpu.nvidia.com'].architecture == 'Hopper'"
SEED = 20261
MERGE_PATCH = "application/merge-patch+json"
# Nodes have no kubelet that reports them alive: what would evict their pods for it stays off.
CONTROLLERS = "--controllers=*,-node-lifecycle-controller"

Tree = dict[str, Any]


class Gpu(NamedTuple):
    """One device by where it is."""

    node: str
    driver: str
    device: str


class Cluster:
    """A control plane with a fleet, and an admin's connection to it."""

    def __init__(
        self, plane: control_plane.ControlPlane, controllers: int, over: transport.Transport
    ) -> None:
        self.plane = plane
        self.over = over
        self.gpus: list[Gpu] = []  # in the order they are filled
        self.held = 0  # devices that are in use between runs
        self.pids = {**plane.pids, kube_binaries.CONTROLLER_MANAGER: controllers}

    @property
    def free(self) -> list[Gpu]:
        """The devices that no claim holds between runs."""
        return self.gpus[self.held :]

    async def populate(self, nodes: int) -> None:
        """Makes nodes, slices and classes. Which GPUs are filled first is random, the same in every run."""
        trees = fleet_objects.objects_of(dev_cluster.sized_fleet(nodes))
        spaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in (WORK, FILL, CROWD)
        ]
        found: dict[str, list[Tree]] = {}
        for tree in [*(tree for tree in trees if tree["kind"] != "Namespace"), *spaces]:
            found.setdefault(tree["kind"], []).append(tree)
        known = (registry.NAMESPACE, registry.DEVICE_CLASS, registry.NODE, registry.SLICE)
        for kind in known:
            await self.create(kind, found[kind.name])
        self.gpus = sorted(
            Gpu(tree["spec"]["nodeName"], tree["spec"]["driver"], device["name"])
            for tree in found["ResourceSlice"]
            for device in tree["spec"]["devices"]
        )
        random.Random(SEED).shuffle(self.gpus)

    async def fill(self, percent: int) -> None:
        """Creates claims without pods that hold devices, up to this share of all GPUs. Never removes any."""
        wanted = len(self.gpus) * percent // 100
        by_node: dict[str, list[Gpu]] = {}
        for gpu in self.gpus[self.held : wanted]:
            by_node.setdefault(gpu.node, []).append(gpu)
        held = {f"{FILL}-{percent}-{node}": gpus for node, gpus in by_node.items()}
        await self.create(
            registry.CLAIM,
            [claim_tree(FILL, name, count=len(gpus), held=True) for name, gpus in held.items()],
        )
        await self.each(
            self._allocate(FILL, name, allocation_tree(gpus)) for name, gpus in held.items()
        )
        self.held = wanted

    async def crowd(
        self, pods_per_node: int, gpu_pods_per_node: int, *, scheduler: str = SCHEDULER_NAME
    ) -> None:
        """Bound pods on every node, some of them with a GPU each."""
        by_node: dict[str, list[Gpu]] = {}
        for gpu in self.gpus:
            by_node.setdefault(gpu.node, []).append(gpu)
        pods: list[Tree] = []
        held: dict[str, list[Gpu]] = {}
        for node, gpus in by_node.items():
            for number in range(pods_per_node):
                name = f"{node}-{number}"
                has_gpu = number < gpu_pods_per_node
                pods.append(
                    pod_tree(CROWD, name, node=node, has_claim=has_gpu, scheduler=scheduler)
                )
                if has_gpu:
                    held[name] = [gpus[number]]
        await self.create(registry.CLAIM, [claim_tree(CROWD, name, held=True) for name in held])
        uids = dict(
            zip(
                [pod["metadata"]["name"] for pod in pods],
                await self.create(registry.POD, pods),
                strict=True,
            )
        )
        await self.each(
            self._allocate(CROWD, name, allocation_tree(gpus), user=(name, uids[name]))
            for name, gpus in held.items()
        )
        self.held = len(held)

    async def make_work(self, count: int) -> None:
        """Pods that wait, each with a claim of its own."""
        names = [work_name(number) for number in range(count)]
        await self.create(registry.CLAIM, [claim_tree(WORK, name) for name in names])
        await self.create(registry.POD, [pod_tree(WORK, name) for name in names])

    async def clear_work(self) -> None:
        """Takes pods and claims away at once, claims first: no controller then releases devices of a deleted pod."""
        held = await self.listed(registry.CLAIM, WORK)
        await self.each(self._drop_claim(one["metadata"]["name"]) for one in held)
        await self.each(
            self._drop_pod(one["metadata"]["name"]) for one in await self.listed(registry.POD, WORK)
        )
        assert not await self.listed(registry.CLAIM, WORK), "claims are left"
        assert not await self.listed(registry.POD, WORK), "pods are left"

    async def create(self, kind: registry.Kind, trees: list[Tree]) -> list[str]:
        """Creates objects; what is there already may stay. Their uids."""

        async def one(tree: Tree) -> str:
            path = paths.collection(kind, tree["metadata"].get("namespace", ""))
            answer = await self.over.request(
                "POST", path, body=msgspec.json.encode(tree), timeout=60
            )
            if answer.status == 409:
                return ""
            return str(msgspec.json.decode(checked(answer, path))["metadata"]["uid"])

        return await self.each(one(tree) for tree in trees)

    async def listed(self, kind: registry.Kind, namespace: str = "") -> list[Tree]:
        """All objects of a kind."""
        path = paths.collection(kind, namespace)
        body = checked(await self.over.request("GET", path, timeout=60), path)
        found: list[Tree] = msgspec.json.decode(body)["items"] or []
        return found

    async def each(self, works: Iterable[Any]) -> list[Any]:
        """Everything done, so many at a time."""
        slots = asyncio.Semaphore(WRITERS)

        async def one(work: Any) -> Any:
            async with slots:
                return await work

        return list(await asyncio.gather(*map(one, works)))

    async def _allocate(
        self, namespace: str, name: str, allocation: Tree, *, user: tuple[str, str] | None = None
    ) -> None:
        status: Tree = {"allocation": allocation}
        if user is not None:
            status["reservedFor"] = [{"resource": "pods", "name": user[0], "uid": user[1]}]
        await self._patch(api.Target(registry.CLAIM, namespace, name, "status"), {"status": status})

    async def _drop_claim(self, name: str) -> None:
        target = api.Target(registry.CLAIM, WORK, name)
        await self._patch(target, {"metadata": {"finalizers": None}})
        await self._delete(target)

    async def _drop_pod(self, name: str) -> None:
        await self._delete(api.Target(registry.POD, WORK, name))

    async def _patch(self, target: api.Target, patch: Tree) -> None:
        path = paths.of(target)
        body = msgspec.json.encode(patch)
        checked(
            await self.over.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout=60),
            path,
        )

    async def _delete(self, target: api.Target) -> None:
        path = paths.of(target)
        answer = await self.over.request(
            "DELETE", path, body=b'{"gracePeriodSeconds":0}', timeout=60
        )
        if answer.status != 404:
            checked(answer, path)


@contextlib.asynccontextmanager
async def started(nodes: int, *, directory: Path, say: control_plane.Say) -> AsyncIterator[Cluster]:
    """A cluster of so many nodes, and nothing of it afterwards."""
    plane = control_plane.start(kube_binaries.binaries(say=say), directory, say=say)
    try:
        plane.terminate(kube_binaries.CONTROLLER_MANAGER)
        command = [*plane.layout.command(kube_binaries.CONTROLLER_MANAGER), CONTROLLERS]
        controllers = processes.start(command, log=plane.log_of("controllers"), is_tethered=True)
        try:
            async with transport.Transport(
                client_config.load(str(plane.kubeconfig)), concurrency=WRITERS
            ) as over:
                cluster = Cluster(plane, controllers.pid, over)
                await cluster.populate(nodes)
                yield cluster
        finally:
            controllers.kill()
            controllers.wait()
    finally:
        plane.stop(graceful=False)


def work_name(number: int) -> str:
    """The name of a waiting pod and of its claim."""
    return f"w-{number:05d}"


def claim_tree(namespace: str, name: str, *, count: int = 1, held: bool = False) -> Tree:
    """A claim for GPUs of the class, by one more selector. One that will be held is protected from the start."""
    wanted: Tree = {
        "deviceClassName": "gpu.nvidia.com",
        "selectors": [{"cel": {"expression": SELECTOR}}],
    }
    if count != 1:
        wanted["count"] = count
    metadata: Tree = {"name": name, "namespace": namespace}
    if held:
        metadata["finalizers"] = [claims.DELETE_PROTECTION_FINALIZER]
    return {
        "apiVersion": registry.CLAIM.api_version,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": wanted}]}},
    }


def pod_tree(
    namespace: str,
    name: str,
    *,
    node: str = "",
    has_claim: bool = True,
    scheduler: str = SCHEDULER_NAME,
) -> Tree:
    """A pod of one container; bound where a node is given."""
    resources: Tree = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec: Tree = {"schedulerName": scheduler, "automountServiceAccountToken": False}
    if has_claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
        resources["claims"] = [{"name": "gpu"}]
    if node:
        spec["nodeName"] = node
    spec["containers"] = [{"name": "main", "image": "example.com/train:1", "resources": resources}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def allocation_tree(gpus: list[Gpu]) -> Tree:
    """These devices for a claim's only request."""
    nodes = sorted({gpu.node for gpu in gpus})
    field = {"key": "metadata.name", "operator": "In", "values": nodes}
    results = [
        {"request": "gpu", "driver": gpu.driver, "pool": gpu.node, "device": gpu.device}
        for gpu in gpus
    ]
    return {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def checked(answer: transport.Answer, path: str) -> bytes:
    """The body of an answer that must be a success."""
    if not answer.is_success:
        raise RuntimeError(f"{path}: {answer.status} {answer.body[:400].decode(errors='replace')}")
    return answer.body
