"""A small cluster in memory with the live loop running on it, in simulated time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.kubetypes.resource import claims
from dovetail.live.cycle import scheduler_loop
from dovetail.live.evict import disruption_limits
from dovetail.live.informer import consistency, informer
from dovetail.model import gangs, policy
from dovetail.ports import meter, tracing
from dovetail.schedule import decide as cycle
from dovetail.sim import virtual_clock
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.server import api_server
from dovetail.world.owners import gang_builder
from dovetail.world.world import World

NAME = "dovetail"
NATIVE = (registry.POD_GROUP,)
Tree = dict[str, Any]


class GroupFeed:
    """Passes events of native groups to a gang builder at once."""

    def __init__(self, book: gang_builder.GangBuilder) -> None:
        self._book = book

    def replaced(self, kind: registry.Kind, objects: Iterable[Any], resource_version: str) -> None:
        present = set()
        for result in objects:
            present.add((kind.name, result.metadata.namespace, result.metadata.name))
            self._book.changed(kind, result)
        self._book.finish_list(kind.name, present)

    def changed(self, kind: registry.Kind, result: Any) -> None:
        self._book.changed(kind, result)

    def deleted(self, kind: registry.Kind, result: Any) -> None:
        self._book.deleted(kind, result)


class Stage:
    """The cluster, its clock, and one tenure of the scheduler at a time."""

    def __init__(
        self, *, nodes: int = 2, gpus: int = 2, mig: bool = False, is_shareable: bool = False
    ) -> None:
        self.clock = virtual_clock.VirtualClock()
        self.api = api_server.SimApi(self.clock)
        gpu = "A100-SXM4-80GB" if mig else "H100-SXM5-80GB"
        pool = fleet_spec.Pool(
            name="n",
            count=nodes,
            gpu=gpu,
            gpus_per_node=gpus,
            mig=mig,
            shares=fleet_spec.SHARED_MEMORY if is_shareable else None,
        )
        self.publish(pool)
        self.tracer: tracing.Tracer = tracing.NoTracer()
        self.meter: meter.Meter = meter.NoMeter()
        self.scheduler: scheduler_loop.Scheduler | None = None
        self.ended: BaseException | None = None

    def publish(self, pool: fleet_spec.Pool) -> None:
        """Adds the nodes and devices of a pool, and the classes of devices."""
        has_classes = any(self.api.all(registry.DEVICE_CLASS))
        known = {"Namespace", "DeviceClass"} if has_classes else {"Namespace"}
        for tree in fleet_objects.objects_of(fleet_spec.Fleet(name="stage", pools=(pool,))):
            if tree["kind"] not in known:
                self.api.put(tree)

    @contextlib.asynccontextmanager
    async def scheduling(self, **settings: Any) -> AsyncIterator[scheduler_loop.Scheduler]:
        """A scheduler from a fresh list until the end of the block."""
        decide = settings.pop("decide", cycle.decide)
        limits = settings.pop("limits", disruption_limits.no_budgets)
        memory = settings.pop("relapses_", None)
        tree: dict[str, Any] = {
            "policy": policy.Policy(scheduler_names=(NAME,)),
            "audit_seconds": 1.0,
        } | settings
        seen = informer.Informer(
            World(), self.clock, (*registry.WATCHED, *registry.OURS, gangs.KIND)
        )
        pump = asyncio.create_task(seen.pump())
        self.feeds = {
            kind.name: self.api.follow(
                kind, informer.Feed(seen, kind, trouble=lambda kind, why: None)
            )
            for kind in (*registry.WATCHED, *registry.OURS)
        }
        book = self.book = gang_builder.GangBuilder(
            seen
        )  # tests pass it owners that the API in memory does not serve
        for kind in NATIVE:
            ear = informer.Feed(GroupFeed(book), kind, trouble=lambda kind, why: None)
            self.feeds[kind.name] = self.api.follow(kind, ear)
        seen.replaced(gangs.KIND, book.all_gangs(), "")
        scheduler = scheduler_loop.Scheduler(
            seen,
            self.api,
            clock=self.clock,
            meter_=self.meter,
            settings=scheduler_loop.Settings(**tree),
            tracer=self.tracer,
            list_intents=self._begun,
            limits=limits,
            decide=decide,
            backoff=memory,
        )
        self.scheduler = scheduler
        task = asyncio.create_task(scheduler.run())
        await self.pass_time(0)
        try:
            yield scheduler
        finally:
            if task.done() and not task.cancelled():
                self.ended = task.exception()
            task.cancel()
            pump.cancel()
            await asyncio.gather(task, pump, return_exceptions=True)
            for feed in self.feeds.values():
                feed.end()

    async def pass_time(self, seconds: float = 2.0, *, settle: bool = True) -> None:
        """Lets time pass in small steps; controllers act after each."""
        steps = max(1, int(seconds / 0.25))
        for _ in range(steps):
            await self.clock.advance(seconds / steps)
            if settle and self.api.settle():
                await self.clock.advance(0)

    def template(self, name: str, *, profile: str = "", count: int = 1) -> None:
        """A claim template for whole GPUs or for MIG slices."""
        self.api.put(
            _object("ResourceClaimTemplate", name, {"spec": {"spec": _spec(profile, count)}})
        )

    def claim(self, name: str, *, profile: str = "", count: int = 1) -> None:
        """A claim to share."""
        self.api.put(_object("ResourceClaim", name, {"spec": _spec(profile, count)}))

    def pod(
        self,
        name: str,
        *,
        templates: tuple[str, ...] = (),
        named: tuple[str, ...] = (),
        **spec: Any,
    ) -> None:
        """A pod that uses claims."""
        entries = [
            {"name": f"t{n}", "resourceClaimTemplateName": one} for n, one in enumerate(templates)
        ]
        entries += [{"name": f"c{n}", "resourceClaimName": one} for n, one in enumerate(named)]
        resources = spec.pop("resources", {"requests": {"cpu": "1"}})
        container = {"name": "main", "image": "x", "resources": resources}
        labels, annotations, made_by = (
            spec.pop("labels", {}),
            spec.pop("annotations", {}),
            spec.pop("job", ""),
        )
        body = {"schedulerName": NAME, "containers": [container], "resourceClaims": entries} | spec
        tree = _object("Pod", name, {"spec": body})
        tree["metadata"] |= {"labels": labels, "annotations": annotations}
        if made_by:
            owner = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": made_by,
                "uid": made_by,
                "controller": True,
            }
            tree["metadata"]["ownerReferences"] = [owner]
        self.api.put(tree)

    def queue(self, name: str, **spec: Any) -> None:
        """A queue that every namespace may use."""
        head = {
            "apiVersion": registry.QUEUE.api_version,
            "kind": "Queue",
            "metadata": {"name": name},
        }
        self.api.put(head | {"spec": {"namespaceSelector": {}} | spec})

    def group(
        self, name: str, *, least: int | None = None, claims: Iterable[Tree] = (), **spec: Any
    ) -> None:
        """A native group; without a minimum its pods start singly."""
        how: Tree = {"basic": {}} if least is None else {"gang": {"minCount": least}}
        tree = _object(
            "PodGroup",
            name,
            {"spec": {"schedulingPolicy": how, "resourceClaims": list(claims)} | spec},
        )
        self.api.put(tree | {"apiVersion": registry.POD_GROUP.api_version})

    def gang(
        self, name: str, size: int, *, least: int | None = None, only: int | None = None, **pod: Any
    ) -> list[str]:
        """Pods that start together, or one of them; their names."""
        names = [f"{name}-{number}" for number in range(size) if only in (None, number)]
        labels = {gangs.GANG_LABEL: name, gangs.MIN_LABEL: str(size if least is None else least)}
        for item in names:
            self.pod(item, labels=labels, **pod)
        return names

    async def _begun(self) -> list[intents.Intent]:
        return self.intents()

    def intents(self) -> list[intents.Intent]:
        return list(self.api.all(registry.INTENT))

    def label(self, name: str, **labels: str) -> None:
        """A pod's labels become these."""
        tree = self.api.tree(registry.POD, name, namespace="default")
        tree["metadata"]["labels"] = labels
        self.api.shelf.put(registry.POD, tree)

    def take(
        self, claim: str, device: tuple[str, str], *, same: bool = False, uid: str = "rival-uid"
    ) -> None:
        """Another writer stores an allocation: the same device, or the other one of the node."""
        pool, name = device
        other = name if same else ("gpu-1" if name == "gpu-0" else "gpu-0")
        tree = self.api.tree(registry.CLAIM, claim, namespace="default")
        node = {"key": "metadata.name", "operator": "In", "values": [pool]}
        result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": pool, "device": other}
        tree["status"] = {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [node]}]},
            },
            "reservedFor": [{"resource": "pods", "name": "rival", "uid": uid}],
        }
        self.api.shelf.put(registry.CLAIM, tree)

    def the_pod(self, name: str) -> pods.Pod:
        pod: pods.Pod = self.api.find(registry.POD, name, namespace="default")
        return pod

    def node_of(self, name: str) -> str:
        return self.the_pod(name).spec.node_name

    def claims(self) -> list[claims.ResourceClaim]:
        return list(self.api.all(registry.CLAIM))

    def devices(self) -> list[tuple[str, str]]:
        """Every allocated device, once per claim that holds it."""
        return sorted(
            (result.pool, result.device)
            for claim in self.claims()
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
            if not result.admin_access
        )

    def events(self, reason: str) -> list[Any]:
        return [item for item in self.api.all(registry.EVENT) if item.reason == reason]

    def differences(self) -> tuple[str, ...]:
        """How the live World differs from a rebuilt one."""
        assert self.scheduler is not None
        facts = [
            item for kind in (*registry.WATCHED, *registry.OURS) for item in self.api.all(kind)
        ]
        return consistency.differences(self.scheduler.world, facts)

    async def delete(self, name: str, *, grace_seconds: int | None = None) -> None:
        """Deletes a pod."""
        self.api.shelf.delete(registry.POD, ("default", name), grace_seconds=grace_seconds)
        await self.pass_time(0.5)


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Runs a story to its end."""
    asyncio.run(_awaited(story))


async def _awaited(story: Callable[[], Awaitable[None]]) -> None:
    await story()


def _spec(profile: str, count: int) -> Tree:
    tree: Tree = {
        "deviceClassName": "mig.nvidia.com" if profile else "gpu.nvidia.com",
        "count": count,
    }
    if profile:
        tree["selectors"] = [
            {"cel": {"expression": f"device.attributes['gpu.nvidia.com'].profile == '{profile}'"}}
        ]
    return {"devices": {"requests": [{"name": "gpu", "exactly": tree}]}}


def _object(kind: str, name: str, body: Tree) -> Tree:
    version = "v1" if kind == "Pod" else "resource.k8s.io/v1"
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        **body,
    }
