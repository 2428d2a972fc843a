"""Who holds the GPUs of a cluster and who waits for them, priced in silicon: a MIG slice is a part of a GPU.

Given the objects of a cluster, the policy and the time. Sums by queue, namespace, user, node or type. Never prints.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import object_set
from dovetail.kubetypes.core import pods
from dovetail.model import policy, workload_annotations
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.queue import amounts, fair_share
from dovetail.schedule.session import Scope, Session
from dovetail.tables import text
from dovetail.tables.gpus import gpu_tiles
from dovetail.world.owners import facts_of_objects

QUEUE, NAMESPACE, USER, NODE, TYPE = KEYS = ("queue", "namespace", "user", "node", "type")
OF_WORK: Final = (QUEUE, NAMESPACE, USER)  # else of hardware
NOT_STATED: Final = ""

DeviceId = tuple[str, str, str]


class Holding(NamedTuple):
    """GPUs that one pod holds on one node, or waits for; then it has neither node nor type."""

    keys: Mapping[str, str]
    gpus: float
    is_waiting: bool = False
    device: DeviceId | None = None  # None where the API only counts


class Measured(NamedTuple):
    """How busy devices are: shares of the time of each, and of those that pods share, GPUs by pod."""

    by_device: Mapping[DeviceId, float] = {}
    by_pod: Mapping[tuple[DeviceId, str], float] = {}

    def used_by(self, holding: Holding) -> float | None:
        """How many GPUs of the holding are busy; None if they are not measured."""
        if holding.device is None:
            return None
        own = self.by_pod.get((holding.device, holding.keys["pod"]))
        if own is not None:
            return own
        busy = self.by_device.get(holding.device)
        return None if busy is None else holding.gpus * busy


class UsageRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One queue, namespace, user, node or type. Numbers are GPUs."""

    by: str
    name: str
    capacity: float | None = None  # what there is; for a queue its fair share
    allocated: float = 0.0
    used: float | None = None  # None: no metrics say how busy they are
    waiting: float | None = 0.0
    pods: int = 0
    waiting_pods: int = 0

    @property
    def free(self) -> float | None:
        """What is left of the capacity."""
        return None if self.capacity is None else max(0.0, self.capacity - self.allocated)


class Usage(NamedTuple):
    """All holdings, and what there is: GPUs by node and by type, fair shares by queue."""

    holdings: tuple[Holding, ...]
    capacity: Mapping[str, Mapping[str, float]]
    total: float
    lineages: Mapping[str, tuple[str, ...]] = {}  # of a queue: itself and those above it
    measured: Measured = Measured()

    def of_namespace(self, namespace: str) -> Usage:
        """Only what one namespace holds and waits for."""
        holdings = [each for each in self.holdings if each.keys[NAMESPACE] == namespace]
        return self._replace(holdings=tuple(holdings))

    def rows(self, by: str) -> tuple[UsageRow, ...]:
        """One row per name, the largest holders first; nodes in counting order. Linear in holdings."""
        by_name: dict[str, list[Holding]] = {name: [] for name in self.capacity.get(by, {})}
        for holding in self.holdings:
            for name in self._names(holding, by):
                by_name.setdefault(name, []).append(holding)
        if by not in OF_WORK:
            by_name.pop("", None)  # what waits has no node yet
        rows = [self._row(by, name, holdings) for name, holdings in by_name.items()]
        if by == NODE:
            return tuple(sorted(rows, key=lambda row: text.natural(row.name)))
        return tuple(sorted(rows, key=lambda row: (-row.allocated, row.name)))

    def _names(self, holding: Holding, by: str) -> tuple[str, ...]:
        """What a holding counts for: what a queue holds, the queues above it hold as well."""
        name = holding.keys.get(by, "")
        return self.lineages.get(name, (name,)) if by == QUEUE else (name,)

    def _row(self, by: str, name: str, holdings: Sequence[Holding]) -> UsageRow:
        held = [each for each in holdings if not each.is_waiting]
        waiting = [each for each in holdings if each.is_waiting]
        return UsageRow(
            by=by,
            name=name,
            capacity=self.capacity.get(by, {}).get(name),
            allocated=sum(each.gpus for each in held),
            used=self._used(held),
            waiting=sum(each.gpus for each in waiting) if by in OF_WORK else None,
            pods=len({each.keys["pod"] for each in held}),
            waiting_pods=len({each.keys["pod"] for each in waiting}),
        )

    def _used(self, held: Sequence[Holding]) -> float | None:
        """Busy GPUs, of those that are measured; None if none is."""
        known = [self.measured.used_by(each) for each in held]
        figures = [figure for figure in known if figure is not None]
        return sum(figures) if figures else None


def usage_of(objects: object_set.ObjectSet, rules: policy.Policy, now: datetime.datetime) -> Usage:
    """Who holds and waits for what."""
    world = facts_of_objects.world_of(objects)
    nodes = gpu_tiles.nodes_with_gpus(objects)
    type_by_node = {node.name: node.products for node in nodes}
    places = _places(objects)
    holdings: list[Holding] = []
    with world.trial():
        session = Session(world, rules, now, policy.UNLIMITED, Scope())
        accounts = session.transaction.accounts
        usage, usage_weight = session.past_usage(), rules.batch.usage_weight
        fair_share.divide(accounts, usage=usage, usage_weight=usage_weight)
        collector = _Collector(session, places, type_by_node)
        for job in session.transaction.jobs.values():
            holdings += collector.of_job(job)
        scale = amounts.scale(amounts.GPU)
        shares = {
            name: accounts.by_name[name].fair.get(amounts.GPU, 0) / scale
            for name in world.queues
            if name in accounts.by_name
        }
        lineages = {
            name: tuple(account.name for account in accounts.by_name[name].lineage())
            for name in shares
        }
    capacity = _capacity(nodes)
    total = sum(capacity[NODE].values())
    return Usage(tuple(holdings), capacity | {QUEUE: shares}, total, lineages)


class _Collector:
    def __init__(
        self,
        session: Session,
        places: Mapping[DeviceId, tuple[str, str]],
        type_by_node: Mapping[str, str],
    ) -> None:
        self._session = session
        self._places = places
        self._type_by_node = type_by_node
        self._counted: set[tuple[str, str]] = set()  # claims that pods share are held once

    def of_job(self, job: Job) -> list[Holding]:
        holdings: list[Holding] = []
        for pod_id, pod in job.pods.items():
            keys = {
                QUEUE: job.queue,
                NAMESPACE: pod.metadata.namespace,
                USER: pod.metadata.labels.get(workload_annotations.USER_LABEL, NOT_STATED),
                "pod": pod_id,
            }
            if pod.spec.node_name:
                holdings += self._held(pod, pod.spec.node_name, keys)
                continue
            price = self._session.transaction.price_of_pending(pod_id)[1]
            gpus = price.get(amounts.GPU, 0) / amounts.scale(amounts.GPU)
            if gpus:
                holdings.append(Holding(keys, gpus, is_waiting=True))
        return holdings

    def _held(self, pod: pods.Pod, node: str, keys: Mapping[str, str]) -> list[Holding]:
        pricing, world = self._session.transaction.pricing, self._session.transaction.world
        scale = amounts.scale(amounts.GPU)
        holdings = []
        if counted := pricing.cost_on_node(pod, node).get(amounts.GPU, 0):
            place = {NODE: node, TYPE: self._type_by_node.get(node, "")}
            holdings.append(Holding({**keys, **place}, counted / scale))
        for key in world.claims_used(pod):
            claim = world.claims.get(key)
            allocation = claim.status.allocation if claim is not None else None
            if allocation is None or key in self._counted:
                continue
            self._counted.add(key)
            for result in allocation.devices.results:
                devices = msgspec.structs.replace(allocation.devices, results=(result,))
                single = msgspec.structs.replace(allocation, devices=devices)
                cost = pricing.cost_of_claim(key, single).get(amounts.GPU, 0)
                identity = (result.driver, result.pool, result.device)
                place_node, product = self._places.get(identity, (node, ""))
                if cost:
                    place = {NODE: place_node or node, TYPE: product}
                    holdings.append(Holding({**keys, **place}, cost / scale, device=identity))
        return holdings


def _places(objects: object_set.ObjectSet) -> dict[DeviceId, tuple[str, str]]:
    """The node and the product of every published device."""
    return {
        (item.driver, item.pool, item.device.name): (
            item.node,
            text.product(item.word("productName")),
        )
        for item in gpu_tiles.items(objects)
    }


def _capacity(nodes: list[gpu_tiles.NodeGpus]) -> dict[str, dict[str, float]]:
    by_node: dict[str, float] = {}
    by_type: dict[str, float] = {}
    for node in nodes:
        by_node[node.name] = float(len(node.gpus))
        for gpu in node.gpus:
            product = text.product(gpu.product)
            by_type[product] = by_type.get(product, 0.0) + 1
    return {NODE: by_node, TYPE: by_type}
