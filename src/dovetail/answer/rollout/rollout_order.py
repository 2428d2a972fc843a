"""Chooses which units of nodes go next in a roll-out: by name, or those whose turn now loses least.

Given the simulated roll-out at the time of a wave, and the units that are left. The least-lost order compares what a
unit's eviction throws away now with what it would throw away at the end: empty units first, then work that never ends
and only grows, last what ends by itself meanwhile. A gang over several units counts once: its other units follow free.
Never evicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.answer.rollout.rollout_units import Unit
from dovetail.answer.rollout.wave_simulation import Displacement, RolloutSimulation

EMPTY = -(10**18)  # before everything: nothing is lost there now


def by_name(simulation: RolloutSimulation, left: list[Unit], size: int) -> Sequence[Unit]:
    """The first units that fit."""
    return _packed(left, size)


def least_lost(simulation: RolloutSimulation, left: list[Unit], size: int) -> Sequence[Unit]:
    """The units whose turn now, rather than at the end, loses least; none where waiting loses less."""
    costs = _UnitCosts(simulation, left)
    picked: list[Unit] = []
    free = size
    ready = [unit for unit in left if not costs.is_worth_waiting(unit)]
    remaining = list(ready)
    while remaining:
        fitting = [unit for unit in remaining if len(unit.nodes) <= free]
        if not fitting:
            break
        best = min(fitting, key=lambda unit: (costs.regret(unit), left.index(unit)))
        picked.append(best)
        remaining.remove(best)
        free -= len(best.nodes)
        costs.take(best)
    if not ready:
        return ()
    return picked or [min(ready, key=lambda unit: (len(unit.nodes), costs.regret(unit)))]


def _packed(left: Sequence[Unit], size: int) -> list[Unit]:
    picked: list[Unit] = []
    free = size
    for unit in left:
        if len(unit.nodes) <= free:
            picked.append(unit)
            free -= len(unit.nodes)
    return picked or [min(left, key=lambda unit: len(unit.nodes))]


class _UnitCosts:
    """What the turn of each unit would lose, at the present time of the simulation."""

    def __init__(self, simulation: RolloutSimulation, units: Iterable[Unit]) -> None:
        self._simulation = simulation
        self._taken: set[str] = set()  # pods that leave already in this wave
        self._by_unit: dict[str, list[Displacement]] = {}
        present = simulation.pods_by_node()
        known: dict[str, Displacement] = {}
        for unit in units:
            displaced: dict[int, Displacement] = {}
            for node in unit.nodes:
                for pod_id in simulation.leaving(present.get(node, ())):
                    if pod_id not in known:
                        displacement = simulation.displacement(pod_id, 0)
                        known |= dict.fromkeys(displacement.pods, displacement)
                    displaced[id(known[pod_id])] = known[pod_id]
            self._by_unit[unit.name] = list(displaced.values())

    def regret(self, unit: Unit) -> int:
        """What is lost by the unit's turn now, less what would be lost by its turn later."""
        displaced = [each for each in self._by_unit[unit.name] if self._taken.isdisjoint(each.pods)]
        if not displaced:
            return EMPTY
        return sum(map(self._regret_of, displaced))

    def is_worth_waiting(self, unit: Unit) -> bool:
        """Whether work of the unit ends before it has to go, and saves more than the rest loses meanwhile."""
        now, latest = self._simulation.sim.now, self._simulation.may_wait_until
        possible = (latest - now).total_seconds()
        displaced = self._by_unit[unit.name]
        ending = [
            each
            for each in displaced
            if (left := self._seconds_left(each)) is not None and left <= possible
        ]
        seconds = max((self._seconds_left(each) or 0 for each in ending), default=0)
        if not seconds:
            return False
        lost = sum(each.milli_gpus * (each.lost_seconds + each.restart_seconds) for each in ending)
        staying = [each for each in displaced if each not in ending]
        growth = sum(each.milli_gpus * self._simulation.growth(each, seconds) for each in staying)
        return lost > growth

    def take(self, unit: Unit) -> None:
        """The unit goes in this wave, and its gangs with it."""
        for each in self._by_unit[unit.name]:
            self._taken.update(each.pods)

    def _regret_of(self, each: Displacement) -> int:
        seconds = self._seconds_left(each)
        if seconds is None:
            return -each.milli_gpus  # grows with every wave that it waits
        # It ends by itself: the sooner, the more is gained by waiting for it.
        lost = each.milli_gpus * each.lost_seconds
        return 1 + lost + each.milli_gpus * 3600 * 3600 // (seconds + 60)

    def _seconds_left(self, each: Displacement) -> int | None:
        """Until all of it has ended by itself; None where that is not known."""
        ends = [self._simulation.sim.end_of(pod_id) for pod_id in each.pods]
        now = self._simulation.sim.now
        known = [int((end - now).total_seconds()) for end in ends if end is not None]
        return max(known) if len(known) == len(ends) else None
