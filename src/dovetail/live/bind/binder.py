"""Writes placements: the one place that knows in which order a pod or a gang is started.

Given placements, with the pods' claims as last seen. The order, and why (`write_in_order` keeps it):

1. Each claim: first the finalizer, then allocation and reservedFor in one status write
   (`claim_patches`). The finalizer comes first so that no claim with devices can be deleted under its
   pod. Devices and user are one write so that a crash in between cannot leave devices without a user,
   which no controller would ever free.
2. All claims before the binding: a kubelet starts a bound pod at once, and must find its devices.
   For a gang, all claims of all members come before the first binding. Until then everything written
   can be released again; from then on the other members can be completed, since they have their
   devices. Recovery after a crash relies on exactly this (`has_all_claims`).
3. Devices and volumes that other controllers prepare are waited for before the binding.
4. A last recheck, with nothing awaited between it and the first binding.

Every write is repeated until the server answers, and the answer is compared with what was sent. Ends
with the pod bound, or with the reason why not, and then no write is under way any more. Never decides a
placement.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from dovetail import timestamps
from dovetail.kubetypes import codec, meta, names, registry
from dovetail.kubetypes.core import pods, resource_quotas
from dovetail.kubetypes.resource import claims
from dovetail.live import handle as handles
from dovetail.live.bind import claim_patches, volume_provisioning, write_limiter, write_retry
from dovetail.model import plan
from dovetail.ports import api as apis
from dovetail.ports import failures
from dovetail.quantity import durations
from dovetail.world.events import ObjectKey

LOG = logging.getLogger("dovetail.schedule")
CONDITION_POLL_SECONDS: Final = 1.0
POD_GONE: Final = "the pod is gone"
MOST_UNMET: Final = 3  # devices that a report names

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Bound(NamedTuple):
    """The pod has its node."""

    node: str


class Abandoned(NamedTuple):
    """The pod has no node. Claims in `release` hold devices that no pod uses."""

    reason: str
    release: tuple[ObjectKey, ...] = ()
    is_refused: bool = False  # the server will answer the same again: worth an event for the owner
    is_futile: bool = False  # and no other placement would change that


Ending = Bound | Abandoned


class PodBinding(NamedTuple):
    """One pod to bind: its placement, all claims it names, and those reserved for it so far."""

    placement: plan.Placement
    uses: tuple[ObjectKey, ...]
    held: list[ObjectKey]


class WriteSteps(Protocol[R_co]):
    """The steps that start one pod or one gang. A step returns why it failed, or None."""

    async def claim(self) -> Abandoned | None:
        """Gives all claims their devices and users."""
        ...

    async def prepare(self) -> Abandoned | None:
        """Waits for devices and volumes that other controllers make ready."""
        ...

    def recheck(self) -> Abandoned | None:
        """Looks once more whether the placement still fits."""
        ...

    async def bind(self) -> R_co:
        """Writes the bindings."""
        ...

    def abandoned(self, problem: Abandoned) -> R_co:
        """The result after a failed step: nothing was bound."""
        ...


async def write_in_order(steps: WriteSteps[R]) -> R:
    """Starts a pod or a gang in the order that the module docstring gives reasons for."""
    problem = await steps.claim() or await steps.prepare() or steps.recheck()
    if problem is not None:
        return steps.abandoned(problem)
    return await steps.bind()


def has_all_claims(gang_pods: Iterable[pods.Pod]) -> bool:
    """Whether a gang whose start was interrupted has all its claims: if so, one of it is bound.

    The first binding comes after the last claim, so a bound member proves that all claims are written.
    """
    return any(pod.spec.node_name for pod in gang_pods)


class _PodSteps(NamedTuple):
    """The steps of one pod."""

    binder: Binder
    load: PodBinding

    async def claim(self) -> Abandoned | None:
        return await self.binder.claim(self.load)

    async def prepare(self) -> Abandoned | None:
        return await self.binder.prepare(self.load)

    def recheck(self) -> Abandoned | None:
        return self.binder.recheck(self.load)

    async def bind(self) -> Ending:
        return await self.binder.bind(self.load)

    def abandoned(self, problem: Abandoned) -> Ending:
        return problem


class Binder:
    """Writes claims and bindings; each public method is one step of one pod."""

    def __init__(
        self,
        handle: handles.Handle,
        writer: write_retry.Writer,
        limiter: write_limiter.WriteLimiter,
        volumes: volume_provisioning.VolumeWriter,
    ) -> None:
        self._world = handle.world
        self._picture = handle.picture
        self._clock = handle.clock
        self._meter = handle.meter
        self._metrics = handle.metrics
        self._recorder = handle.recorder
        self._conditions_timeout = handle.settings.conditions_timeout_seconds
        self._writer = writer
        self._limiter = limiter
        self._volumes = volumes

    async def bind_pod(self, load: PodBinding) -> Ending:
        """Binds one pod, or returns why not."""
        return await write_in_order(_PodSteps(self, load))

    async def claim(self, load: PodBinding) -> Abandoned | None:
        """Gives all claims their devices and reserves them for the pod, or returns why not."""
        problem = await self._guarded(load, self._claim_all(load))
        if problem is None:
            self._metrics.written(load.placement.pod.uid)
        return problem

    async def prepare(self, load: PodBinding) -> Abandoned | None:
        """Waits for devices and volumes; volumes are requested first, so that both proceed."""
        return await self._guarded(load, self._prepare(load))

    def recheck(self, load: PodBinding) -> Abandoned | None:
        """Returns why the pod must not be bound after all, right before its binding."""
        placement = load.placement
        for key in _needed(load):
            if not self._is_ours(key, placement.pod):
                return Abandoned(f"claim {key[0]}/{key[1]} is no longer reserved for the pod")
        return self._unsound(placement)

    async def bind(self, load: PodBinding) -> Ending:
        """Gives the pod its node."""
        return await self._guarded(load, self._bind(load.placement))

    async def release(
        self,
        claim: claims.ResourceClaim,
        user_uids: Iterable[str],
        *,
        unbound: Iterable[pods.Pod],
    ) -> None:
        """Takes a claim's devices back from these users, unless the server says a pod is bound."""
        for pod in unbound:
            if await self._is_bound(pod):
                return  # our view was old
        step = claim_patches.release(claim.metadata.uid, *user_uids)
        target = apis.Target(registry.CLAIM, claim.metadata.namespace, claim.metadata.name)
        ending = await self._writer.reconcile(target, claim, step)
        if isinstance(ending, write_retry.Done):
            self._saw(ending.found)

    async def _guarded(self, load: PodBinding, work: Coroutine[Any, Any, R]) -> R | Abandoned:
        """A refusal by the server, or another writer that was first, ends the start with a reason."""
        try:
            return await work
        except failures.Refused as refused:
            quota = resource_quotas.exceeded(str(refused))
            reason = f"the API server refuses: {refused}"
            if quota is not None:
                reason = quota.message_for(load.placement.pod.namespace)
            is_futile = isinstance(refused, failures.Futile)
            held_claims = tuple(load.held)
            return Abandoned(reason, release=held_claims, is_refused=True, is_futile=is_futile)
        except (failures.Conflict, failures.AlreadyThere, failures.Missing) as conflict:
            return Abandoned(f"another writer was first: {conflict}")
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:  # an unexpected answer to a write that is over
            held_claims = tuple(load.held)
            reason = f"the API server says: {failure}"
            return Abandoned(reason, release=held_claims, is_refused=True)

    # Claims

    async def _claim_all(self, load: PodBinding) -> Abandoned | None:
        placement = load.placement
        allocations = _allocations_of_named(placement)
        for claim_ref in placement.reservations:
            key = (claim_ref.namespace, claim_ref.name)
            if problem := await self._reserve(placement, key, allocations.get(key)):
                return problem
            load.held.append(key)
        if placement.made is not None:
            return await self._claim_extended(load, placement.made)
        return None

    async def _claim_extended(
        self, load: PodBinding, extended: plan.ExtendedResourceClaim
    ) -> Abandoned | None:
        """The claim for extended resources: created, reserved, and named in the pod's status."""
        placement = load.placement
        key = extended_claim_key(placement)
        if extended.existing is None and (problem := await self._create(placement, key)):
            return problem
        if problem := await self._reserve(placement, key, extended.result):
            return problem
        load.held.append(key)
        return await self._map_requests(placement, key)

    async def _reserve(
        self, placement: plan.Placement, key: ObjectKey, result: claims.AllocationResult | None
    ) -> Abandoned | None:
        """Gives a claim these devices (None: it has them) and reserves it for the pod."""
        name = f"claim {key[0]}/{key[1]}"
        claim = self._world.claims.get(key)
        if claim is None:
            return Abandoned(f"{name} is gone")
        stamped = None if result is None else _stamped(result, self._clock.now())
        user = self._user(placement.pod, key)
        step = claim_patches.reserve(
            claim.metadata.uid, stamped, user, expected=claim.status.allocation
        )
        ending = await self._writer.reconcile(apis.Target(registry.CLAIM, *key), claim, step)
        if isinstance(ending, write_retry.GiveUp):
            return Abandoned(f"{name}: {ending.reason}")
        self._saw(ending.found)
        if stamped is None:
            return None
        dropped = claim_patches.dropped_fields(stamped, ending.found.status.allocation)
        return self._dropped(placement.pod, key, dropped) if dropped else None

    def _dropped(self, pod: plan.PodRef, key: ObjectKey, fields: tuple[str, ...]) -> Abandoned:
        """The server stored the claim without some fields: the devices would not work as decided."""
        for field in fields:
            self._meter.count("dovetail_fields_dropped_total", field=field)
            LOG.error("claim.field_dropped", extra={"pod": str(pod), "field": field})
        reason = (
            f"the API server does not keep {', '.join(fields)}: "
            "a feature this claim needs is off there"
        )
        return Abandoned(reason, release=(key,), is_refused=True)

    async def _create(self, placement: plan.Placement, key: ObjectKey) -> Abandoned | None:
        """Creates the claim for extended resources; its name follows from the pod, so never twice."""
        assert placement.made is not None
        body = codec.encode_struct(_protected(placement.made.claim, key))
        collection = apis.Target(registry.CLAIM, key[0])
        try:
            document = await self._writer.with_retry(
                "create", lambda: self._writer.api.create(collection, body)
            )
        except failures.AlreadyThere:
            document = await self._writer.with_retry(
                "read", lambda: self._writer.api.get(collection._replace(name=key[1]))
            )
        except failures.Missing:
            return Abandoned(f"namespace {key[0]} is gone")
        claim = codec.decode_struct(claims.ResourceClaim, document)
        owner_uids = {owner.uid for owner in claim.metadata.owner_references if owner.controller}
        if placement.pod.uid not in owner_uids:
            return Abandoned(f"claim {key[0]}/{key[1]} belongs to another pod", is_refused=True)
        self._saw(claim)
        return None

    async def _map_requests(self, placement: plan.Placement, key: ObjectKey) -> Abandoned | None:
        """Writes for the kubelet which request of the claim serves which container."""
        assert placement.made is not None
        status = pods.PodExtendedResourceClaimStatus(
            request_mappings=placement.made.mappings, resource_claim_name=key[1]
        )
        patch = {
            "metadata": {"uid": placement.pod.uid},
            "status": {"extendedResourceClaimStatus": codec.tree_of(status)},
        }
        target = apis.Target(registry.POD, placement.pod.namespace, placement.pod.name, "status")
        body = codec.encode_tree(patch)
        try:
            await self._writer.with_retry(
                "pod_status", lambda: self._writer.api.patch(target, body, brief=True)
            )
        except (failures.Missing, failures.Conflict):
            return Abandoned(POD_GONE)
        return None

    def _saw(self, claim: claims.ResourceClaim) -> None:
        """The answer to a write counts at once, before the watch repeats it."""
        self._picture.observe(registry.CLAIM, claim)

    def _user(self, pod_ref: plan.PodRef, key: ObjectKey) -> claims.ResourceClaimConsumerReference:
        """Whom a claim is reserved for: the pod, or its PodGroup."""
        pod = self._world.pods.get(pod_ref.uid)
        if pod is not None:
            return self._world.user_of(pod, key)
        return claims.ResourceClaimConsumerReference(
            resource="pods", name=pod_ref.name, uid=pod_ref.uid
        )

    def _is_ours(self, key: ObjectKey, pod_ref: plan.PodRef) -> bool:
        claim = self._world.claims.get(key)
        if claim is None or claim.status.allocation is None:
            return False
        return claim_patches.is_user(claim, self._user(pod_ref, key).uid)

    # Devices and volumes

    async def _prepare(self, load: PodBinding) -> Abandoned | None:
        placement = load.placement
        fresh = tuple(allocations_of(placement))
        if failed := await self._volumes.write(placement):
            return Abandoned(failed.why, release=fresh)
        with self._limiter.stepped_aside(placement.pod.uid):
            if problem := await self._wait_for_conditions(load):
                return problem
            if placement.volumes and (failed := await self._volumes.bound(placement)):
                return Abandoned(failed.why, release=fresh)
        return None

    async def _wait_for_conditions(self, load: PodBinding) -> Abandoned | None:
        """Waits for devices that a driver prepares; one that fails or is late is released."""
        placement = load.placement
        waiting = [
            key
            for key in _needed(load)
            if (claim := self._world.claims.get(key)) is not None and _has_conditions(claim)
        ]
        if not waiting:
            return None
        deadline = self._clock.monotonic() + self._conditions_timeout
        until = timestamps.to_text(durations.later(self._clock.now(), self._conditions_timeout))
        while True:
            latest = [self._world.claims.get(key) for key in waiting]
            problem = self._unprepared(placement, latest)
            if not isinstance(problem, _Pending):
                return problem
            if self._clock.monotonic() >= deadline:
                reason = f"devices were not prepared within {self._conditions_timeout:.0f} s"
                return Abandoned(reason, release=tuple(allocations_of(placement)))
            self._report_preparing(placement, latest, until)
            await self._clock.sleep(CONDITION_POLL_SECONDS)

    def _report_preparing(
        self, placement: plan.Placement, latest: list[claims.ResourceClaim | None], until: str
    ) -> None:
        """Tells the pod's owner which conditions are missing, and when the scheduler gives up on them."""
        pod = self._world.pods.get(placement.pod.uid)
        if pod is None:
            return
        missing = [text for claim in latest if claim is not None for text in _unmet(claim)]
        listed = ", ".join(missing[:MOST_UNMET])
        if len(missing) > MOST_UNMET:
            listed += f" and {len(missing) - MOST_UNMET} more"
        message = f"waits until {until} for {listed}, on node {placement.node}"
        self._recorder.preparing(pod, message)

    def _unprepared(
        self, placement: plan.Placement, waiting: list[claims.ResourceClaim | None]
    ) -> Abandoned | _Pending | None:
        """None once all devices are ready."""
        present = [claim for claim in waiting if claim is not None]
        if len(present) < len(waiting):
            return Abandoned("a claim is gone")
        failed = [failure for claim in present for failure in _failed_conditions(claim)]
        if failed:
            reason = f"a device cannot be prepared: {failed[0]}"
            return Abandoned(reason, release=tuple(allocations_of(placement)))
        if all(_is_prepared(claim) for claim in present):
            return None
        # The node may be gone long before a driver reports anything.
        return self._unsound(placement) or _Pending()

    def _unsound(self, placement: plan.Placement) -> Abandoned | None:
        """Why the placement no longer fits, by what was learned since it was decided."""
        allocations = allocations_of(placement)
        reason = self._world.binding_problem(placement.node, allocations)
        if reason:
            return Abandoned(f"no longer fits: {reason}", release=tuple(allocations))
        return None

    # Binding

    async def _bind(self, placement: plan.Placement) -> Ending:
        pod, pause = placement.pod, write_retry.FIRST_PAUSE
        target = apis.Target(registry.POD, pod.namespace, pod.name, "binding")
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": placement.node},
        }
        body = codec.encode_tree(binding)
        attempts = write_retry.Attempts()
        while True:
            try:
                await self._writer.send_once(
                    "binding", lambda: self._writer.api.create(target, body)
                )
                return Bound(placement.node)
            except failures.Missing:
                return Abandoned(POD_GONE)
            except (failures.Conflict, failures.Unavailable, failures.Unauthorised) as failure:
                is_last = self._writer.is_futile(attempts, failure)
            if is_last:
                await self._writer.pause(write_retry.QUIET_SECONDS)
            # The write may have happened although its response was lost: only a read can show it.
            ending = await self._read_ending(placement)
            if ending is not None:
                return ending
            if is_last:
                raise attempts.verdict(self._clock.monotonic())
            await self._writer.pause(pause)
            pause = min(pause * 2, write_retry.LONGEST_PAUSE)

    async def _read_ending(self, placement: plan.Placement) -> Ending | None:
        """What became of a binding that was not confirmed; None if the pod still has no node."""
        pod = await self._read_pod(placement.pod.namespace, placement.pod.name)
        if pod is None or pod.metadata.uid != placement.pod.uid:
            return Abandoned(POD_GONE)
        if pod.spec.node_name == placement.node:
            return Bound(placement.node)
        if pod.spec.node_name:
            return Abandoned(f"another scheduler bound it to {pod.spec.node_name}")
        return Abandoned("the pod is being deleted") if pod.metadata.deletion_timestamp else None

    async def _is_bound(self, pod: pods.Pod) -> bool:
        """Whether the server says that the pod has a node."""
        stored = await self._read_pod(pod.metadata.namespace, pod.metadata.name)
        is_same = stored is not None and stored.metadata.uid == pod.metadata.uid
        return is_same and stored is not None and bool(stored.spec.node_name)

    async def _read_pod(self, namespace: str, name: str) -> pods.Pod | None:
        target = apis.Target(registry.POD, namespace, name)
        try:
            document = await self._writer.with_retry("read", lambda: self._writer.api.get(target))
        except failures.Missing:
            return None
        return codec.decode_struct(pods.Pod, document)


class _Pending(NamedTuple):
    """Devices are still being prepared."""


def allocations_of(placement: plan.Placement) -> Mapping[ObjectKey, claims.AllocationResult]:
    """Every claim that gets devices by this placement, under the name it has or will have."""
    allocations = _allocations_of_named(placement)
    if placement.made is not None:
        allocations[extended_claim_key(placement)] = placement.made.result
    return allocations


def _allocations_of_named(placement: plan.Placement) -> dict[ObjectKey, claims.AllocationResult]:
    """The allocations of claims that the pod names."""
    return {
        (allocation.claim.namespace, allocation.claim.name): allocation.result
        for allocation in placement.allocations
    }


def extended_claim_key(placement: plan.Placement) -> ObjectKey:
    """The name of the claim for the pod's extended resources: the same for the same request."""
    extended = placement.made
    assert extended is not None
    if extended.existing is not None:
        return extended.existing.namespace, extended.existing.name
    prefix = extended.claim.metadata.generate_name or f"{placement.pod.name}-extended-resources-"
    request = placement.pod.uid.encode() + codec.encode_struct(extended.claim.spec)
    suffix = hashlib.sha256(request).hexdigest()[:5]
    return placement.pod.namespace, prefix[: names.MAX_GENERATED_BASE] + suffix


def _needed(load: PodBinding) -> tuple[ObjectKey, ...]:
    """Every claim the pod needs, including one made for its extended resources."""
    placement = load.placement
    return (*load.uses, extended_claim_key(placement)) if placement.made is not None else load.uses


def _protected(claim: claims.ResourceClaim, key: ObjectKey) -> claims.ResourceClaim:
    """The claim as it is created: with its name, and the finalizer from the start."""
    metadata: meta.ObjectMeta = msgspec.structs.replace(
        claim.metadata,
        namespace=key[0],
        name=key[1],
        finalizers=(claims.DELETE_PROTECTION_FINALIZER,),
    )
    return msgspec.structs.replace(
        claim, api_version=registry.CLAIM.api_version, kind="ResourceClaim", metadata=metadata
    )


def _stamped(result: claims.AllocationResult, now: datetime.datetime) -> claims.AllocationResult:
    timestamp = timestamps.to_text(now)
    return msgspec.structs.replace(result, allocation_timestamp=timestamp)


def _has_conditions(claim: claims.ResourceClaim) -> bool:
    """Whether any device of the claim has to be prepared before its pod is bound."""
    allocation = claim.status.allocation
    if allocation is None:
        return False
    return any(result.binding_conditions for result in allocation.devices.results)


def _reported(
    claim: claims.ResourceClaim, result: claims.DeviceRequestAllocationResult
) -> set[str]:
    """Conditions that the driver reports as true for the device."""
    identity = (result.driver, result.pool, result.device, result.share_id)
    statuses = [
        device
        for device in claim.status.devices
        if (device.driver, device.pool, device.device, device.share_id) == identity
    ]
    conditions = [condition for device in statuses for condition in device.conditions]
    return {condition.type for condition in conditions if condition.status == "True"}


def _unmet(claim: claims.ResourceClaim) -> Iterator[str]:
    """The devices of a claim that are not ready, each with the conditions it lacks."""
    allocation = claim.status.allocation
    for result in () if allocation is None else allocation.devices.results:
        missing = sorted(set(result.binding_conditions) - _reported(claim, result))
        if missing:
            name = f"{result.device} of claim {claim.metadata.name}"
            yield f"{name} ({', '.join(missing)})"


def _is_prepared(claim: claims.ResourceClaim) -> bool:
    allocation = claim.status.allocation
    if allocation is None:
        return False
    waiting = [result for result in allocation.devices.results if result.binding_conditions]
    return all(set(result.binding_conditions) <= _reported(claim, result) for result in waiting)


def _failed_conditions(claim: claims.ResourceClaim) -> tuple[str, ...]:
    allocation = claim.status.allocation
    if allocation is None:
        return ("its allocation is gone",)
    return tuple(
        f"{result.device}: {condition}"
        for result in allocation.devices.results
        for condition in result.binding_failure_conditions
        if condition in _reported(claim, result)
    )
