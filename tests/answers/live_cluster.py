"""The cluster of a story with the live scheduler and all controllers running on it, in virtual time.

Given the objects of a story. Stores them as an API server would after validating them, then lets time pass: claims are
created, jobs create pods, evicted pods leave. Patches are applied as a client of the REST API would. Never reads a
real clock, never decides: `schedule.decide` does, called by the live scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import disruption_budgets, pods
from dovetail.kubetypes.custom import intents
from dovetail.live.cycle import scheduler_loop
from dovetail.live.gangs import owner_watch
from dovetail.live.informer import informer
from dovetail.model import gangs, policy
from dovetail.ports import meter
from dovetail.ports.api import Target
from dovetail.sim import virtual_clock, workload_store
from dovetail.sim.server import api_server, object_store, served_kinds
from dovetail.sim.server.served_kinds import TableKey
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

FOLLOWED: Final = (*registry.WATCHED, *registry.OURS)
OWNERS: Final = (*registry.OWNERS, *registry.PARENTS)
# Classes before pods, which get their priority from them; quotas last, because they refuse what is there already.
FIRST: Final = ("CustomResourceDefinition", "Namespace", "PriorityClass", "DeviceClass", "Node")
LAST: Final = ("LimitRange", "ResourceQuota")
KEPT: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
NOT_SENT: Final = (*KEPT, "resourceVersion", "managedFields", "selfLink")
CORDON: Final = "node.kubernetes.io/unschedulable"
STEP_SECONDS: Final = 0.5
LONGEST_CHAIN: Final = 3  # of owners: a Deployment, its ReplicaSet, a pod
NOT_OVER: Final = ("Pending", "Running", "")
Tree = dict[str, Any]


class LiveCluster:
    """One cluster. Use `running`, then `pass_time`."""

    def __init__(self, restored: api_server.Restored, now: datetime.datetime) -> None:
        self.clock = virtual_clock.VirtualClock(now)
        self.api = api_server.SimApi(self.clock, is_complete=True, restored=restored)
        self.store = workload_store.WorkloadStore(self.api)
        # Pods that ever had a node, by uid: one that is moved at once did start.
        self.placed = {pod.metadata.uid for pod in self.api.all(registry.POD) if pod.spec.node_name}
        self.placed_keys: set[ObjectKey] = set()
        self.api.shelf.listen(self._note)
        self.scheduler: scheduler_loop.Scheduler | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The scheduler and the controllers run while the block lasts."""
        picture = informer.Informer(World(), self.clock, (*FOLLOWED, gangs.KIND))
        owners = owner_watch.OwnerWatch(
            picture, self.clock, served=_owner_kinds, follow=self._follow, trouble=_ignore
        )
        feeds = [
            self.api.follow(kind, informer.Feed(picture, kind, trouble=_ignore))
            for kind in FOLLOWED
        ]
        self.scheduler = scheduler_loop.Scheduler(
            picture,
            self.api,
            clock=self.clock,
            meter_=meter.NoMeter(),
            settings=scheduler_loop.Settings(
                policy=policy.Policy(scheduler_names=()),
                budget=policy.Budget(pods=policy.LIVE_PODS),
                transient_seconds=1.0,
                audit_seconds=0.0,
                is_quarantining=False,
                creates_share_templates=True,
            ),
            list_intents=self._intents,
            limits=self._budgets,
        )
        tasks = [
            asyncio.create_task(loop)
            for loop in (picture.pump(), owners.run(), self.scheduler.run())
        ]
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for feed in feeds:
                feed.end()

    async def pass_time(self, seconds: float) -> None:
        """Lets time pass in steps; controllers act in each."""
        for _ in range(int(seconds / STEP_SECONDS)):
            while not self.store.settle():
                pass
            await self.clock.advance(STEP_SECONDS)
            self._let_pods_go()
            self._lift_cordons()

    def _note(self, change: object_store.Change) -> None:
        pod = change.record.struct
        if isinstance(pod, pods.Pod) and pod.spec.node_name:
            if pod.metadata.uid not in self.placed:
                self.placed_keys.add(change.record.key)
            self.placed.add(pod.metadata.uid)

    def tree_of(self, kind: str, name: str, namespace: str) -> Tree | None:
        """An object by its kind in lower case."""
        for record in self._records():
            if (record.tree["kind"].lower(), record.key) == (kind, (namespace, name)):
                return record.tree
        return None

    def pods_of(self, kind: str, name: str, namespace: str) -> list[pods.Pod]:
        """The pods that an owner or an owner of their owner created and that are not over."""
        owner = self.tree_of(kind, name, namespace)
        owned = {owner["metadata"]["uid"]} if owner is not None else set()
        for _ in range(LONGEST_CHAIN):
            owned |= {
                record.metadata.uid
                for record in self._records()
                if any(owner.uid in owned for owner in record.metadata.owner_references)
            }
        present: list[pods.Pod] = self.api.all(registry.POD)
        return [
            pod for pod in present if pod.metadata.uid in owned and pod.status.phase in NOT_OVER
        ]

    def _records(self) -> Iterator[object_store.Record]:
        for _, table in self.api.shelf.tables():
            yield from table.all()

    def _let_pods_go(self) -> None:
        """Pods that were evicted or deleted leave their nodes, as their kubelets would let them; lost nodes do not."""
        lost = {node.metadata.name for node in self.api.all(registry.NODE) if not _is_ready(node)}
        for pod in self.api.all(registry.POD):
            if pod.metadata.deletion_timestamp and pod.spec.node_name not in lost:
                key = (pod.metadata.namespace, pod.metadata.name)
                self.api.shelf.delete(registry.POD, key, grace_seconds=0)

    def _lift_cordons(self) -> None:
        """Takes the taint of a cordon from nodes that are no longer cordoned, as kube-controller-manager does."""
        for node in self.api.all(registry.NODE):
            if node.spec.unschedulable or CORDON not in [taint.key for taint in node.spec.taints]:
                continue
            tree = self.api.tree(registry.NODE, node.metadata.name)
            taints = [taint for taint in tree["spec"]["taints"] if taint["key"] != CORDON]
            self.api.shelf.put(registry.NODE, tree | {"spec": tree["spec"] | {"taints": taints}})

    async def _follow(self, kind: registry.Kind, feed: informer.Feed) -> None:
        subscription = self.api.follow(kind, feed)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            subscription.end()

    async def _intents(self) -> list[intents.Intent]:
        return list(self.api.all(registry.INTENT))

    async def _budgets(self, namespace: str) -> Sequence[disruption_budgets.PodDisruptionBudget]:
        budgets: list[disruption_budgets.PodDisruptionBudget] = self.api.all(registry.BUDGET)
        return [item for item in budgets if namespace in ("", item.metadata.namespace)]


def stored(objects: Iterable[Tree], now: datetime.datetime) -> api_server.Restored:
    """The objects as an API server stores them, with the uids and times they have in the story."""
    scratch = api_server.SimApi(virtual_clock.VirtualClock(now))
    kept: dict[tuple[TableKey, tuple[str, str]], api_server.StoredObject] = {}
    for tree in sorted(objects, key=rank):
        served = scratch.kinds.named(str(tree["apiVersion"]), str(tree["kind"]))
        if served is None or not served.is_stored_version:
            continue  # events in their old form, and objects of projects that Dovetail does not follow
        kind = served.kind
        key = (tree["metadata"].get("namespace", ""), tree["metadata"]["name"])
        if scratch.shelf.find(kind, key) is None:
            scratch.put(as_sent(tree))
        document = codec.encode_tree(_as_stored(scratch.found(Target(kind, *key)).tree, tree))
        table = served_kinds.table_key(kind)
        kept[table, key] = api_server.StoredObject(table, key, document)
    return api_server.Restored(scratch.shelf.revision, list(kept.values()))


def rank(tree: Tree) -> int:
    """Where an object stands in the order of creation."""
    kind = tree["kind"]
    if kind in LAST:
        return len(FIRST) + 1
    return FIRST.index(kind) if kind in FIRST else len(FIRST)


def as_sent(tree: Tree) -> Tree:
    """The object as a client sends it."""
    metadata = {key: value for key, value in tree["metadata"].items() if key not in NOT_SENT}
    return {**tree, "metadata": metadata}


def _as_stored(tree: Tree, story_tree: Tree) -> Tree:
    metadata = story_tree["metadata"]
    kept = {key: metadata[key] for key in KEPT if key in metadata}
    return {**tree, "metadata": {**tree["metadata"], **kept}}


def _is_ready(node: Any) -> bool:
    return all(item.status == "True" for item in node.status.conditions if item.type == "Ready")


async def _owner_kinds() -> tuple[registry.Kind, ...]:
    return OWNERS


def _ignore(kind: str, why: str) -> None:
    pass
