"""A cluster in virtual time in which changes are really made: server, controllers, scheduler and hollow kubelets.

Nodes, queues and work are changed through the API server as people and their tools change them: nodes are cordoned and
their pods evicted, Jobs deleted, manifests created. The controllers create pods again, the live scheduler places them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import msgspec

from dovetail.answer.replica import replica
from dovetail.answer.what_if import changes, effect
from dovetail.kubetypes import codec, object_set, registry
from dovetail.live.cycle import scheduler_loop
from dovetail.live.gangs import owner_watch
from dovetail.live.informer import informer
from dovetail.model import gangs, policy
from dovetail.ports.api import Target
from dovetail.sim import virtual_run, workload_store
from dovetail.sim.timed_jobs import SCHEDULER, Work

POLICY = msgspec.structs.replace(policy.DEFAULT, scheduler_names=(SCHEDULER,))
Tree = dict[str, Any]
Step = tuple[float, Callable[["TrueCluster"], Awaitable[None]]]


class TrueCluster(virtual_run.VirtualRun):
    """A virtual run with workload controllers, which follows a script of steps instead of a list of jobs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        kinds = (*virtual_run.FOLLOWED, gangs.KIND)
        super().__init__(*arguments, **options, more_loops=self._owner_loops, kinds=kinds)
        self._store = workload_store.WorkloadStore(self.api)
        self._script: list[Step] = []

    def follow(self, script: Iterable[Step], *, until: float) -> None:
        """Runs to that time; every step is taken at its time."""
        self._script = list(script)
        asyncio.run(self._run([], until))

    def _owner_loops(self, scheduler: scheduler_loop.Scheduler) -> list[Coroutine[Any, Any, None]]:
        """Gangs come from the objects that own pods, as in the scheduler's process."""

        async def served() -> tuple[registry.Kind, ...]:
            return (registry.JOB, registry.STATEFUL_SET)

        async def follow(kind: registry.Kind, feed: informer.Feed) -> None:
            self.api.follow(kind, feed)
            await asyncio.Event().wait()

        watch = owner_watch.OwnerWatch(
            scheduler.picture,
            self.clock,
            served=served,
            follow=follow,
            trouble=lambda kind, why: None,
        )
        return [watch.run()]

    async def _advance(self, works: list[Work], until: float | None) -> None:
        for at, step in self._script:
            await super()._advance([], at)
            await step(self)
        await super()._advance([], until)

    async def _come_to_rest(self) -> None:
        while True:
            await super()._come_to_rest()
            before = self.api.shelf.revision
            if self._store.settle() and self.api.shelf.revision == before:
                return

    def _next_due_time(self, arrivals: list[Work], until: float | None) -> float:
        due = super()._next_due_time(arrivals, until)
        wake_up = self._store.next_wake_up
        if wake_up is None:
            return due
        seconds = (wake_up - self.clock.now()).total_seconds()
        return min(due, self.clock.monotonic() + max(seconds, 0.0) + virtual_run.MOMENT)

    # What people do

    def objects(self) -> object_set.ObjectSet:
        """Everything a question reads."""
        kinds = (*replica.KINDS, registry.INTENT)
        stored = [
            codec.decode(record.document) for kind in kinds for record in self.api.shelf.all(kind)
        ]
        return object_set.of("truth", stored, revision=self.api.shelf.revision)

    def create(self, trees: Iterable[Tree]) -> None:
        """Creates objects, as `kubectl create` does; the scheduler sees them with the pods they lead to."""
        for tree in trees:
            self.api.put(tree)
        self._run_controllers()

    def _run_controllers(self) -> None:
        """Runs the controllers before the scheduler looks again."""
        while True:
            before = self.api.shelf.revision
            if self._store.settle() and self.api.shelf.revision == before:
                return

    async def make(self, stated: changes.Stated, answered: effect.Effect) -> None:
        """Makes a change as people make it; what is new or republished comes from the answer."""
        match stated.change:
            case changes.Cordon(is_drained=is_drained):
                name = stated.change.nodes.name
                self._cordon(name)
                if is_drained:
                    await self._evict_all(name, lambda pod: True)
            case changes.RemoveNodes():
                await self._remove(stated.change.nodes.name)
            case changes.EndWork(work=work):
                self._end(work)
            case changes.SetPartitions() | changes.SetSharing():
                touched = {edit.key.name for edit in answered.edits if edit.key.kind == "Pod"}
                name = stated.change.nodes.name
                await self._evict_all(name, lambda pod: pod.metadata.name in touched)
                self._write(answered, kinds=("ResourceSlice", "Node"))
            case changes.SetPriority():
                self._write(answered, kinds=("Pod",))
                self._set_template_priority(stated.change)
            case changes.AddNodes() | changes.SetQueue():
                self._write(answered, kinds=("ResourceSlice", "Node", "Queue"))
            case change:
                raise AssertionError(f"not a change of the campaign: {change}")

    def _end(self, work: changes.Work) -> None:
        """All containers of the work end at once, and its objects are deleted."""
        kinds = {
            "job": [registry.JOB],
            "pod": [],
            "deployment": [
                self._kind("apps/v1", "Deployment"),
                self._kind("apps/v1", "ReplicaSet"),
            ],
        }
        for kind in (*kinds[work.kind], registry.POD):
            for record in self.api.shelf.all(kind, work.namespace):
                if record.metadata.name.split("-")[0] != work.name:
                    continue
                if kind is registry.POD:
                    target = Target(kind, work.namespace, record.metadata.name, "status")
                    status = {**record.tree.get("status", {}), "phase": "Succeeded"}
                    self.api.write(target, record.tree | {"status": status})
                self.api.shelf.delete(kind, record.key)
        self._run_controllers()

    def _cordon(self, name: str) -> None:
        target = Target(registry.NODE, "", name)
        tree = self.api.found(target).tree
        self.api.write(target, tree | {"spec": {**tree.get("spec", {}), "unschedulable": True}})

    async def _evict_all(self, node: str, is_chosen: Callable[[Any], bool]) -> None:
        for pod in self.api.all(registry.POD):
            if pod.spec.node_name == node and is_chosen(pod):
                target = Target(registry.POD, pod.metadata.namespace, pod.metadata.name)
                await self.api.evict(target, uid=pod.metadata.uid)

    async def _remove(self, name: str) -> None:
        """The machine is gone: so are its node and slices, and the pod collector deletes its pods."""
        for part in self.api.all(registry.SLICE):
            if part.spec.node_name == name:
                await self.api.delete(Target(registry.SLICE, "", part.metadata.name))
        await self.api.delete(Target(registry.NODE, "", name))
        for pod in self.api.all(registry.POD):
            if pod.spec.node_name == name:
                target = Target(registry.POD, pod.metadata.namespace, pod.metadata.name)
                await self.api.delete(target, grace_seconds=0)

    def _write(self, answered: effect.Effect, kinds: tuple[str, ...]) -> None:
        for edit in answered.edits:
            if edit.key.kind not in kinds:
                continue
            kind = next(kind for kind in registry.ALL if kind.unique_name == edit.key.kind)
            key = (edit.key.namespace, edit.key.name)
            record = self.api.shelf.find(kind, key)
            if edit.stored is None:
                self.api.shelf.delete(kind, key)
            elif record is None:
                self.api.put(edit.stored.tree)
            else:
                metadata = edit.stored.tree["metadata"] | {
                    "resourceVersion": record.metadata.resource_version,
                    "uid": record.metadata.uid,
                }
                self.api.shelf.put(kind, edit.stored.tree | {"metadata": metadata})

    def _set_template_priority(self, change: changes.SetPriority) -> None:
        """Pods that are created again have the new priority, too."""
        work = change.work
        if work.kind == "pod":
            return
        kinds = [registry.JOB] if work.kind == "job" else [
            self._kind("apps/v1", "Deployment"), self._kind("apps/v1", "ReplicaSet")
        ]  # fmt: skip
        for kind in kinds:
            for record in self.api.shelf.all(kind, work.namespace):
                if record.metadata.name.split("-")[0] == work.name:
                    tree = record.tree
                    tree["spec"]["template"]["spec"]["priority"] = change.priority
                    self.api.shelf.put(kind, tree)

    def _kind(self, api_version: str, name: str) -> registry.Kind:
        return self.api.kind_of({"apiVersion": api_version, "kind": name})
