"""Encodes the reserved slot of a pod that moves as an Intent, and reads it back for a new leader.

Given an eviction, or an Intent and the World. A stored slot is valid once its pod ends and until its deadline, unless a
replacement of the pod has a node already. Never writes, never reserves anything itself.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.kubetypes.resource import claims
from dovetail.live.intents import intent_store, recovery
from dovetail.model import gangs, plan, pod_requests
from dovetail.quantity import quantity
from dovetail.schedule import pod_order
from dovetail.world.world import World

_MADE_BY: Final = "made-by/"  # before a controller's uid; no gang name starts with it

# Which pods may replace an evicted one: namespace and gang, or the controller's uid for lone pods.
ReplacementKey = tuple[str, str]


class StoredSlot(NamedTuple):
    """A slot to reserve: for which replacement, where, and for how many more seconds."""

    replacement_key: ReplacementKey
    node: str
    placeholder: pods.Pod
    devices: tuple[claims.AllocationResult, ...]
    seconds: float


class DroppedSlot(NamedTuple):
    """A slot that is not reserved any more, and why."""

    why: str
    is_invalid: bool = False  # the intent is invalid; the scheduler never writes one like it


def replacement_key_of(pod: pods.Pod, gang: gangs.GangKey) -> ReplacementKey | None:
    """Which pods may replace this one: its gang, else its controller's pods; None without either."""
    if gangs.is_shared(gang):
        return gang
    return _made_by(pod.metadata.namespace, _controller(pod))


def placeholder_pod(pod: pods.Pod) -> pods.Pod:
    """A placeholder that takes the pod's room and nothing else: no claim, no label, no node."""
    metadata = msgspec.structs.replace(pod.metadata, uid=f"slot/{pod.metadata.uid}", labels={})
    spec = msgspec.structs.replace(pod.spec, node_name="", resource_claims=(), volumes=())
    return pods.Pod(metadata=metadata, spec=spec)


def intent_for(
    eviction: plan.Eviction, pod: pods.Pod, *, now: datetime.datetime, seconds: float
) -> intents.Intent | None:
    """The Intent that stores an eviction's slot; None where there is nothing to reserve."""
    gang = (eviction.gang.namespace, eviction.gang.name)
    if not eviction.moves_to or replacement_key_of(pod, gang) is None:
        return None

    devices = tuple(
        device_of(device)
        for result in eviction.keeps
        for device in result.devices.results
        if not device.admin_access
    )
    slot = intents.Slot(
        pod=pod.metadata.name,
        uid=pod.metadata.uid,
        owner=_controller(pod),
        node=eviction.moves_to,
        requests=_amounts(pod),
        devices=devices,
    )
    spec = intents.IntentSpec(
        gang=eviction.gang.name, deadline=intent_store.deadline_text(now, seconds), slot=slot
    )
    return intent_store.intent_of(pod.metadata.namespace, spec)


class SlotReader:
    """Reads the slots a predecessor stored against one World. Each replacement uses up one of them."""

    def __init__(self, world: World, now: datetime.datetime, *, longest_seconds: float) -> None:
        self._world = world
        self._now = now
        self._longest = longest_seconds
        self._counted: set[str] = set()

    def read(self, intent: intents.Intent) -> StoredSlot | DroppedSlot:
        """Whether the slot is still reserved. Never for longer than this scheduler reserves slots."""
        slot = intent.spec.slot
        assert slot is not None
        replacement_key = self._replacement_key(intent, slot)
        deadline = pod_order.instant(intent.spec.deadline or None)

        if deadline is pod_order.NEVER or deadline.tzinfo is None:
            return DroppedSlot("it has no deadline", is_invalid=True)
        if replacement_key is None:
            return DroppedSlot(
                "it names neither a gang nor an owner that could replace its pod", is_invalid=True
            )
        if not slot.uid or _has_negative_amount(slot):
            return DroppedSlot(
                "it does not say which pod it is for and what that pod requests", is_invalid=True
            )

        seconds = min(self._longest, (deadline - self._now).total_seconds())
        if seconds <= 0:
            return DroppedSlot("its deadline has passed")
        if slot.node not in self._world.nodes:
            return DroppedSlot(f"node {slot.node} is gone")

        pod = self._world.pods.get(slot.uid)
        if pod is not None and is_staying(pod):
            return DroppedSlot("its pod was not evicted")
        if self._is_replaced(
            replacement_key, slot, pod_order.instant(intent.metadata.creation_timestamp)
        ):
            return DroppedSlot("its pod's replacement has a node already")

        devices = (allocation_of(slot.devices),) if slot.devices else ()
        return StoredSlot(replacement_key, slot.node, _placeholder(intent, slot), devices, seconds)

    def _replacement_key(self, intent: intents.Intent, slot: intents.Slot) -> ReplacementKey | None:
        gang = (intent.metadata.namespace, intent.spec.gang)
        if gangs.is_shared(gang):
            return gang
        return _made_by(intent.metadata.namespace, slot.owner)

    def _is_replaced(
        self, replacement_key: ReplacementKey, slot: intents.Slot, since: datetime.datetime
    ) -> bool:
        """Whether a pod created since then took this slot or another; a pod on the slot's node counts first."""
        replacements = [
            pod for pod in self._members(replacement_key) if self._counts(pod, slot, since)
        ]
        if not replacements:
            return False

        replacements.sort(key=lambda pod: pod.spec.node_name != slot.node)
        self._counted.add(replacements[0].metadata.uid)
        return True

    def _members(self, replacement_key: ReplacementKey) -> Iterator[pods.Pod]:
        namespace, name = replacement_key
        if not name.startswith(_MADE_BY):
            for pod_id in self._world.gangs.members(replacement_key):
                if (pod := self._world.pods.get(pod_id)) is not None:
                    yield pod
            return

        owner = name.removeprefix(_MADE_BY)
        for pod in self._world.pods.values():
            if pod.metadata.namespace == namespace and _controller(pod) == owner:
                yield pod

    def _counts(self, pod: pods.Pod, slot: intents.Slot, since: datetime.datetime) -> bool:
        uid = pod.metadata.uid
        if uid == slot.uid or uid in self._counted:
            return False
        if pod_order.instant(pod.metadata.creation_timestamp) < since:
            return False
        return bool(pod.spec.node_name) or bool(recovery.reserved_claims(pod, self._world))


def _has_negative_amount(slot: intents.Slot) -> bool:
    """Whether reserving it would add capacity that does not exist."""
    amounts = [*slot.requests.values()]
    for device in slot.devices:
        amounts += device.consumed_capacity.values()
    return any(amount.sign < 0 for amount in amounts)


def is_staying(pod: pods.Pod) -> bool:
    """Whether a pod is neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in pods.TERMINAL_PHASES


def _controller(pod: pods.Pod) -> str:
    references = pod.metadata.owner_references
    return next((reference.uid for reference in references if reference.controller), "")


def _made_by(namespace: str, owner: str) -> ReplacementKey | None:
    """With the namespace, as an owner creates pods only there: the same uid elsewhere is not to be trusted."""
    return (namespace, f"{_MADE_BY}{owner}") if owner else None


def _amounts(pod: pods.Pod) -> dict[str, quantity.Quantity]:
    """The pod's total request, as one container would write it."""
    request = pod_requests.pod_request(pod)
    texts = {
        pod_requests.CPU: f"{request.milli_cpu}m",
        pod_requests.MEMORY: str(request.memory_bytes),
        pod_requests.EPHEMERAL_STORAGE: str(request.ephemeral_bytes),
    }
    texts |= {name: str(amount) for name, amount in request.scalars}
    return {name: quantity.parse(text) for name, text in texts.items() if text not in ("0", "0m")}


def _placeholder(intent: intents.Intent, slot: intents.Slot) -> pods.Pod:
    metadata = meta.ObjectMeta(
        namespace=intent.metadata.namespace, name=slot.pod, uid=f"slot/{slot.uid}"
    )
    resources = pods.ResourceRequirements(requests=slot.requests)
    container = pods.Container(name="slot", resources=resources)
    return pods.Pod(metadata=metadata, spec=pods.PodSpec(containers=(container,)))


def device_of(result: claims.DeviceRequestAllocationResult) -> intents.Device:
    """A device of an allocation, as an Intent stores it."""
    return intents.Device(
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id or "",
        consumed_capacity=result.consumed_capacity,
    )


def allocation_of(devices: Iterable[intents.Device]) -> claims.AllocationResult:
    """Stored devices as an allocation."""
    results = tuple(
        claims.DeviceRequestAllocationResult(
            driver=device.driver,
            pool=device.pool,
            device=device.device,
            share_id=device.share_id or None,
            consumed_capacity=device.consumed_capacity,
        )
        for device in devices
    )
    return claims.AllocationResult(devices=claims.DeviceAllocationResult(results=results))
