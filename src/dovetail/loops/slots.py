"""Keeps room for what takes the place of a pod that was moved: resources and devices of a node, for a time.

Given evictions that name a node to move to. Whoever comes next of that gang is asked about first, alone, with the room
lifted; what it does not use is kept again until the time is up. In memory: a new leader keeps nothing. Never decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from dovetail.model import claims, gangs, plan, pods, requests
from dovetail.world.events import pod_id
from dovetail.world.world import World

Kin = tuple[str, str]  # a gang, or where every pod is a gang of its own, whoever makes them


class Slot(NamedTuple):
    """Room on a node, for whom and until when."""

    kin: Kin
    node: str
    ghost: pods.Pod  # what is assumed there meanwhile
    devices: tuple[claims.AllocationResult, ...]
    until: float


class Slots:
    """Everything that is kept."""

    def __init__(self, world: World, *, seconds: float) -> None:
        self._world = world
        self._seconds = seconds
        self._slots: dict[str, Slot] = {}  # by the id of the ghost

    def __len__(self) -> int:
        return len(self._slots)

    def keep(self, eviction: plan.Eviction, pod: pods.Pod, now: float) -> None:
        """The pod goes; its place at the node it was to move to is kept."""
        if not eviction.moves_to or eviction.moves_to not in self._world.nodes:
            return
        ghost = _ghost(pod)
        id_ = pod_id(ghost)
        if id_ in self._slots:
            return
        kin = kin_of(pod, (eviction.gang.namespace, eviction.gang.name))
        if kin is None:
            return
        slot = Slot(kin, eviction.moves_to, ghost, eviction.keeps, now + self._seconds)
        self._slots[id_] = slot
        self._occupy(id_, slot)

    def lift(self, waiting: Collection[Kin]) -> dict[str, Slot]:
        """Frees what is kept for gangs that wait; to be put back, or used up, before others are asked about."""
        lifted = {id_: slot for id_, slot in self._slots.items() if slot.kin in waiting}
        for id_, slot in lifted.items():
            self._vacate(id_, slot)
        return lifted

    def nodes_for(self, lifted: Mapping[str, Slot], waiting: Mapping[str, Kin]) -> dict[str, str]:
        """By the id of a pod that waits, the node kept for it: of its kin one that asks for as much, else any."""
        found: dict[str, str] = {}
        for slot in lifted.values():
            able = [id_ for id_, kin in waiting.items() if kin == slot.kin and id_ not in found]
            same = (id_ for id_ in able if _asks_alike(self._world.pods[id_], slot.ghost))
            if (chosen := next(same, able[0] if able else None)) is not None:
                found[chosen] = slot.node
        return found

    def put_back(self, lifted: Mapping[str, Slot], used: Iterable[tuple[Kin, str]]) -> None:
        """Keeps again what was not used: each placement uses up one slot, at best that of its node."""
        left = dict(lifted)
        for kin, node in used:
            ours = [id_ for id_, slot in left.items() if slot.kin == kin]
            if ours:
                chosen = next((id_ for id_ in ours if left[id_].node == node), ours[0])
                del left[chosen]
                del self._slots[chosen]
        for id_, slot in left.items():
            self._occupy(id_, slot)

    def expire(self, now: float) -> int:
        """Gives up what was kept for too long, or on a node that is gone. How many there were."""
        over = [id_ for id_, slot in self._slots.items() if now >= slot.until or slot.node not in self._world.nodes]
        for id_ in over:
            self._vacate(id_, self._slots.pop(id_))
        return len(over)

    def _occupy(self, id_: str, slot: Slot) -> None:
        self._world.assume(slot.ghost, slot.node)
        for number, result in enumerate(slot.devices):
            self._world.hold(f"{id_}/{number}", result)

    def _vacate(self, id_: str, slot: Slot) -> None:
        self._world.forget(slot.ghost)
        for number in range(len(slot.devices)):
            self._world.release(f"{id_}/{number}")


def kin_of(pod: pods.Pod, gang: gangs.GangKey) -> Kin | None:
    """Who may take the pod's place: its gang, else whatever its controller makes; nobody if nothing does."""
    if gangs.is_shared(gang):
        return gang
    owner = next((one.uid for one in pod.metadata.owner_references if one.controller), "")
    return ("", owner) if owner else None


def _asks_alike(one: pods.Pod, other: pods.Pod) -> bool:
    return requests.pod_request(one) == requests.pod_request(other)


def _ghost(pod: pods.Pod) -> pods.Pod:
    """Takes a pod's room and nothing else: no claim, no label anybody could be drawn to, no node."""
    metadata = msgspec.structs.replace(pod.metadata, uid=f"slot/{pod.metadata.uid}", labels={})
    spec = msgspec.structs.replace(pod.spec, node_name="", resource_claims=(), volumes=())
    return pods.Pod(metadata=metadata, spec=spec)
