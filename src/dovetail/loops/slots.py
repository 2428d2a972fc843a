"""Keeps room for what takes the place of a pod that was moved: resources and devices of a node, for a time.

Given evictions that name a node to move to, and what a predecessor put down about them. Whoever comes next of that gang
is asked about first, alone, with the room lifted; what it does not use is kept again until the time is up. What was put
down about a place is over once somebody is bound there. Never decides, never writes.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.loops import places
from dovetail.loops.places import Kin, kin_of
from dovetail.model import claims, intents, plan, pods, requests
from dovetail.world.events import pod_id
from dovetail.world.world import World

__all__ = ["Kin", "Slot", "Slots", "Used", "kin_of"]

LOG = logging.getLogger("dovetail.schedule")
DOUBT_SECONDS: Final = 30.0  # a pod that was asked to end, and is said to stay, may end all the same: no answer came


class Slot(NamedTuple):
    """Room on a node, for whom and until when."""

    kin: Kin
    node: str
    ghost: pods.Pod  # what is assumed there meanwhile
    devices: tuple[claims.AllocationResult, ...]
    until: float
    note: intents.Intent | None = None  # what was put down about it


class Asked(NamedTuple):
    """A pod that is asked to end, and what was put down about its place before."""

    eviction: plan.Eviction
    pod: pods.Pod
    note: intents.Intent | None
    until: float | None = None  # it seems to stay: for how long that is doubted


class Used(NamedTuple):
    """A pod that was given room where some was kept for its kin, or elsewhere."""

    kin: Kin
    node: str
    uid: str


class Slots:
    """Everything that is kept."""

    def __init__(self, world: World, *, seconds: float) -> None:
        self._world = world
        self._seconds = seconds
        self._slots: dict[str, Slot] = {}  # by the id of the ghost
        self._spent: dict[str, tuple[Slot, str]] = {}  # given to a pod of which nobody knows yet whether it is bound
        self._asked: dict[str, Asked] = {}  # by the uid of the pod
        self.over: list[intents.Intent] = []  # what was put down and is to go

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is kept, and nothing is to be looked after."""
        return not self._slots and not self._spent and not self._asked and not self.over

    def ask(self, eviction: plan.Eviction, pod: pods.Pod, note: intents.Intent | None) -> None:
        """The pod is about to be asked to end; this was put down about its place."""
        if (before := self._asked.get(pod.metadata.uid)) is not None:
            self._end(before.note)
        self._asked[pod.metadata.uid] = Asked(eviction, pod, note)

    def stays(self, uid: str, now: float) -> None:
        """The pod does not end, as far as is known."""
        if (one := self._asked.get(uid)) is not None:
            self._asked[uid] = one._replace(until=now + DOUBT_SECONDS)

    def keep(self, eviction: plan.Eviction, pod: pods.Pod, now: float) -> None:
        """The pod goes; its place at the node it was to move to is kept."""
        asked = self._asked.pop(pod.metadata.uid, None)
        note = None if asked is None else asked.note
        ghost = places.ghost_of(pod)
        kin = kin_of(pod, (eviction.gang.namespace, eviction.gang.name))
        if kin is None or eviction.moves_to not in self._world.nodes or pod_id(ghost) in self._slots:
            self._end(note)
            return
        self._put(Slot(kin, eviction.moves_to, ghost, eviction.keeps, now + self._seconds, note))

    def taking(self, now: float, moment: datetime.datetime) -> Callable[[intents.Intent], None]:
        """Keeps what a predecessor kept and is still to come, one note after the other, the oldest first."""
        reading = places.Reading(self._world, moment, longest_seconds=self._seconds)

        def take(note: intents.Intent) -> None:
            match reading.judged(note):
                case places.Place(kin, node, ghost, devices, seconds):
                    LOG.info("place kept", extra={"intent": note.metadata.name, "node": node, "seconds": seconds})
                    self._put(Slot(kin, node, ghost, devices, now + seconds, note))
                case places.Over(why, is_wrong):
                    say = LOG.error if is_wrong else LOG.info
                    say("place not kept", extra={"intent": note.metadata.name, "why": why})
                    self._end(note)

        return take

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

    def put_back(self, lifted: Mapping[str, Slot], used: Iterable[Used]) -> None:
        """Keeps again what was not used: each placement uses up one slot, at best that of its node."""
        left = dict(lifted)
        for one in used:
            ours = [id_ for id_, slot in left.items() if slot.kin == one.kin]
            if ours:
                chosen = next((id_ for id_ in ours if left[id_].node == one.node), ours[0])
                self._spent[chosen] = (left.pop(chosen), one.uid)
                del self._slots[chosen]
        for id_, slot in left.items():
            self._occupy(id_, slot)

    def expire(self, now: float) -> int:
        """Gives up what was kept for too long, or on a node that is gone. How many there were."""
        self.review(now)
        over = [id_ for id_, slot in self._slots.items() if now >= slot.until or slot.node not in self._world.nodes]
        for id_ in over:
            slot = self._slots.pop(id_)
            self._vacate(id_, slot)
            self._end(slot.note)
        return len(over)

    def review(self, now: float) -> None:
        """What was given to a pod is kept again if the pod could not be bound, and is over if it was.

        So is, or is not, the place of a pod that seemed to stay.
        """
        for uid, one in [*self._asked.items()]:
            if one.until is None:
                continue
            found = self._world.pods.get(uid)
            if found is None or not places.stays(found):
                self.keep(one.eviction, one.pod, now)
            elif now >= one.until:
                self._end(self._asked.pop(uid).note)
        for id_, (slot, uid) in [*self._spent.items()]:
            pod = self._world.pods.get(uid)
            if pod is not None and pod.spec.node_name:
                del self._spent[id_]
                self._end(slot.note)
            elif uid not in self._world.assumed:
                del self._spent[id_]
                self._put(slot)

    def _put(self, slot: Slot) -> None:
        """Keeps it; what was put down about the same pod before is over."""
        id_ = pod_id(slot.ghost)
        if (before := self._slots.pop(id_, None)) is not None:
            self._vacate(id_, before)
            self._end(before.note)
        self._slots[id_] = slot
        self._occupy(id_, slot)

    def _end(self, note: intents.Intent | None) -> None:
        if note is not None:
            self.over.append(note)

    def _occupy(self, id_: str, slot: Slot) -> None:
        self._world.assume(slot.ghost, slot.node)
        for number, result in enumerate(slot.devices):
            self._world.hold(f"{id_}/{number}", result)

    def _vacate(self, id_: str, slot: Slot) -> None:
        self._world.forget(slot.ghost)
        for number in range(len(slot.devices)):
            self._world.release(f"{id_}/{number}")


def _asks_alike(one: pods.Pod, other: pods.Pod) -> bool:
    return requests.pod_request(one) == requests.pod_request(other)
