"""A cluster whose objects were read: tables are made from them, and the engine is asked about a replica of them.

Given how to read the objects. They are read once, all kinds together, so all answers are about the same time, until
`refresh`. One question at a time: others wait for the lock. Never writes to a cluster.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec

from dovetail import errors
from dovetail.answer.capacity import room_left
from dovetail.answer.replica.replica import Replica
from dovetail.answer.right_size import right_size_answer
from dovetail.answer.what_if import changes as what_if_changes
from dovetail.answer.what_if import what_if_answer
from dovetail.answer.when import Expectation
from dovetail.answer.why import near_values
from dovetail.answer.why.why_answer import Why
from dovetail.ask import (
    capacity_asked,
    cluster_view,
    replicas,
    right_size_asked,
    scheduler_policy,
    shapes_asked,
    what_if_asked,
    when_asked,
    why_asked,
)
from dovetail.kubetypes import object_set, registry
from dovetail.model import policy
from dovetail.sdk import given_work, python_words
from dovetail.sdk.answer_source import Documents, Wanted
from dovetail.sdk.change_list import WORK, Changes
from dovetail.tables import label_option, listing, membership
from dovetail.tables.gpus import gpu_table
from dovetail.tables.items import (
    claim_items,
    device_items,
    gpu_items,
    node_items,
    pod_items,
    queue_items,
)
from dovetail.tables.work import gpu_holdings, work_items
from dovetail.world.owners import facts_of_objects

T = TypeVar("T", bound=msgspec.Struct)

# What some answer looks at, beyond the kinds that every one needs.
FURTHER: Final = (
    *facts_of_objects.KINDS,
    *membership.KINDS,
    registry.TAINT_RULE,
    *why_asked.KINDS,
    *right_size_asked.KINDS,
    *what_if_asked.work_kinds(),
)

Read = Callable[[], cluster_view.View]


class Reading:
    """The objects as they were read at one time, and what was worked out about them."""

    def __init__(self, seen: cluster_view.View, configured: policy.Policy | None) -> None:
        self.seen = seen
        self.rules = configured or scheduler_policy.default(seen)

    @cached_property
    def replica(self) -> Replica:
        """What the engine is asked on. Questions leave it as it is."""
        return replicas.replica_of(self.seen, self.rules)

    @cached_property
    def memberships(self) -> membership.Memberships:
        """Which gang and queue each pod belongs to."""
        return membership.Memberships(self.seen.objects)

    @cached_property
    def work(self) -> tuple[work_items.WorkItem, ...]:
        """All work, in the scheduler's order."""
        return work_items.items_of(self.seen.objects, self.rules, self.seen.now)

    @cached_property
    def usage(self) -> gpu_holdings.Usage:
        """Who holds GPUs and who waits for them."""
        return gpu_holdings.usage_of(self.seen.objects, self.rules, self.seen.now)


class ReadCluster:
    """The source of `Cluster.connect` and `Cluster.load`."""

    def __init__(self, read: Read, *, namespace: str, config: str | None) -> None:
        self._read = read
        self._namespace = namespace
        self._configured = scheduler_policy.configured(config)
        self._lock = threading.RLock()
        self._reading = Reading(read(), self._configured)

    @property
    def name(self) -> str:
        return self._reading.seen.name

    @property
    def now(self) -> datetime.datetime:
        return self._reading.seen.now

    @property
    def namespace(self) -> str:
        return self._namespace

    @property
    def problems(self) -> tuple[str, ...]:
        seen = self._reading.seen
        twice = [f"given twice: {each}" for each in seen.duplicates]
        return (*(f"left out: {each}" for each in seen.unreadable), *twice)

    def refresh(self) -> None:
        reading = Reading(self._read(), self._configured)  # where this fails, the one before stays
        with self._lock:
            self._reading = reading

    # Tables

    def gpus(self, wanted: Wanted) -> tuple[list[gpu_items.GpuNodeItem], Documents]:
        query = _query(self._reading, wanted)

        def documents(rows: Sequence[gpu_items.GpuNodeItem]) -> list[listing.Tree]:
            if not rows:
                return []
            names = tuple(row.node for row in rows)
            shown = gpu_table.rows(msgspec.structs.replace(query, names=names))
            return [*map(listing.presented, shown.documents())]

        return [*map(gpu_items.item_of, gpu_table.wanted_nodes(query))], documents

    def devices(self, wanted: Wanted) -> tuple[list[device_items.DeviceItem], Documents]:
        query = _query(self._reading, wanted)
        objects = query.objects
        labels = {node.name: node.labels for node in node_items.items_of(objects)}

        def documents(rows: Sequence[device_items.DeviceItem]) -> list[listing.Tree]:
            pools = {(row.driver, row.pool) for row in rows}
            return [*map(listing.presented, listing.slices_of_pools(objects, pools))]

        items = device_items.items_of(objects, node=wanted.node)
        return [item for item in items if query.test(labels.get(item.node, {}))], documents

    def nodes(self, wanted: Wanted) -> tuple[list[node_items.NodeItem], Documents]:
        reading = self._reading
        test = _label_test(wanted.labels)
        items = node_items.items_of(reading.seen.objects)
        return [item for item in items if test(item.labels)], _objects_of(reading, registry.NODE)

    def pods(self, wanted: Wanted) -> tuple[list[pod_items.PodItem], Documents]:
        reading = self._reading
        query = _query(reading, wanted)
        with self._lock:
            items = pod_items.items_of(query.objects, reading.memberships)
        shown = [
            item
            for item in items
            if query.namespace in (None, item.namespace)
            and query.wants_node(item.node)
            and query.test(item.labels)
        ]
        return shown, _objects_of(reading, registry.POD)

    def claims(self, wanted: Wanted) -> tuple[list[claim_items.ClaimItem], Documents]:
        reading = self._reading
        query = _query(reading, wanted)
        shown = [
            item
            for item in claim_items.items_of(query.objects)
            if query.namespace in (None, item.namespace)
            and (query.node is None or query.node in _pools_of(item))
        ]
        return shown, _objects_of(reading, registry.CLAIM)

    def queues(self, wanted: Wanted) -> tuple[list[queue_items.QueueItem], Documents]:
        reading = self._reading
        if registry.QUEUE in reading.seen.unserved:
            raise errors.StateError(
                "the cluster does not serve queues\nnext: dovetail install --definitions"
            )
        items = queue_items.items_of(reading.seen.objects)
        return list(items), _objects_of(reading, registry.QUEUE)

    # Questions

    def work(self, wanted: Wanted) -> list[work_items.WorkItem]:
        test = _label_test(wanted.labels)
        with self._lock:
            items = self._reading.work
        return [
            item
            for item in items
            if wanted.namespace in (None, item.namespace) and test(item.labels)
        ]

    def usage(self, by: Sequence[str], wanted: Wanted) -> tuple[list[gpu_holdings.UsageRow], float]:
        with self._lock:
            usage = self._reading.usage
        if wanted.namespace is not None:
            usage = usage.of_namespace(wanted.namespace)
        return [row for key in by for row in usage.rows(key)], usage.total

    def why(self, name: str, namespace: str) -> Why:
        with self._lock, python_words.said():
            return why_asked.why(self._reading.replica, name, namespace)

    def why_waiting(self, namespace: str | None) -> list[Why]:
        with self._lock:
            return why_asked.why_waiting(self._reading.replica, namespace)

    def when(self, name: str | None, namespace: str | None) -> list[Expectation]:
        with self._lock:
            reading = self._reading
            return when_asked.when(reading.seen, reading.rules, name=name, namespace=namespace)

    def what_if(
        self,
        changes: Changes,
        *,
        namespace: str,
        horizon: str,
        prices: Mapping[str, Fraction] | None,
    ) -> what_if_answer.Answer:
        with python_words.said():
            seconds = what_if_asked.horizon_seconds(horizon)
            stated = _Stated(changes, namespace)
            with self._lock:
                reading = self._reading
                return what_if_asked.what_if(
                    reading.replica,
                    stated.on(reading.seen),
                    horizon_seconds=seconds,
                    prices=prices,
                )

    def right_sizes(
        self, recorded: right_size_asked.RecordedWork, prices: Mapping[str, Fraction] | None
    ) -> right_size_answer.Answer:
        with self._lock:
            return right_size_asked.right_sizes(recorded, self._reading.replica, prices=prices)

    def capacity(
        self, shape: shapes_asked.ShapeAsked, *, gang: int | None, level: str
    ) -> room_left.Capacity:
        with self._lock, python_words.said():
            reading = self._reading
            return capacity_asked.capacity(
                reading.replica, reading.seen.objects, shape, gang=gang, level=level
            )


class _Stated:
    """Changes as the engine takes them. Texts and files are read before the cluster is asked."""

    def __init__(self, changes: Changes, namespace: str) -> None:
        self._steps: list[str | what_if_changes.Stated] = []  # a name stands for manifests
        self._loaded: dict[str, Any] = {}
        for verb, given in changes:
            if verb != WORK:
                self._steps.append(what_if_changes.read(verb, given, namespace=namespace))
                continue
            name = given_work.name_of(given, len(self._loaded) + 1)
            self._loaded[name] = given_work.objects_of(given, name=name, namespace=namespace)
            self._steps.append(name)

    def on(self, seen: cluster_view.View) -> list[what_if_changes.Stated]:
        """All changes in order; manifests with what controllers would create for them."""
        work = what_if_asked.stated_work(self._loaded, seen)
        return [work[step] if isinstance(step, str) else step for step in self._steps]


def reads() -> list[object_set.Read]:
    """The lists that are read of a cluster."""
    return replicas.reads(FURTHER)


def _query(reading: Reading, wanted: Wanted) -> listing.Query:
    """Raises NotFound for a node that does not exist."""
    seen = reading.seen
    if wanted.node is not None:
        _check_node(seen.objects, wanted.node)
    return listing.Query(
        objects=seen.objects,
        now=seen.now,
        test=_label_test(wanted.labels),
        namespace=wanted.namespace,
        node=wanted.node,
        labels=wanted.labels,
    )


def _objects_of(reading: Reading, kind: registry.Kind) -> Documents:
    """The objects of one kind that rows show. They are those that were read with the rows."""
    objects = reading.seen.objects

    def documents(rows: Sequence[Any]) -> list[listing.Tree]:
        trees = []
        for row in rows:
            namespace = row.namespace if kind.is_namespaced else ""
            stored = objects.get(object_set.Key(kind.unique_name, namespace, row.name))
            if stored is not None:
                trees.append(listing.presented(stored.tree))
        return trees

    return documents


def _label_test(labels: str) -> label_option.Test:
    with python_words.said():
        return label_option.selector(labels)


def _check_node(objects: object_set.ObjectSet, name: str) -> None:
    key = object_set.Key(registry.NODE.name, "", name)
    if objects.get(key) is not None:
        return
    names = [stored.struct.metadata.name for stored in objects.listed(registry.NODE.name)]
    near = near_values.nearest(name, names)
    raise errors.NotFound(
        f'there is no node "{name}"' + (f"; did you mean {near}?" if near else "")
    )


def _pools_of(claim: claim_items.ClaimItem) -> set[str]:
    """The pools of its devices: a driver calls the pool of a node by the node's name."""
    return {device.rpartition("/")[0] for device in claim.devices}
