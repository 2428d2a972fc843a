"""Prepares and unprepares claims for the kubelet: the ClaimService of this node.

Given references to claims, reads them from the API server, has them planned and carried out under the locks of their
GPUs, and answers for each: prepared, or failed with a message for the pod's owner. Requests are idempotent, and one
that the kubelet gave up on is finished all the same. Never raises for a claim; never decides what is planned.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from dovetail import errors
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.resource import claims
from dovetail.node.cdi.claim_specs import device_id
from dovetail.node.claims import checkpoint, device_names, plan_prepare, recovery, rehearsal
from dovetail.node.claims.claim_status import ClaimStatus
from dovetail.node.claims.execution import Execution
from dovetail.node.claims.gpu_locks import GpuLocks
from dovetail.node.kubelet.claim_service import ClaimReference, Failed, Prepared, PreparedDevice
from dovetail.ports import failures
from dovetail.ports.api import Api, Target
from dovetail.ports.clock import Clock

LOG = logging.getLogger("dovetail.node.claims")

T = TypeVar("T")

_THREADS: Final = 32  # a thread that hangs in the driver is lost until the driver returns
_MAINTENANCE_SECONDS: Final = 10.0


class NodeClaims:
    """The claims of one node. `start` before the first request; `run` beside the requests."""

    def __init__(
        self,
        *,
        api: Api,
        clock: Clock,
        execution: Execution,
        locks: GpuLocks,
        settings: plan_prepare.Settings,
    ) -> None:
        self._api = api
        self._clock = clock
        self._execution = execution
        self._locks = locks
        self._settings = settings
        self._status = ClaimStatus(api, clock)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="claims")
        self._running: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Deals with what an earlier process left."""
        minors = [gpu.minor for gpu in self._execution.inventory().gpus]
        async with self._locks.held(minors):
            await self._in_thread(lambda: recovery.begin(self._execution))
        known = await self._in_thread(self._known_or_rebuilt)
        for claim in known.claims.values():
            if claim.name and claim.state is checkpoint.State.COMPLETED:
                self._status.add(claim)  # writes nothing if the status has it already

    async def run(self) -> None:
        """Keeps daemons alive, repeats what failed and writes claim statuses, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._status.run())
            tasks.create_task(self._maintain())

    async def close(self) -> None:
        """Waits for what is being done."""
        while self._running:
            await asyncio.wait(self._running)
        self._threads.shutdown(wait=False)

    def prepared(self) -> tuple[checkpoint.Claim, ...]:
        """The claims of the checkpoint as it is now; none while it cannot be trusted. Blocks."""
        try:
            return tuple(recovery.trusted(self._execution).claims.values())
        except errors.StateError:
            return ()

    async def rehearse(self, devices_of: rehearsal.DevicesOf) -> tuple[rehearsal.Rehearsed, ...]:
        """A device of each GPU that no claim holds, which could be prepared now. Raises DovetailError or OSError."""
        free = await self._in_thread(lambda: rehearsal.free_gpus(self._execution))
        ready: list[rehearsal.Rehearsed] = []
        for minor in free:
            work = functools.partial(
                rehearsal.rehearse, self._execution, self._settings, minor, devices_of(minor)
            )
            async with self._locks.held([minor]):
                ready.append(await self._in_thread(work))
        return tuple(ready)

    @contextlib.asynccontextmanager
    async def held_back(self, minors: Iterable[int]) -> AsyncIterator[tuple[checkpoint.Claim, ...]]:
        """Prepares and undoes nothing on these GPUs meanwhile; the claims that hold them. Raises StateError."""
        wanted = set(minors)
        async with self._locks.held(wanted):
            known = await self._in_thread(lambda: recovery.trusted(self._execution))
            yield tuple(
                claim
                for claim in known.claims.values()
                if any(held.gpu_minor in wanted and not held.is_admin for held in claim.devices)
            )

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Prepared | Failed]:
        """By claim uid."""
        answers = await asyncio.gather(*(self._finished(self._prepare(ref)) for ref in claims))
        return {ref.uid: answer for ref, answer in zip(claims, answers, strict=True)}

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Failed | None]:
        """By claim uid; None is success."""
        answers = await asyncio.gather(*(self._finished(self._unprepare(ref)) for ref in claims))
        return {ref.uid: answer for ref, answer in zip(claims, answers, strict=True)}

    async def _prepare(self, reference: ClaimReference) -> Prepared | Failed:
        try:
            claim = await self._read(reference)
            if isinstance(claim, Failed):
                return claim
            results = plan_prepare.results_of(claim)
            if not results:
                return Prepared(())
            names = [result.device for result in results]
            minors = device_names.minors_of(names, self._execution.inventory())
            known = await self._in_thread(lambda: recovery.trusted(self._execution))
            earlier = known.claims.get(reference.uid)
            minors |= earlier.minors if earlier is not None else set()
            async with self._locks.held(minors):
                answer = await self._in_thread(lambda: self._prepare_locked(claim, minors))
        except (errors.DovetailError, OSError) as error:
            LOG.warning("claim.not_prepared", extra={"claim": str(reference), "why": str(error)})
            return Failed(_message(reference, error))
        except Exception as error:  # a defect must not fail the other claims of the request
            LOG.exception("claim.not_prepared", extra={"claim": str(reference)})
            return Failed(_message(reference, f"the node agent failed: {error!r}"))
        if isinstance(answer, plan_prepare.Refused):
            LOG.warning("claim.refused", extra={"claim": str(reference), "why": answer.reason})
            return Failed(_message(reference, answer.reason))
        self._status.add(answer)
        return _prepared(answer)

    async def _read(self, reference: ClaimReference) -> claims.ResourceClaim | Failed:
        target = Target(registry.CLAIM, reference.namespace, reference.name)
        try:
            document = await self._api.get(target)
        except failures.Missing:
            return Failed(_message(reference, "the API server has no such claim"))
        claim = codec.decode_struct(claims.ResourceClaim, document)
        if claim.metadata.uid != reference.uid:
            reason = f"the claim of this name is another one now (uid {claim.metadata.uid})"
            return Failed(_message(reference, reason))
        if claim.status.allocation is None:
            return Failed(_message(reference, "the claim is not allocated"))
        return claim

    def _prepare_locked(
        self, claim: claims.ResourceClaim, minors: set[int]
    ) -> checkpoint.Claim | plan_prepare.Refused:
        """Runs in a thread, under the locks of the claim's GPUs."""
        known = recovery.trusted(self._execution)
        earlier = known.claims.get(claim.metadata.uid)
        if earlier is not None and not earlier.minors <= minors:
            return plan_prepare.Refused("another request for this claim is being served; try again")
        if earlier is not None:
            is_complete = earlier.state is checkpoint.State.COMPLETED
            is_same = _allocated(earlier) == _allocated_now(claim)
            if is_complete and is_same and self._execution.is_intact(earlier):
                self._execution.restart_daemons(earlier)
                return earlier
            # Only begun, allocated elsewhere since, or its partition is gone: undo it and prepare it as if new.
            LOG.info("claim.prepared_again", extra={"claim": str(earlier)})
            self._execution.undo(earlier)
            known = self._execution.file.read()
        if known.orphans:
            self._execution.destroy_orphans(minors)
        plan = plan_prepare.plan_prepare(
            claim,
            settings=self._settings,
            inventory=self._execution.inventory(),
            live=self._execution.live(minors),
            known=known,
        )
        if isinstance(plan, plan_prepare.Refused):
            return plan
        return self._execution.prepare(plan)

    async def _unprepare(self, reference: ClaimReference) -> Failed | None:
        self._status.drop(reference.uid)
        try:
            known = await self._in_thread(self._known_or_rebuilt)
            claim = known.claims.get(reference.uid)
            if claim is None:
                return None
            async with self._locks.held(claim.minors):
                await self._in_thread(lambda: self._unprepare_locked(claim))
        except (errors.DovetailError, OSError) as error:
            LOG.warning("claim.not_unprepared", extra={"claim": str(reference), "why": str(error)})
            return Failed(_message(reference, error))
        except Exception as error:
            LOG.exception("claim.not_unprepared", extra={"claim": str(reference)})
            return Failed(_message(reference, f"the node agent failed: {error!r}"))
        return None

    def _unprepare_locked(self, claim: checkpoint.Claim) -> None:
        """Runs in a thread, under the locks of the claim's GPUs."""
        try:
            known = recovery.trusted(self._execution)
        except errors.StateError:
            known = recovery.rebuilt(self._execution, self._settings)
            current = known.claims.get(claim.uid)
            if current is not None:
                self._execution.undo_rebuilt(current, known)
            recovery.start_again_if_unused(self._execution)
            return
        current = known.claims.get(claim.uid)
        if current is not None:
            self._execution.undo(current)

    def _known_or_rebuilt(self) -> checkpoint.Checkpoint:
        try:
            return recovery.trusted(self._execution)
        except errors.StateError as error:
            LOG.warning("checkpoint.not_trusted", extra={"why": str(error)})
            return recovery.rebuilt(self._execution, self._settings)

    async def _maintain(self) -> None:
        while True:
            await self.maintain()
            await self._clock.sleep(_MAINTENANCE_SECONDS)

    async def maintain(self) -> None:
        """Repeats what failed, once: claims that stayed begun, daemons that died, partitions left on a lost GPU."""
        try:
            known = await self._in_thread(lambda: recovery.trusted(self._execution))
        except errors.StateError:
            return  # said where it was noticed
        for claim in known.claims.values():
            if claim.state is checkpoint.State.COMPLETED and not claim.has_daemons:
                continue
            try:
                async with self._locks.held(claim.minors):
                    await self._in_thread(functools.partial(self._maintain_one, claim.uid))
            except (errors.DovetailError, OSError) as error:
                LOG.warning("claim.not_maintained", extra={"claim": str(claim), "why": str(error)})

        if known.orphans or known.mig_enabled_here:
            await self._tidy_gpus(known)

    async def _tidy_gpus(self, known: checkpoint.Checkpoint) -> None:
        """Removes what ended claims had to leave on GPUs."""
        claimed = {held.gpu_uuid for claim in known.claims.values() for held in claim.devices}
        idle = set(known.mig_enabled_here) - claimed
        for gpu in self._execution.inventory().gpus:
            if not known.orphans and gpu.uuid not in idle:
                continue  # costs nothing while claims run
            try:
                async with self._locks.held([gpu.minor]):
                    await self._in_thread(functools.partial(self._tidy, gpu.minor))
            except errors.DovetailError as error:
                LOG.info("gpu.not_tidied", extra={"gpu": gpu.name, "why": str(error)})

    def _tidy(self, minor: int) -> None:
        self._execution.destroy_orphans([minor])
        self._execution.disable_idle_mig([minor])

    def _maintain_one(self, uid: str) -> None:
        claim = recovery.trusted(self._execution).claims.get(uid)
        if claim is None:
            return
        if claim.state is checkpoint.State.STARTED:
            recovery.undo_begun(self._execution, claim)
        else:
            self._execution.restart_daemons(claim)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _finished(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that goes on when the request is given up: locks must not be released under it."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)


def _prepared(claim: checkpoint.Claim) -> Prepared:
    devices: list[PreparedDevice] = []
    for held in claim.devices:
        ids = [device_id(claim.uid, held.device)]
        if held.request in claim.metadata_ids:
            ids.append(claim.metadata_ids[held.request])
        prepared = PreparedDevice(
            request_names=(held.request,),
            pool_name=held.pool,
            device_name=held.device,
            cdi_device_ids=tuple(ids),
            share_id=held.share_id,
        )
        devices.append(prepared)
    return Prepared(tuple(devices))


def _allocated(claim: checkpoint.Claim) -> set[tuple[str, str, str, str | None]]:
    return {(held.request, held.pool, held.device, held.share_id) for held in claim.devices}


def _allocated_now(claim: claims.ResourceClaim) -> set[tuple[str, str, str, str | None]]:
    results = plan_prepare.results_of(claim)
    return {(result.request, result.pool, result.device, result.share_id) for result in results}


def _message(reference: ClaimReference, reason: object) -> str:
    if isinstance(reason, OSError) and reason.filename is not None:
        reason = f"{reason.filename}: {reason.strerror}"
    return f"claim {reference.namespace}/{reference.name}: {reason}"
