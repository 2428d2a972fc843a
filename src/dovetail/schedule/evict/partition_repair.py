"""Finds what has to move so that one slice of a partitioned GPU fits: the pods that block a place for it.

Given a pending pod that asks for one device. Every place of every node that suits the pod is looked at, with the pods
whose devices draw on the counters it needs. Places with the smallest devices in the way come first, and of equals
those whose pods are first in the order of victims. Never tries a scenario and never evicts: `victim_search` does, under
the rules of consolidation, and every pod that moves must have a new place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dovetail.allocate.index.blocked_places import BlockedPlace
from dovetail.schedule.evict.claim_groups import VictimGroup
from dovetail.schedule.evict.scenario_bounds import NodeOffers
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.gang.transaction import Transaction, unbound
from dovetail.schedule.node import pod_claims, preconditions
from dovetail.schedule.node.pod_claims import PodClaims
from dovetail.world.views.node_view import PoolView

MOST_PLACES_TRIED: Final = 60  # of one pod
MOST_NODES: Final = 512  # looked at for one pod, those with the most free GPUs first


class _Obstructed(NamedTuple):
    """A place on a node, and the pods in its way."""

    node: str
    device: str
    pod_ids: tuple[str, ...]


class _Ranked(NamedTuple):
    """What clearing a place moves. Compared in this order."""

    milli_gpu: int
    positions: tuple[int, ...]  # in the order of victims, last first
    node: str
    device: str
    groups: tuple[VictimGroup, ...]


class PartitionRepair:
    """The places of one decision that could be cleared."""

    def __init__(self, transaction: Transaction, offers: NodeOffers, *, most: int | None) -> None:
        self._transaction = transaction
        self._offers = offers
        self._most = most
        self.notes: dict[frozenset[str], str] = {}  # by pods that move, what for and how much

    def places_for(self, job: Job, pod_id: str) -> list[_Obstructed]:
        """Places that are blocked by few enough pods; none where the pod asks for something else than one device."""
        transaction = self._transaction
        pod = unbound(job.pods[pod_id])
        needs = preconditions.needs(pod, transaction.claim_lookup)
        if not isinstance(needs, PodClaims):
            return []

        places: list[_Obstructed] = []
        for node in self._nodes():
            transaction.steps.spend(1)
            blocked = transaction.search.blocked_places(pod, needs, node, most=self._most)
            for place in blocked:
                pod_ids = self._pods_in_the_way(place)
                if pod_ids and (self._most is None or len(pod_ids) <= self._most):
                    places.append(_Obstructed(node, place.device, pod_ids))
        return places

    def _nodes(self) -> list[str]:
        """Nodes with shared counters that are not all free, those with the most free GPUs first."""
        world = self._transaction.world
        free = self._offers.free()
        by_free = sorted(free, key=lambda node: (-free[node][0], node))
        cut = [node for node in by_free if _is_cut(world.view(node).pools)]
        return cut[:MOST_NODES]

    def _pods_in_the_way(self, place: BlockedPlace) -> tuple[str, ...]:
        """The pods that use these devices; none if one of the devices is not used by pods of this decision."""
        world = self._transaction.world
        pod_ids: dict[str, None] = {}
        for device in place.in_the_way:
            users: list[str] = []
            for key in world.users(*device):
                claim = world.claims.get(key)
                users += () if claim is None else pod_claims.users_of(claim, world)
            if not users or not all(map(self._transaction.includes, users)):
                return ()
            pod_ids.update(dict.fromkeys(users))
        return tuple(pod_ids)

    def scenarios(
        self, places: Sequence[_Obstructed], candidates: Iterable[VictimGroup]
    ) -> Iterator[Sequence[VictimGroup]]:
        """The victims in the way of each place, cheapest place first."""
        in_order = list(candidates)
        position_of = {
            pod_id: position for position, group in enumerate(in_order) for pod_id in group.pod_ids
        }
        ranked: list[_Ranked] = []
        for place in places:
            if all(pod_id in position_of for pod_id in place.pod_ids):
                ranked.append(self._ranked(place, in_order, position_of))
        ranked.sort(key=lambda choice: choice[:4])
        for choice in ranked[:MOST_PLACES_TRIED]:
            self._note(choice)
            yield choice.groups

    def _ranked(
        self,
        place: _Obstructed,
        in_order: Sequence[VictimGroup],
        position_of: dict[str, int],
    ) -> _Ranked:
        positions = sorted({position_of[pod_id] for pod_id in place.pod_ids}, reverse=True)
        groups = tuple(in_order[position] for position in positions)
        held = [self._offers.held(pod_id)[0] for group in groups for pod_id in group.pod_ids]
        return _Ranked(sum(held), tuple(positions), place.node, place.device, groups)

    def _note(self, choice: _Ranked) -> None:
        pod_ids = frozenset(pod_id for group in choice.groups for pod_id in group.pod_ids)
        pods = "1 pod moves" if len(pod_ids) == 1 else f"{len(pod_ids)} pods move"
        gpus = f"{choice.milli_gpu / 1000:.2f} GPU"
        self.notes[pod_ids] = f"; {pods} ({gpus}) to clear {choice.device} on {choice.node}"


def _is_cut(pools: Iterable[PoolView]) -> bool:
    return any(pool.counters_left and (pool.used or pool.shared) for pool in pools)
