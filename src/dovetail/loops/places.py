"""The place of a pod that has to move, as it is put down before the pod is asked to end, and as a new leader reads it.

Given an eviction, or an intent and the World. A place that was put down counts once its pod ends, until its deadline,
unless something that came after the pod has a node already. Never writes, never keeps anything itself.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from dovetail.loops import intents as keeping
from dovetail.loops import recovery
from dovetail.model import claims, gangs, intents, meta, plan, pods, quantity, requests
from dovetail.schedule import order
from dovetail.world.world import World

TERMINAL: Final = ("Succeeded", "Failed")
_MADE_BY: Final = "made-by/"  # before the uid of an owner; no gang's name begins so

Kin = tuple[str, str]  # namespace, and a gang; or where every pod is a gang of its own, the uid of what makes them


class Place(NamedTuple):
    """A place that is to be kept, for whom, and for how many seconds more."""

    kin: Kin
    node: str
    ghost: pods.Pod
    devices: tuple[claims.AllocationResult, ...]
    seconds: float


class Over(NamedTuple):
    """A place that is not to be kept."""

    why: str
    is_wrong: bool = False  # nobody should have written it so


def kin_of(pod: pods.Pod, gang: gangs.GangKey) -> Kin | None:
    """Who may take the pod's place: its gang, else whatever its controller makes; nobody if nothing does."""
    return gang if gangs.is_shared(gang) else _made_by(pod.metadata.namespace, _controller(pod))


def ghost_of(pod: pods.Pod) -> pods.Pod:
    """Takes a pod's room and nothing else: no claim, no label anybody could be drawn to, no node."""
    metadata = msgspec.structs.replace(pod.metadata, uid=f"slot/{pod.metadata.uid}", labels={})
    spec = msgspec.structs.replace(pod.spec, node_name="", resource_claims=(), volumes=())
    return pods.Pod(metadata=metadata, spec=spec)


def noted(eviction: plan.Eviction, pod: pods.Pod, *, now: datetime.datetime, seconds: float) -> intents.Intent | None:
    """What is put down about an eviction; None where nothing is to be kept."""
    gang = (eviction.gang.namespace, eviction.gang.name)
    if not eviction.moves_to or kin_of(pod, gang) is None:
        return None
    slot = intents.Slot(
        pod=pod.metadata.name,
        uid=pod.metadata.uid,
        owner=_controller(pod),
        node=eviction.moves_to,
        requests=_amounts(pod),
        devices=tuple(
            device_of(one) for result in eviction.keeps for one in result.devices.results if not one.admin_access
        ),
    )
    spec = intents.IntentSpec(gang=eviction.gang.name, deadline=keeping.stamp(now, seconds), slot=slot)
    return keeping.intent_of(pod.metadata.namespace, spec)


class Reading:
    """Places that a predecessor kept, against one World. Each pod that has come counts for one of them."""

    def __init__(self, world: World, now: datetime.datetime, *, longest_seconds: float) -> None:
        self._world = world
        self._now = now
        self._longest = longest_seconds
        self._counted: set[str] = set()

    def judged(self, note: intents.Intent) -> Place | Over:
        """Whether the place is still to be kept. No longer than is usual here, whatever it says."""
        slot = note.spec.slot
        assert slot is not None
        until = order.instant(note.spec.deadline or None)
        if until is order.NEVER or until.tzinfo is None:
            return Over("it has no deadline", is_wrong=True)
        if (kin := self._kin(note, slot)) is None:
            return Over("nothing takes the place of its pod", is_wrong=True)
        if not slot.uid or _is_less_than_nothing(slot):
            return Over("it says of no pod what it takes", is_wrong=True)
        seconds = min(self._longest, (until - self._now).total_seconds())
        if seconds <= 0:
            return Over("its time is over")
        if slot.node not in self._world.nodes:
            return Over(f"node {slot.node} is gone")
        if (pod := self._world.pods.get(slot.uid)) is not None and stays(pod):
            return Over("its pod was not asked to end")
        if self._has_come(kin, slot, order.instant(note.metadata.creation_timestamp)):
            return Over("what takes its pod's place has come")
        return Place(
            kin, slot.node, _ghost(note, slot), (allocation_of(slot.devices),) if slot.devices else (), seconds
        )

    def _kin(self, note: intents.Intent, slot: intents.Slot) -> Kin | None:
        gang = (note.metadata.namespace, note.spec.gang)
        return gang if gangs.is_shared(gang) else _made_by(note.metadata.namespace, slot.owner)

    def _has_come(self, kin: Kin, slot: intents.Slot, since: datetime.datetime) -> bool:
        """Whether somebody who was made since then took the place, or another: whoever is on the node counts first."""
        came = [pod for pod in self._members(kin) if self._counts(pod, slot, since)]
        came.sort(key=lambda pod: pod.spec.node_name != slot.node)
        if came:
            self._counted.add(came[0].metadata.uid)
        return bool(came)

    def _members(self, kin: Kin) -> Iterator[pods.Pod]:
        namespace, name = kin
        if not name.startswith(_MADE_BY):
            found: Iterable[str] = self._world.gangs.members(kin)
            yield from (pod for id_ in found if (pod := self._world.pods.get(id_)) is not None)
            return
        owner = name.removeprefix(_MADE_BY)
        for pod in self._world.pods.values():
            if pod.metadata.namespace == namespace and _controller(pod) == owner:
                yield pod

    def _counts(self, pod: pods.Pod, slot: intents.Slot, since: datetime.datetime) -> bool:
        if pod.metadata.uid in (slot.uid, *self._counted) or order.instant(pod.metadata.creation_timestamp) < since:
            return False
        return bool(pod.spec.node_name) or bool(recovery.held_by(pod, self._world))


def _is_less_than_nothing(slot: intents.Slot) -> bool:
    """Whether keeping it would make room that is not there."""
    amounts = [*slot.requests.values(), *(amount for one in slot.devices for amount in one.consumed_capacity.values())]
    return any(amount.sign < 0 for amount in amounts)


def stays(pod: pods.Pod) -> bool:
    """Whether a pod is not about to end."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in TERMINAL


def _controller(pod: pods.Pod) -> str:
    return next((one.uid for one in pod.metadata.owner_references if one.controller), "")


def _made_by(namespace: str, owner: str) -> Kin | None:
    """An owner makes pods in its own namespace: the same uid named elsewhere is somebody else's word."""
    return (namespace, f"{_MADE_BY}{owner}") if owner else None


def _amounts(pod: pods.Pod) -> dict[str, quantity.Quantity]:
    """What the pod takes of a node, as one container would ask for it."""
    taken = requests.pod_request(pod)
    found = {
        requests.CPU: f"{taken.milli_cpu}m",
        requests.MEMORY: str(taken.memory_bytes),
        requests.EPHEMERAL_STORAGE: str(taken.ephemeral_bytes),
        **{name: str(amount) for name, amount in taken.scalars},
    }
    return {name: quantity.parse(text) for name, text in found.items() if text not in ("0", "0m")}


def _ghost(note: intents.Intent, slot: intents.Slot) -> pods.Pod:
    metadata = meta.ObjectMeta(namespace=note.metadata.namespace, name=slot.pod, uid=f"slot/{slot.uid}")
    asks = pods.ResourceRequirements(requests=slot.requests)
    return pods.Pod(metadata=metadata, spec=pods.PodSpec(containers=(pods.Container(name="slot", resources=asks),)))


def device_of(result: claims.DeviceRequestAllocationResult) -> intents.Device:
    """A device of an allocation as it is put down."""
    return intents.Device(
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id or "",
        consumed_capacity=result.consumed_capacity,
    )


def allocation_of(devices: Iterable[intents.Device]) -> claims.AllocationResult:
    """Devices that were put down as an allocation."""
    results = tuple(
        claims.DeviceRequestAllocationResult(
            driver=one.driver,
            pool=one.pool,
            device=one.device,
            share_id=one.share_id or None,
            consumed_capacity=one.consumed_capacity,
        )
        for one in devices
    )
    return claims.AllocationResult(devices=claims.DeviceAllocationResult(results=results))
