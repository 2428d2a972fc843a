"""Carries one placement out: claims first, all of them, then the binding; each answer is compared with what was sent.

Given a placement and the pod. Order per claim: finalizer, then allocation and reservation in one status write. Ends
with the pod bound, or with a reason why not, and then nothing of ours is under way any more. Never decides a placement.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from dovetail.loops import attempts, claiming, provisioning, settle
from dovetail.model import claims, kinds, meta, objects, plan, pods, quotas
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.world.events import ObjectKey

MAX_GENERATED_BASE: Final = 58  # what apimachinery keeps of a name before it appends five characters
CONDITION_POLL_SECONDS: Final = 1.0

R = TypeVar("R")


class Bound(NamedTuple):
    """The pod has its node."""

    node: str


class Abandoned(NamedTuple):
    """The pod has no node. Claims in `release` hold devices for nothing."""

    reason: str
    release: tuple[ObjectKey, ...] = ()
    is_refused: bool = False  # the server will say the same again: worth telling the pod's owner
    is_futile: bool = False  # and no other placement would change that


Ending = Bound | Abandoned


class Load(NamedTuple):
    """What is carried: a placement, all claims its pod names, and those that were reserved for it on the way."""

    placement: plan.Placement
    uses: tuple[ObjectKey, ...]
    held: list[ObjectKey]


class Office(NamedTuple):
    """What carrying out needs to know and tell."""

    claim: Callable[[ObjectKey], claims.ResourceClaim | None]  # as last seen
    user: Callable[[plan.PodRef, ObjectKey], claims.ResourceClaimConsumerReference]  # whom a claim is reserved for
    saw: Callable[[claims.ResourceClaim], None]  # what a write answered is news too
    unsound: Callable[[plan.Placement], str | None]  # why what was decided no longer fits
    dropped: Callable[[plan.PodRef, str], None]  # a field the server does not keep
    written: Callable[[str], None]  # all claims of the pod of this uid are written
    patience: Callable[[str], AbstractContextManager[None]]  # for as long as the pod of this uid waits for others


class Carrier:
    """Writes placements."""

    def __init__(
        self,
        settler: settle.Settler,
        clock: clocks.Clock,
        office: Office,
        *,
        volumes: provisioning.Volumes,
        conditions_timeout: float = 600.0,
    ) -> None:
        self._settler = settler
        self._clock = clock
        self._office = office
        self._volumes = volumes
        self._conditions_timeout = conditions_timeout

    async def carry(self, placement: plan.Placement, uses: tuple[ObjectKey, ...] = ()) -> Ending:
        """The pod bound, or why not. `uses` are all claims the pod names, also those it had before."""
        load = Load(placement, uses, [])
        problem = await self.claim(load) or await self.prepare(load) or self.doubt(load)
        return problem or await self.bind(load)

    async def claim(self, load: Load) -> Abandoned | None:
        """All claims have their devices and are reserved for the pod, or why not."""
        problem = await self._guarded(load, self._claim_all(load.placement, load.held))
        if problem is None:
            self._office.written(load.placement.pod.uid)
        return problem

    async def prepare(self, load: Load) -> Abandoned | None:
        """Waits for devices and volumes that others make ready; volumes are asked for first, so that both go on."""
        return await self._guarded(load, self._prepared(load.placement, _needed(load)))

    def doubt(self, load: Load) -> Abandoned | None:
        """A last look right before the binding: why it must not be bound after all."""
        placement = load.placement
        if lost := next((key for key in _needed(load) if not self._is_ours(key, placement.pod)), None):
            return Abandoned(f"claim {lost[0]}/{lost[1]} is not reserved for the pod any more")
        if reason := self._office.unsound(placement):
            return Abandoned(f"no longer fits: {reason}", release=_fresh(placement))
        return None

    async def bind(self, load: Load) -> Ending:
        """Gives the pod its node."""
        return await self._guarded(load, self._bind(load.placement))

    async def _guarded(self, load: Load, work: Coroutine[Any, Any, R]) -> R | Abandoned:
        """What the server refuses for good, or what others did first, ends it with a reason."""
        try:
            return await work
        except failures.Refused as refused:
            over = quotas.exceeded(str(refused))
            said = f"the API server refuses: {refused}" if over is None else over.told(load.placement.pod.namespace)
            is_futile = isinstance(refused, failures.Futile)
            return Abandoned(said, release=tuple(load.held), is_refused=True, is_futile=is_futile)
        except (failures.Conflict, failures.AlreadyThere, failures.Missing) as overtaken:
            return Abandoned(f"overtaken: {overtaken}")
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:  # an answer that nothing here expects, of a write that is over
            return Abandoned(f"the API server says: {failure}", release=tuple(load.held), is_refused=True)

    async def _claim_all(self, placement: plan.Placement, held: list[ObjectKey]) -> Abandoned | None:
        fresh = {(one.claim.namespace, one.claim.name): one.result for one in placement.allocations}
        for ref in placement.reservations:
            key = (ref.namespace, ref.name)
            if problem := await self._reserve(placement, key, fresh.get(key)):
                return problem
            held.append(key)
        if placement.made is None:
            return None
        key = made_key(placement)
        if placement.made.existing is None and (problem := await self._make(placement, key)):
            return problem
        if problem := await self._reserve(placement, key, placement.made.result):
            return problem
        held.append(key)
        return await self._map_requests(placement, key)

    async def _reserve(
        self, placement: plan.Placement, key: ObjectKey, result: claims.AllocationResult | None
    ) -> Abandoned | None:
        known = self._office.claim(key)
        if known is None:
            return Abandoned(f"claim {key[0]}/{key[1]} is gone")
        stamped = None if result is None else _stamped(result, self._clock.now())
        user = self._office.user(placement.pod, key)
        step = claiming.reserve(known.metadata.uid, stamped, user, expected=known.status.allocation)
        target = apis.Target(kinds.CLAIM, *key)
        ending = await self._settler.brought_about(target, known, step)
        if isinstance(ending, settle.GiveUp):
            return Abandoned(f"claim {key[0]}/{key[1]}: {ending.reason}")
        self._office.saw(ending.found)
        missing = claiming.dropped_fields(stamped, ending.found.status.allocation) if stamped is not None else ()
        if missing:
            for field in missing:
                self._office.dropped(placement.pod, field)
            said = f"the API server does not keep {', '.join(missing)}: a feature this claim needs is off there"
            return Abandoned(said, release=(key,), is_refused=True)
        return None

    async def _make(self, placement: plan.Placement, key: ObjectKey) -> Abandoned | None:
        """Creates the claim for extended resources. Its name follows from the pod, so repeating makes no second one."""
        assert placement.made is not None
        body = objects.encode_struct(_protected(placement.made.claim, key))
        collection = apis.Target(kinds.CLAIM, key[0])
        try:
            document = await self._settler.answered("create", lambda: self._settler.api.create(collection, body))
        except failures.AlreadyThere:
            document = await self._settler.answered(
                "read", lambda: self._settler.api.get(collection._replace(name=key[1]))
            )
        except failures.Missing:
            return Abandoned(f"namespace {key[0]} is gone")
        made = objects.decode_struct(claims.ResourceClaim, document)
        if not any(owner.controller and owner.uid == placement.pod.uid for owner in made.metadata.owner_references):
            return Abandoned(f"claim {key[0]}/{key[1]} belongs to another pod", is_refused=True)
        self._office.saw(made)
        return None

    async def _map_requests(self, placement: plan.Placement, key: ObjectKey) -> Abandoned | None:
        """Tells the kubelet which request of the claim serves which container."""
        assert placement.made is not None
        told = pods.PodExtendedResourceClaimStatus(request_mappings=placement.made.mappings, resource_claim_name=key[1])
        patch = {
            "metadata": {"uid": placement.pod.uid},
            "status": {"extendedResourceClaimStatus": objects.tree_of(told)},
        }
        target = apis.Target(kinds.POD, placement.pod.namespace, placement.pod.name, "status")
        body = objects.encode_tree(patch)
        try:
            await self._settler.answered("pod_status", lambda: self._settler.api.patch(target, body, brief=True))
        except (failures.Missing, failures.Conflict):
            return Abandoned("the pod is gone")
        return None

    def _is_ours(self, key: ObjectKey, pod: plan.PodRef) -> bool:
        claim = self._office.claim(key)
        if claim is None or claim.status.allocation is None:
            return False
        return claiming.is_user(claim, self._office.user(pod, key).uid)

    async def _prepared(self, placement: plan.Placement, needed: tuple[ObjectKey, ...]) -> Abandoned | None:
        if failed := await self._volumes.write(placement):
            return Abandoned(failed.why, release=_fresh(placement))
        with self._office.patience(placement.pod.uid):
            if problem := await self._wait_for_conditions(placement, needed):
                return problem
            if placement.volumes and (failed := await self._volumes.bound(placement)):
                return Abandoned(failed.why, release=_fresh(placement))
        return None

    async def _wait_for_conditions(self, placement: plan.Placement, held: tuple[ObjectKey, ...]) -> Abandoned | None:
        """Devices that must be prepared first say so in their conditions; a failed or late one is given back."""
        waiting = [key for key in held if (claim := self._office.claim(key)) is not None and _conditions_of(claim)]
        if not waiting:
            return None
        deadline = self._clock.monotonic() + self._conditions_timeout
        while True:
            found = [claim for key in waiting if (claim := self._office.claim(key)) is not None]
            if len(found) < len(waiting):
                return Abandoned("a claim is gone")
            if failed := next((one for claim in found for one in _failed(claim)), None):
                return Abandoned(f"a device cannot be prepared: {failed}", release=_fresh(placement))
            if all(_is_prepared(claim) for claim in found):
                return None
            if reason := self._office.unsound(placement):  # the node may be gone long before a driver says anything
                return Abandoned(f"no longer fits: {reason}", release=_fresh(placement))
            if self._clock.monotonic() >= deadline:
                said = f"devices were not prepared within {self._conditions_timeout:.0f} s"
                return Abandoned(said, release=_fresh(placement))
            await self._clock.sleep(CONDITION_POLL_SECONDS)

    async def _bind(self, placement: plan.Placement) -> Ending:
        ref, pause = placement.pod, settle.FIRST_PAUSE
        target = apis.Target(kinds.POD, ref.namespace, ref.name, "binding")
        body = objects.encode_tree(
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": placement.node},
            }
        )
        tries = attempts.Attempts()
        while True:
            try:
                await self._settler.once("binding", lambda: self._settler.api.create(target, body))
                return Bound(placement.node)
            except failures.Missing:
                return Abandoned("the pod is gone")
            except (failures.Conflict, failures.Unavailable, failures.Unauthorised) as failure:
                is_last = self._settler.is_futile(tries, failure)
            if is_last:
                await self._settler.pause(attempts.QUIET_SECONDS)
            ending = await self._look_at(placement)
            if ending is not None:
                return ending
            if is_last:
                raise tries.verdict(self._clock.monotonic())
            await self._settler.pause(pause)
            pause = min(pause * 2, settle.LONGEST_PAUSE)

    async def is_bound(self, pod: pods.Pod) -> bool:
        """Whether the server says that the pod has a node."""
        target = apis.Target(kinds.POD, pod.metadata.namespace, pod.metadata.name)
        try:
            document = await self._settler.answered("read", lambda: self._settler.api.get(target))
        except failures.Missing:
            return False
        found = objects.decode_struct(pods.Pod, document)
        return found.metadata.uid == pod.metadata.uid and bool(found.spec.node_name)

    async def _look_at(self, placement: plan.Placement) -> Ending | None:
        """What became of a binding that was not confirmed; None if the pod still has no node."""
        ref = placement.pod
        target = apis.Target(kinds.POD, ref.namespace, ref.name)
        try:
            document = await self._settler.answered("read", lambda: self._settler.api.get(target))
        except failures.Missing:
            return Abandoned("the pod is gone")
        found = objects.decode_struct(pods.Pod, document)
        if found.metadata.uid != ref.uid:
            return Abandoned("the pod is gone")
        if found.spec.node_name:
            ours = found.spec.node_name == placement.node
            return Bound(placement.node) if ours else Abandoned(f"somebody else bound it to {found.spec.node_name}")
        return Abandoned("the pod is being deleted") if found.metadata.deletion_timestamp else None


def allocations_of(placement: plan.Placement) -> Mapping[ObjectKey, claims.AllocationResult]:
    """Every claim that gets devices by this placement, under the name it has or will have."""
    found = {(one.claim.namespace, one.claim.name): one.result for one in placement.allocations}
    if placement.made is not None:
        found[made_key(placement)] = placement.made.result
    return found


def made_key(placement: plan.Placement) -> ObjectKey:
    """The name of the claim made for the pod's extended resources: the same for the same wish, whoever makes it."""
    made = placement.made
    assert made is not None
    if made.existing is not None:
        return made.existing.namespace, made.existing.name
    base = (made.claim.metadata.generate_name or f"{placement.pod.name}-extended-resources-")[:MAX_GENERATED_BASE]
    wish = placement.pod.uid.encode() + objects.encode_struct(made.claim.spec)
    return placement.pod.namespace, base + hashlib.sha256(wish).hexdigest()[:5]


def _needed(load: Load) -> tuple[ObjectKey, ...]:
    """Every claim the pod needs, one made for its extended resources included."""
    placement = load.placement
    return (*load.uses, made_key(placement)) if placement.made is not None else load.uses


def _protected(claim: claims.ResourceClaim, key: ObjectKey) -> claims.ResourceClaim:
    metadata: meta.ObjectMeta = msgspec.structs.replace(
        claim.metadata, namespace=key[0], name=key[1], finalizers=(claims.DELETE_PROTECTION_FINALIZER,)
    )
    return msgspec.structs.replace(claim, api_version=kinds.CLAIM.api_version, kind="ResourceClaim", metadata=metadata)


def _fresh(placement: plan.Placement) -> tuple[ObjectKey, ...]:
    return tuple(allocations_of(placement))


def _stamped(result: claims.AllocationResult, now: datetime.datetime) -> claims.AllocationResult:
    moment = now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return msgspec.structs.replace(result, allocation_timestamp=moment)


def _conditions_of(claim: claims.ResourceClaim) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(one.binding_conditions for one in allocation.devices.results)


def _reported(claim: claims.ResourceClaim, result: claims.DeviceRequestAllocationResult) -> set[str]:
    """Conditions the driver reports as true for the device."""
    place = (result.driver, result.pool, result.device, result.share_id)
    return {
        condition.type
        for device in claim.status.devices
        if (device.driver, device.pool, device.device, device.share_id) == place
        for condition in device.conditions
        if condition.status == "True"
    }


def _is_prepared(claim: claims.ResourceClaim) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and all(
        set(result.binding_conditions) <= _reported(claim, result)
        for result in allocation.devices.results
        if result.binding_conditions
    )


def _failed(claim: claims.ResourceClaim) -> tuple[str, ...]:
    allocation = claim.status.allocation
    if allocation is None:
        return ("its allocation is gone",)
    return tuple(
        f"{result.device}: {name}"
        for result in allocation.devices.results
        for name in result.binding_failure_conditions
        if name in _reported(claim, result)
    )
