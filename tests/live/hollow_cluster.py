"""Hollow nodes in memory: an API server, a clock, hollow kubelets that watch it, and verbs for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from dovetail.hollow import hollow_kubelets, node_marks, pod_stages
from dovetail.kubetypes import registry
from dovetail.kubetypes.resource import claims
from dovetail.ports.api import Target
from dovetail.sim.server import watchers
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.virtual_clock import VirtualClock, rest

Tree = dict[str, Any]


class HollowCluster:
    """One cluster with hollow kubelets. Nodes and pods by name, in namespace default."""

    def __init__(self, walk: pod_stages.Stages = pod_stages.DEFAULT, **options: Any) -> None:
        self.clock = VirtualClock()
        self.api = SimApi(self.clock)
        self.writes: list[str] = []
        self.kubelets = hollow_kubelets.HollowKubelets(
            self.api, self.clock, let_go=self._let_go, stages=walk, **options
        )
        self.feeds: dict[str, watchers.Subscription] = {}
        self.api.before = lambda verb, target: self.writes.append(f"{verb} {target}")

    async def _let_go(self, target: Target, uid: str) -> None:
        await self.api.delete(target, uid=uid, grace_seconds=0)

    @contextlib.asynccontextmanager
    async def running_kubelets(self) -> AsyncIterator[None]:
        """Runs the hollow kubelets for as long as the block lasts."""
        for kind in hollow_kubelets.WATCHED:
            self.feeds[kind.name] = self.api.follow(kind, self.kubelets.feed(kind))
        task = asyncio.create_task(self.kubelets.run())
        await rest()
        try:
            yield
        finally:
            for feed in self.feeds.values():
                feed.end()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def passes(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await rest()

    # What others do

    def node(
        self, name: str = "n1", *, hollow: bool = True, has: dict[str, str] | None = None
    ) -> None:
        notes = {node_marks.HOLLOW: "true"} if hollow else {}
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "annotations": notes},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": has or {},
                },
            }
        )

    async def marks(self, name: str, **annotations: str | None) -> None:
        await self._patch(
            Target(registry.NODE, "", name), {"metadata": {"annotations": annotations}}
        )

    async def unready(self, name: str) -> None:
        """What the node lifecycle controller writes of a node it has not heard of."""
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        await self._patch(
            Target(registry.NODE, "", name, "status"), {"status": {"conditions": [condition]}}
        )

    def pod(self, name: str = "p", *, spec: Tree | None = None, **metadata: Any) -> None:
        body = {"containers": [{"name": "main", "image": "none"}], **(spec or {})}
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, **metadata},
                "spec": body,
            }
        )

    def wants(self, *names: str) -> Tree:
        return {
            "resourceClaims": [
                {"name": f"c{i}", "resourceClaimName": name} for i, name in enumerate(names)
            ]
        }

    def claim(self, name: str, *, owner: str = "") -> None:
        """A claim, made for a pod if it is said for which."""
        owners = []
        if owner:
            uid = self.api.find(registry.POD, owner, namespace="default").metadata.uid
            owners = [
                {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": uid, "controller": True}
            ]
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        self.api.put(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "ownerReferences": owners},
                "spec": {"devices": {"requests": [request]}},
            }
        )

    async def allocate(
        self, name: str, *users: str, device: str = "gpu-0", node: str = "n1", **result: Any
    ) -> None:
        """Gives a claim a device of the node and reserves it, as a scheduler would."""
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        given = {
            "request": "gpu",
            "driver": "gpu.nvidia.com",
            "pool": node,
            "device": device,
            **result,
        }
        outcome = [self.api.find(registry.POD, user, namespace="default") for user in users]
        reserved = [
            {"resource": "pods", "name": item.metadata.name, "uid": item.metadata.uid}
            for item in outcome
        ]
        status = {
            "allocation": {
                "devices": {"results": [given]},
                "nodeSelector": {"nodeSelectorTerms": [term]},
            },
            "reservedFor": reserved,
        }
        target = Target(registry.CLAIM, "default", name)
        await self._patch(
            target, {"metadata": {"finalizers": [claims.DELETE_PROTECTION_FINALIZER]}}
        )
        await self._patch(target._replace(subresource="status"), {"status": status})

    async def bind(self, pod: str = "p", node: str = "n1") -> None:
        body = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        await self.api.create(
            Target(registry.POD, "default", pod, "binding"), msgspec.json.encode(body)
        )
        await rest()

    async def delete_pod(self, pod: str = "p") -> None:
        await self.api.delete(Target(registry.POD, "default", pod))
        await rest()

    async def _patch(self, target: Target, change: Tree) -> None:
        await self.api.patch(target, msgspec.json.encode(change))
        await rest()

    # What is seen

    def phase(self, pod: str = "p") -> str:
        result = self.api.find(registry.POD, pod, namespace="default")
        return "gone" if result is None else str(result.status.phase)

    def tree(self, pod: str = "p") -> Tree:
        return self.api.tree(registry.POD, pod, namespace="default")

    def conditions(self, pod: str = "p") -> dict[str, str]:
        return {
            item["type"]: item["status"] for item in self.tree(pod)["status"].get("conditions", ())
        }

    def renewed(self, node: str = "n1") -> str | None:
        lease = self.api.find(registry.LEASE, node, namespace="kube-node-lease")
        return None if lease is None else str(lease.spec.renew_time)

    def is_ready(self, node: str = "n1") -> bool:
        result = self.api.find(registry.NODE, node)
        return any(
            condition.type == "Ready" and condition.status == "True"
            for condition in result.status.conditions
        )

    @property
    def violations(self) -> list[tuple[str, str]]:
        return [(violation.pod, violation.code) for violation in self.kubelets.violations]


def run_story(hollow: HollowCluster, story: Callable[[HollowCluster], Awaitable[None]]) -> None:
    """Runs a story while the hollow kubelets run."""

    async def main() -> None:
        async with hollow.running_kubelets():
            await story(hollow)

    asyncio.run(main())
