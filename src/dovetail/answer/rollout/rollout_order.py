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
    """The units whose turn now, rather than at the end, loses least."""
    costs = _UnitCosts(simulation, left)
    picked: list[Unit] = []
    free = size
    remaining = list(left)
    while remaining:
        fitting = [unit for unit in remaining if len(unit.nodes) <= free]
        if not fitting:
            break
        best = min(fitting, key=lambda unit: (costs.regret(unit), left.index(unit)))
        picked.append(best)
        remaining.remove(best)
        free -= len(best.nodes)
        costs.take(best)
    return picked or [min(left, key=lambda unit: (len(unit.nodes), costs.regret(unit)))]


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

    def take(self, unit: Unit) -> None:
        """The unit goes in this wave, and its gangs with it."""
        for each in self._by_unit[unit.name]:
            self._taken.update(each.pods)

    def _regret_of(self, each: Displacement) -> int:
        ends = [self._simulation.sim.end_of(pod_id) for pod_id in each.pods]
        now = self._simulation.sim.now
        lost = each.milli_gpus * each.lost_seconds
        known = [int((end - now).total_seconds()) for end in ends if end is not None]
        if len(known) < len(ends):
            return -each.milli_gpus  # grows with every wave that it waits
        # It ends by itself: the sooner, the more is gained by waiting for it.
        return 1 + lost + each.milli_gpus * 3600 * 3600 // (max(known) + 60)
