"""Decides whether a rack, or whatever a Topology caps, may draw more: rated power of the silicon in use on its nodes.

Given topologies with caps and the world as it stands, in a trial or out of it. What is in use counts whoever uses it,
also a device that nobody may use for now. Never looks at queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.model import nodes, queueresources, topologies
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.gangs.topology import Domains
from dovetail.schedule.queues import amounts, silicon
from dovetail.world import ledger
from dovetail.world.view import PoolView
from dovetail.world.world import World


class Domain(NamedTuple):
    """Nodes that draw on one cap."""

    name: str
    nodes: frozenset[str]
    cap: int


class Caps:
    """All caps of one decision."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = ledger.Ledger()
        self._domains: dict[str, list[Domain]] = {}
        self._drawn: dict[str, int] = {}  # by node
        self._sums: dict[Domain, int] = {}
        self._shut: tuple[tuple[Domain, ...], frozenset[str]] = ((), frozenset())  # asked last
        self._read = -1  # position in the world's journal
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
        """Why so much more may not be drawn on a node, and on which nodes for the same reason."""
        more = cost.get(amounts.POWER, 0)
        domains = self._domains.get(node)
        if not more or domains is None:
            return None
        self._bring_up()
        return next(((self._reason(one, more), one.nodes) for one in domains if self._is_shut(one, more)), None)

    def shut(self, cost: Mapping[str, int]) -> tuple[Reason, frozenset[str]] | None:
        """The nodes on which so much more may not be drawn, and why for one of them. Linear in domains."""
        more = cost.get(amounts.POWER, 0)
        if not more or not self._domains:
            return None
        self._bring_up()
        found = tuple(one for one in self._sums if self._is_shut(one, more))
        if not found:
            return None
        if found != self._shut[0]:
            self._shut = (found, frozenset().union(*(one.nodes for one in found)))
        return self._reason(found[0], more), self._shut[1]

    def _is_shut(self, domain: Domain, more: int) -> bool:
        return self._sums[domain] + more > domain.cap

    def _reason(self, domain: Domain, more: int) -> Reason:
        detail = f"{self._sums[domain]} W in use and {more} W wanted exceed its power cap, {domain.cap} W"
        return Reason(code=ReasonCode.POWER_CAP, subject=domain.name, detail=detail)

    def _bring_up(self) -> None:
        """Looks again at nodes that changed."""
        noted = self._world.journal.since(self._read)
        self._read = self._world.journal.end
        for node in self._domains if noted is None else dict.fromkeys(noted):
            domains = self._domains.get(node, ())
            if domains:
                drawn = self._on(node)
                change = drawn - self._drawn.get(node, 0)
                self._drawn[node] = drawn
                for domain in domains:
                    self._sums[domain] += change

    def _on(self, node: str) -> int:
        known = self._world.nodes.get(node)
        if known is None:
            return 0
        found = sum(self._of_pool(pool) for pool in self._world.view(node).pools if _is_of(pool, node))
        offered, free = self._world.offered(node), self._world.free(node)
        watts = silicon.watts_of(silicon.product_of(known.metadata.labels))
        for name, count in offered.scalars:
            cost = ledger.plugin_cost(name, max(count - free.scalar(name), 0), known.metadata.labels)
            found += silicon.drawn(watts, cost)
        return found

    def _of_pool(self, pool: PoolView) -> int:
        used = self._ledger.whole_milli_gpu(pool.devices) - self._ledger.free_milli_gpu(pool)
        return silicon.drawn(_hungriest(pool), used) if used > 0 else 0


def has_caps(world: World) -> bool:
    """Whether anything is capped: a queue, or a level of a topology."""
    return any(queue.spec.power_cap_watts is not None for queue in world.queues.values()) or any(
        level.power_cap_watts is not None for one in world.topologies.values() for level in one.spec.levels
    )


def _capped(topology: topologies.Topology, known: Mapping[str, nodes.Node]) -> list[Domain]:
    levels = topology.spec.levels
    if all(level.power_cap_watts is None for level in levels):
        return []
    domains = Domains(topology, known)
    return [
        Domain(f"{level.alias or level.node_label} {domain.path[-1]}", domain.nodes, level.power_cap_watts)
        for depth, level in enumerate(levels)
        if level.power_cap_watts is not None
        for domain in domains.at(depth)
    ]


def _hungriest(pool: PoolView) -> int:
    column = pool.devices.column(silicon.ATTRIBUTES[queueresources.Measure.PRODUCT])
    products = {(value.string_value or "") if value is not None else "" for value in column or (None,)}
    return max(silicon.watts_of(queueresources.slug(one)) for one in products)


def _is_of(pool: PoolView, node: str) -> bool:
    """Whether the devices are the node's own, and not reached over a network."""
    origins = pool.devices.origins
    return bool(origins) and origins[0].node_name == node
