"""Records the slot of a pod that is evicted to move elsewhere: before, after, or if it stays after all.

Given evictions as the evictor carries them out. The slot is stored as an Intent before the pod is
evicted, so that a new leader keeps it too, and counts from the eviction on. Never evicts.
"""

from __future__ import annotations

from dovetail.kubetypes.core import pods
from dovetail.live.evict import nominator, slot_codec, slot_reservations
from dovetail.live.intents import intent_store
from dovetail.model import plan
from dovetail.ports import clock as clocks


class SlotRecorder:
    """Keeps slots in memory and on the API server."""

    def __init__(
        self,
        slots: slot_reservations.SlotReservations,
        intents: intent_store.IntentStore,
        clock: clocks.Clock,
        *,
        slot_seconds: float,
    ) -> None:
        self._slots = slots
        self._intents = intents
        self._clock = clock
        self._slot_seconds = slot_seconds

    async def before_eviction(self, eviction: plan.Eviction, pod: pods.Pod) -> None:
        """Stores the slot of a pod that is about to be evicted, if it moves anywhere."""
        note = slot_codec.intent_for(
            eviction, pod, now=self._clock.now(), seconds=self._slot_seconds
        )
        if note is None:
            return
        patience = nominator.PATIENCE_SECONDS
        is_stored = await self._intents.try_persist(note, patience_seconds=patience)
        self._slots.begin_eviction(eviction, pod, note if is_stored else None)

    def evicted(self, eviction: plan.Eviction, pod: pods.Pod) -> None:
        """The pod ends: its room at the new node is kept from now on."""
        self._slots.reserve(eviction, pod, self._clock.monotonic())

    def not_evicted(self, eviction: plan.Eviction) -> None:
        """The pod stays, according to the server's answer."""
        self._slots.eviction_failed(eviction.pod.uid, self._clock.monotonic())
