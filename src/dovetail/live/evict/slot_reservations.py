"""Reserves room on a node, for a time, for the replacement of a pod that was evicted to move there.

Given evictions that name a node to move to, and the Intents a predecessor stored about them. The gang's next pending
pod is decided first and alone, with the reservation lifted; slots it does not use are reserved again until they expire.
The Intent of a slot is obsolete once a pod is bound there. Never decides, never writes.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.kubetypes.resource import claims
from dovetail.live.evict import slot_codec
from dovetail.live.evict.slot_codec import ReplacementKey, replacement_key_of
from dovetail.model import plan, pod_requests
from dovetail.world.events import pod_id
from dovetail.world.world import World

__all__ = ["ReplacementKey", "Slot", "SlotReservations", "UsedSlot", "replacement_key_of"]

LOG = logging.getLogger("dovetail.schedule")
# A pod whose eviction seems to have failed may still end: the answer may have been lost.
RECHECK_SECONDS: Final = 30.0


class Slot(NamedTuple):
    """Reserved room on a node: for which replacement and until when."""

    replacement_key: ReplacementKey
    node: str
    placeholder: pods.Pod  # assumed on the node meanwhile
    devices: tuple[claims.AllocationResult, ...]
    until: float
    intent: intents.Intent | None = None  # where it is stored


class PendingEviction(NamedTuple):
    """A pod that is being evicted, and the Intent that stores its slot."""

    eviction: plan.Eviction
    pod: pods.Pod
    intent: intents.Intent | None
    until: float | None = None  # its eviction seems to have failed: until when to recheck


class UsedSlot(NamedTuple):
    """A pod that was placed, on a node reserved for its kind or on another."""

    replacement_key: ReplacementKey
    node: str
    uid: str


class SlotReservations:
    """All reserved slots."""

    def __init__(self, world: World, *, seconds: float) -> None:
        self._world = world
        self._seconds = seconds
        self._slots: dict[str, Slot] = {}  # by the placeholder's id
        # Used by a pod whose binding has not been confirmed: the slot and that pod's uid.
        self._spent: dict[str, tuple[Slot, str]] = {}
        self._evicting: dict[str, PendingEviction] = {}  # by the victim's uid
        self.obsolete: list[intents.Intent] = []  # obsolete, waiting to be deleted

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def is_idle(self) -> bool:
        """Whether no slot is reserved and no work is pending."""
        return not self._slots and not self._spent and not self._evicting and not self.obsolete

    def begin_eviction(
        self, eviction: plan.Eviction, pod: pods.Pod, intent: intents.Intent | None
    ) -> None:
        """The pod is about to be evicted; its slot is stored in this Intent."""
        if (before := self._evicting.get(pod.metadata.uid)) is not None:
            self._end(before.intent)
        self._evicting[pod.metadata.uid] = PendingEviction(eviction, pod, intent)

    def eviction_failed(self, uid: str, now: float) -> None:
        """The eviction seems to have failed."""
        if (pending := self._evicting.get(uid)) is not None:
            self._evicting[uid] = pending._replace(until=now + RECHECK_SECONDS)

    def reserve(self, eviction: plan.Eviction, pod: pods.Pod, now: float) -> None:
        """The pod is evicted; its slot on the node it moves to is reserved."""
        pending = self._evicting.pop(pod.metadata.uid, None)
        intent = None if pending is None else pending.intent
        placeholder = slot_codec.placeholder_pod(pod)
        replacement_key = replacement_key_of(pod, (eviction.gang.namespace, eviction.gang.name))

        is_known = eviction.moves_to in self._world.nodes
        if replacement_key is None or not is_known or pod_id(placeholder) in self._slots:
            self._end(intent)
            return

        self._put(
            Slot(
                replacement_key,
                eviction.moves_to,
                placeholder,
                eviction.keeps,
                now + self._seconds,
                intent,
            )
        )

    def restorer(
        self, now: float, wall_time: datetime.datetime
    ) -> Callable[[intents.Intent], None]:
        """Returns what restores a predecessor's slot from its Intent; call it with the oldest first."""
        reading = slot_codec.SlotReader(self._world, wall_time, longest_seconds=self._seconds)

        def restore(intent: intents.Intent) -> None:
            match reading.read(intent):
                case slot_codec.StoredSlot(replacement_key, node, placeholder, devices, seconds):
                    LOG.info(
                        "slot.restored",
                        extra={"intent": intent.metadata.name, "node": node, "seconds": seconds},
                    )
                    self._put(
                        Slot(replacement_key, node, placeholder, devices, now + seconds, intent)
                    )
                case slot_codec.DroppedSlot(why, is_wrong):
                    level = logging.ERROR if is_wrong else logging.INFO
                    extra = {"intent": intent.metadata.name, "why": why}
                    LOG.log(level, "slot.dropped: not reserved any more", extra=extra)
                    self._end(intent)

        return restore

    def lift(self, waiting: Collection[ReplacementKey]) -> dict[str, Slot]:
        """Frees the slots of gangs that wait. Restore or use them before deciding about other pods."""
        lifted = {
            slot_id: slot
            for slot_id, slot in self._slots.items()
            if slot.replacement_key in waiting
        }
        for slot_id, slot in lifted.items():
            self._vacate(slot_id, slot)
        return lifted

    def nodes_for(
        self, lifted: Mapping[str, Slot], waiting: Mapping[str, ReplacementKey]
    ) -> dict[str, str]:
        """By pending pod, the node reserved for it. A pod with the slot's exact request goes first."""
        nodes: dict[str, str] = {}
        for slot in lifted.values():
            unassigned = [uid for uid in waiting if uid not in nodes]
            candidates = [uid for uid in unassigned if waiting[uid] == slot.replacement_key]
            if candidates:
                nodes[self._best_match(slot, candidates)] = slot.node
        return nodes

    def _best_match(self, slot: Slot, candidates: Sequence[str]) -> str:
        """The first pod with the slot's exact request, else the first of all."""
        for uid in candidates:
            if _request_alike(self._world.pods[uid], slot.placeholder):
                return uid
        return candidates[0]

    def restore(self, lifted: Mapping[str, Slot], used: Iterable[UsedSlot]) -> None:
        """Reserves unused slots again: each placement uses up one slot, preferably that of its node."""
        unused = dict(lifted)
        for placed in used:
            slot_id = _slot_used_by(placed, unused)
            if slot_id is not None:
                self._spent[slot_id] = (unused.pop(slot_id), placed.uid)
                del self._slots[slot_id]

        for slot_id, slot in unused.items():
            self._occupy(slot_id, slot)

    def expire(self, now: float) -> int:
        """Drops slots whose time is over or whose node is gone. Returns how many."""
        self.recheck(now)
        expired = [
            slot_id
            for slot_id, slot in self._slots.items()
            if now >= slot.until or slot.node not in self._world.nodes
        ]
        for slot_id in expired:
            slot = self._slots.pop(slot_id)
            self._vacate(slot_id, slot)
            self._end(slot.intent)
        return len(expired)

    def recheck(self, now: float) -> None:
        """Settles what was uncertain: evictions that seemed to fail, and used slots whose pod was not bound yet."""
        self._review_evictions(now)
        self._review_spent()

    def _review_evictions(self, now: float) -> None:
        for uid, pending in [*self._evicting.items()]:
            if pending.until is None:
                continue

            pod = self._world.pods.get(uid)
            if pod is None or not slot_codec.is_staying(pod):
                self.reserve(pending.eviction, pending.pod, now)
            elif now >= pending.until:
                self._end(self._evicting.pop(uid).intent)

    def _review_spent(self) -> None:
        """A bound pod makes its slot obsolete; a slot whose pod failed to bind is reserved again."""
        for slot_id, (slot, uid) in [*self._spent.items()]:
            pod = self._world.pods.get(uid)
            if pod is not None and pod.spec.node_name:
                del self._spent[slot_id]
                self._end(slot.intent)
            elif uid not in self._world.assumed:
                del self._spent[slot_id]
                self._put(slot)

    def _put(self, slot: Slot) -> None:
        """Reserves it, in place of an earlier slot of the same pod."""
        slot_id = pod_id(slot.placeholder)
        if (before := self._slots.pop(slot_id, None)) is not None:
            self._vacate(slot_id, before)
            self._end(before.intent)
        self._slots[slot_id] = slot
        self._occupy(slot_id, slot)

    def _end(self, intent: intents.Intent | None) -> None:
        if intent is not None:
            self.obsolete.append(intent)

    def _occupy(self, slot_id: str, slot: Slot) -> None:
        self._world.assume(slot.placeholder, slot.node)
        for number, result in enumerate(slot.devices):
            self._world.hold(f"{slot_id}/{number}", result)

    def _vacate(self, slot_id: str, slot: Slot) -> None:
        self._world.forget(slot.placeholder)
        for number in range(len(slot.devices)):
            self._world.release(f"{slot_id}/{number}")


def _slot_used_by(placed: UsedSlot, slots: Mapping[str, Slot]) -> str | None:
    """The slot a placement uses up: one on its node, else any of its replacement key."""
    matching = [
        slot_id for slot_id, slot in slots.items() if slot.replacement_key == placed.replacement_key
    ]
    on_node = [slot_id for slot_id in matching if slots[slot_id].node == placed.node]
    return next(iter([*on_node, *matching]), None)


def _request_alike(pod: pods.Pod, placeholder: pods.Pod) -> bool:
    return pod_requests.pod_request(pod) == pod_requests.pod_request(placeholder)
