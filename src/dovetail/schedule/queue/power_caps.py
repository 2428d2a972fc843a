"""Decides whether a rack, or another domain that a Topology caps, may draw more power.

Given topologies with caps and the World as it stands, inside a trial or not. Counts the rated power of the GPUs in
use on the nodes of a domain, by any pod, also of devices that may not be used for now. Never looks at queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import topologies
from dovetail.model.queue import queue_resources
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.gang.topology_domains import Domains
from dovetail.schedule.queue import amounts, gpu_types
from dovetail.world.devices import gpu_ledger
from dovetail.world.views.node_view import PoolView
from dovetail.world.world import World


class Domain(NamedTuple):
    """Nodes under one cap."""

    name: str
    nodes: frozenset[str]
    cap: int


class PowerCaps:
    """All caps of one decision."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = gpu_ledger.Ledger()
        self._domains: dict[str, list[Domain]] = {}
        self._drawn: dict[str, int] = {}  # by node
        self._sums: dict[Domain, int] = {}
        self._shut: tuple[tuple[Domain, ...], frozenset[str]] = (
            (),
            frozenset(),
        )  # of the last call
        self._journal_position = -1
        for topology in world.topologies.values():
            for domain in _capped(topology, world.nodes):
                self._sums[domain] = 0
                for node in domain.nodes:
                    self._domains.setdefault(node, []).append(domain)

    @property
    def are_none(self) -> bool:
        """Whether nothing is capped."""
        return not self._domains

    def refusal(self, node: str, cost: Mapping[str, int]) -> tuple[Reason, frozenset[str]] | None:
        """Why a node may not draw so much more, and which nodes may not for the same reason."""
        watts = cost.get(amounts.POWER, 0)
        domains = self._domains.get(node)
        if not watts or domains is None:
            return None
        self._update()
        for domain in domains:
            if self._is_shut(domain, watts):
                return self._reason(domain, watts), domain.nodes
        return None

    def exhausted(self, cost: Mapping[str, int]) -> tuple[Reason, frozenset[str]] | None:
        """The nodes that may not draw so much more, and why for one of them. Linear in domains."""
        watts = cost.get(amounts.POWER, 0)
        if not watts or not self._domains:
            return None
        self._update()
        domains = tuple(domain for domain in self._sums if self._is_shut(domain, watts))
        if not domains:
            return None
        if domains != self._shut[0]:
            nodes_in_all = frozenset[str]().union(*(domain.nodes for domain in domains))
            self._shut = (domains, nodes_in_all)
        return self._reason(domains[0], watts), self._shut[1]

    def _is_shut(self, domain: Domain, watts: int) -> bool:
        return self._sums[domain] + watts > domain.cap

    def _reason(self, domain: Domain, watts: int) -> Reason:
        detail = f"{self._sums[domain]} W in use and {watts} W wanted exceed its power cap, {domain.cap} W"
        return Reason(code=ReasonCode.POWER_CAP, subject=domain.name, detail=detail)

    def _update(self) -> None:
        """Counts nodes again that changed."""
        changed = self._world.node_changes.since(self._journal_position)
        self._journal_position = self._world.node_changes.end
        for node in self._domains if changed is None else dict.fromkeys(changed):
            domains = self._domains.get(node)
            if domains is None:
                continue
            drawn = self._drawn_by_node(node)
            change = drawn - self._drawn.get(node, 0)
            self._drawn[node] = drawn
            for domain in domains:
                self._sums[domain] += change

    def _drawn_by_node(self, node_name: str) -> int:
        node = self._world.nodes.get(node_name)
        if node is None:
            return 0
        local_pools = [
            pool for pool in self._world.view(node_name).pools if _is_local(pool, node_name)
        ]
        drawn = sum(map(self._drawn_by_pool, local_pools))

        labels = node.metadata.labels
        offered, free = self._world.offered(node_name), self._world.free(node_name)
        watts = gpu_types.watts_of(gpu_types.product_of(labels))
        for name, count in offered.scalars:
            used = max(count - free.scalar(name), 0)
            drawn += gpu_types.power_of(watts, gpu_ledger.plugin_cost(name, used, labels))
        return drawn

    def _drawn_by_pool(self, pool: PoolView) -> int:
        used = self._ledger.whole_milli_gpu(pool.devices) - self._ledger.free_milli_gpu(pool)
        return gpu_types.power_of(_highest_watts(pool), used) if used > 0 else 0


def has_caps(world: World) -> bool:
    """Whether anything is capped: a queue, or a level of a topology."""
    if any(queue.spec.power_cap_watts is not None for queue in world.queues.values()):
        return True
    return any(
        level.power_cap_watts is not None
        for topology in world.topologies.values()
        for level in topology.spec.levels
    )


def _capped(topology: topologies.Topology, node_by_name: Mapping[str, nodes.Node]) -> list[Domain]:
    levels = topology.spec.levels
    if all(level.power_cap_watts is None for level in levels):
        return []
    domains = Domains(topology, node_by_name)
    capped: list[Domain] = []
    for depth, level in enumerate(levels):
        if level.power_cap_watts is None:
            continue
        for domain in domains.at(depth):
            name = f"{level.alias or level.node_label} {domain.path[-1]}"
            capped.append(Domain(name, domain.nodes, level.power_cap_watts))
    return capped


def _highest_watts(pool: PoolView) -> int:
    """The rated power of the hungriest product of a pool: which of its devices are in use is not known here."""
    column = pool.devices.column(gpu_types.ATTRIBUTES[queue_resources.Measure.PRODUCT])
    products = {
        (value.string_value or "") if value is not None else "" for value in column or (None,)
    }
    return max(gpu_types.watts_of(queue_resources.slug(product)) for product in products)


def _is_local(pool: PoolView, node: str) -> bool:
    """Whether the devices are on the node itself, and not reached over a network."""
    origins = pool.devices.origins
    return bool(origins) and origins[0].node_name == node
