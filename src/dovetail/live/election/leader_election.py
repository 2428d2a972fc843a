"""Elects one writer among replicas by a Lease, and gives it a fence that shuts by itself.

Given an unfenced API, a clock and the Lease's name. Follows client-go's rules, so that its participants and ours can
share a Lease. Another holder has expired when the lease duration has passed on our own monotonic clock since we first
saw its last renewal; times written in the Lease are for people and are never compared with ours.
Never reopens a fence: a replica that lost the election stands again and gets a new one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from dovetail import errors, timestamps
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import leases
from dovetail.live.election import failure_log
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter

JITTER: Final = 1.2  # client-go: candidates wait retry_seconds times 1 to 2.2
# For a response that arrived while this process was busy and has not been read yet.
GRACE_SECONDS: Final = 0.05
RELEASE_TRIES: Final = 3

LOG = logging.getLogger("dovetail.election")
_T = TypeVar("_T")
_Lead = Callable[["Fence"], Awaitable[None]]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """client-go's defaults. Requests on the wire have to arrive or fail within lease minus renewal seconds."""

    lease_seconds: int = 15
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_seconds > JITTER * self.retry_seconds > 0:
            raise errors.InputError(
                f"election: needs lease > renew > {JITTER} x retry > 0 seconds, "
                f"has {self.lease_seconds}, {self.renew_seconds}, {self.retry_seconds}"
            )

    @property
    def request_seconds(self) -> float:
        """Half the time to renew: one request that hangs must leave room for another."""
        return self.renew_seconds / 2


DEFAULT_TIMING: Final = Timing()


class ElectionStatus(NamedTuple):
    """What this replica knows about the election, for status output."""

    identity: str
    holder: str
    tenure: int
    is_leading: bool


class Fence:
    """The right to write during one tenure. Once shut it stays shut, whatever happens to the Lease.

    Open until `renew_seconds` after the start of the last renewal that succeeded. The clock is read each time:
    a process that was suspended finds its fence shut as soon as it continues.
    """

    def __init__(self, clock: clocks.Clock, *, tenure: int, until: float) -> None:
        self.tenure = tenure
        self._clock = clock
        self._until = until
        self._is_shut = False
        self._unanswered_at = -math.inf

    def remaining(self) -> float:
        """Seconds left to write, 0 when shut. A write's timeout must not be longer."""
        return 0.0 if self._is_shut else max(0.0, self._until - self._clock.monotonic())

    def check(self) -> None:
        """Raises Fenced when shut. Call it right before each write is sent."""
        if self.remaining() <= 0:
            raise failures.Fenced(
                f"tenure {self.tenure} is over: the lease was lost, released or not renewed in time"
            )

    def shut(self) -> None:
        """Ends the tenure."""
        self._is_shut = True

    def mark_unanswered(self) -> None:
        """A write got no response and may still arrive: the Lease must not be released soon after this."""
        self._unanswered_at = self._clock.monotonic()

    def unanswered_seconds(self) -> float:
        """Seconds since the last write without a response; infinite if there was none."""
        return self._clock.monotonic() - self._unanswered_at

    def extend(self, until: float) -> bool:
        """Extends an open fence; False where it has shut already."""
        if self.remaining() > 0:
            self._until = max(self._until, until)
        return self.remaining() > 0


def fresh_identity() -> str:
    """A holder name no other process ever had: after a crash no process mistakes the old lease for its own."""
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(8)}"


class _Record(NamedTuple):
    """A Lease as read; `spec` changes with each renewal, `version` with each write."""

    spec: leases.LeaseSpec
    version: str

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or ""

    @property
    def tenure(self) -> int:
        return self.spec.lease_transitions or 0


class _LostError(Exception):
    """The Lease is no longer ours."""


class Election:
    """One replica's part in the election."""

    def __init__(
        self,
        api: apis.Api,
        clock: clocks.Clock,
        *,
        namespace: str,
        name: str,
        identity: str = "",
        timing: Timing = DEFAULT_TIMING,
        meter_: meter.Meter | None = None,
        chance: Callable[[], float] = random.random,
        is_well: Callable[[], bool] = lambda: True,
    ) -> None:
        self.identity = identity or fresh_identity()
        self._api = api
        self._clock = clock
        self._target = apis.Target(registry.LEASE, namespace, name)
        self._timing = timing
        self._meter = meter_ or meter.NoMeter()
        self._chance = chance
        self._is_well = is_well  # a process that hangs must neither keep the Lease nor take it
        self._record: _Record | None = None  # the last one seen
        self._seen_at = 0.0  # when its present spec was first seen, by our clock
        # Whether the record is what the server has: no write of ours is unanswered.
        self._is_certain = False
        self._may_hold = False
        self._settled_at = -math.inf  # from then on no write of our last tenure can arrive
        self._fence: Fence | None = None
        self._outage = failure_log.FailureLog()

    @property
    def status(self) -> ElectionStatus:
        """Which replica leads, from this replica's last look at the Lease."""
        is_leading = self._fence is not None and self._fence.remaining() > 0
        holder, tenure = "", 0
        if self._record is not None:
            holder, tenure = self._record.holder, self._record.tenure
        if is_leading:
            holder = self.identity
        return ElectionStatus(self.identity, holder, tenure, is_leading)

    async def run(self, lead: _Lead) -> None:
        """Stands, calls `lead` with a fresh fence when elected, cancels it when lost, and stands again.

        Ends when `lead` returns or raises; cancel it to shut down. The Lease is renewed while `lead` finishes its
        writes and released after it has ended, so the next leader may start at once.
        """
        try:
            while True:
                fence = await self._elected()
                if await self._served(fence, lead):
                    return
        finally:
            self._meter.gauge("dovetail_leader", 0)
            if self._may_hold:
                await self._release()

    # Standing for election

    async def _elected(self) -> Fence:
        while True:
            try:
                fence = await self._stand()
                self._outage.succeeded()
            except (failures.Conflict, failures.AlreadyThere):
                fence = None  # another replica was faster
                self._outage.succeeded()
            except (failures.ApiFailure, codec.DecodeError) as failure:
                fence = None
                self._log_outage(failure)
            if fence is not None:
                return fence
            await self._clock.sleep(self._timing.retry_seconds * (1 + JITTER * self._chance()))

    def _log_outage(self, failure: Exception) -> None:
        """Tries go on at the pace of the election; a server that stays away is logged more and more rarely."""
        if self._outage.is_due(self._clock.monotonic()):
            LOG.warning(
                "election.failed: the lease cannot be read or written",
                extra={
                    "lease": str(self._target),
                    "failures": self._outage.failures_in_a_row,
                    "why": str(failure),
                },
            )

    async def _stand(self) -> Fence | None:
        """Reads the Lease, and tries once to acquire it if it is free."""
        is_there = await self._look()
        if not self._is_free() or not self._is_well():
            return None

        tenure = self._record.tenure + 1 if self._record else 0
        now = self._now_text()
        spec = self._spec(tenure=tenure, acquired=now, renewed=now)
        started = self._clock.monotonic()
        await self._write(spec, within=self._timing.request_seconds, is_new=not is_there)
        fence = Fence(self._clock, tenure=tenure, until=started + self._timing.renew_seconds)
        return fence if fence.remaining() > 0 else None

    def _is_free(self) -> bool:
        """Whether the Lease may be acquired.

        A deleted Lease counts as it was last seen: its holder may not have noticed the deletion yet.
        """
        record = self._record
        if record is None or not record.holder:
            return True
        if record.holder == self.identity:
            # We lost it, or a response was lost: only our own late writes matter.
            return self._clock.monotonic() >= self._settled_at

        seconds = record.spec.lease_duration_seconds or self._timing.lease_seconds
        return self._clock.monotonic() >= self._seen_at + seconds

    # Leading

    async def _served(self, fence: Fence, lead: _Lead) -> bool:
        """Leads until the Lease is lost (False) or `lead` has ended by itself (True)."""
        self._fence = fence
        LOG.info("election.leading", extra={"identity": self.identity, "tenure": fence.tenure})
        self._meter.gauge("dovetail_leader", 1)
        keeping = _started(self._keep(fence))
        leading = _started(_called(lead, fence))
        try:
            await asyncio.wait({keeping, leading}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _stopped(leading, keeping)
            if failure := _failure_of(leading):
                LOG.error("election.shutdown.failed: the leader raised", exc_info=failure)
            raise
        is_over = leading.done()
        await _stopped(leading, keeping)
        if failure := _failure_of(keeping) or _failure_of(leading):
            raise failure
        if is_over and not _was_fenced(leading):
            return True
        self._resign(fence)
        return False

    def _resign(self, fence: Fence) -> None:
        fence.shut()
        self._fence = None
        self._settled_at = (
            self._clock.monotonic() + self._timing.lease_seconds - self._timing.renew_seconds
        )
        # Not ours to release: another replica may hold it, or our last requests may still arrive.
        self._may_hold = False
        self._meter.gauge("dovetail_leader", 0)
        LOG.warning(
            "election.lost: no longer leading",
            extra={"identity": self.identity, "tenure": fence.tenure},
        )

    async def _keep(self, fence: Fence) -> None:
        """Renews until the Lease is lost. Returns when the fence shuts at the latest."""
        # Counted from the start of the acquiring write: after a slow response renew at once.
        due = (
            self._clock.monotonic()
            + fence.remaining()
            - self._timing.renew_seconds
            + self._timing.retry_seconds
        )
        while fence.remaining() > 0:
            await self._clock.sleep(min(max(0.0, due - self._clock.monotonic()), fence.remaining()))
            if fence.remaining() <= 0:
                break

            due = self._clock.monotonic() + self._timing.retry_seconds
            try:
                await self._renew(fence)
            except _LostError as loss:
                LOG.warning("election.lease.lost", extra={"tenure": fence.tenure, "why": str(loss)})
                break
            except (failures.ApiFailure, codec.DecodeError) as failure:
                LOG.warning(
                    "election.lease.not_renewed",
                    extra={"seconds_left": fence.remaining(), "why": str(failure)},
                )
        fence.shut()

    async def _renew(self, fence: Fence) -> None:
        try:
            await self._renew_once(fence)
        except failures.Conflict:
            await self._renew_once(fence)  # reads the Lease first, as the record is uncertain now

    async def _renew_once(self, fence: Fence) -> None:
        if not self._is_certain:
            await self._look(within=fence.remaining())
            self._confirm(fence.tenure)
        if not self._is_well():
            raise _LostError("the scheduler hangs: its event loop has been blocked for too long")
        if fence.remaining() <= 0:
            raise _LostError("not renewed in time")  # renewing now would only delay the next leader

        assert self._record is not None
        acquired = self._record.spec.acquire_time or self._now_text()
        spec = self._spec(tenure=fence.tenure, acquired=acquired, renewed=self._now_text())
        # Taken before sending: the server cannot have renewed earlier than this.
        started = self._clock.monotonic()
        try:
            await self._write(spec, within=fence.remaining())
        except failures.Missing:
            raise _LostError("the lease is gone") from None
        if not fence.extend(started + self._timing.renew_seconds):
            raise _LostError("the renewal came too late")

    def _confirm(self, tenure: int) -> None:
        """Raises _LostError unless the record last read is ours, of this tenure."""
        record = self._record
        if not self._is_certain or record is None:
            raise _LostError("the lease is gone")
        if record.holder != self.identity or record.tenure != tenure:
            raise _LostError(
                f"the lease is held by {record.holder or 'no replica'}, tenure {record.tenure}"
            )

    # Releasing

    async def _release(self) -> None:
        """Releases the Lease. Only after `lead` has ended, as the next leader may start at once."""
        if self._fence is not None and not self._is_safe_to_release(self._fence):
            return
        for _ in range(RELEASE_TRIES):
            try:
                is_released = await self._release_once()
            except failures.Conflict:
                continue
            except (failures.ApiFailure, codec.DecodeError) as failure:
                LOG.warning(
                    "election.lease.not_released: it has to expire", extra={"why": str(failure)}
                )
                return

            if is_released:
                LOG.info("election.lease.released", extra={"identity": self.identity})
            return

    async def _release_once(self) -> bool:
        """Whether the Lease was ours and is released now."""
        if not self._is_certain and not await self._look():
            return False
        if self._record is None or self._record.holder != self.identity:
            return False

        now = self._now_text()
        spec = self._spec(tenure=self._record.tenure, acquired=now, renewed=now)
        released = msgspec.structs.replace(spec, holder_identity=None, lease_duration_seconds=1)
        await self._write(released, within=self._timing.request_seconds)
        return True

    def _is_safe_to_release(self, fence: Fence) -> bool:
        """Shuts the fence; False where a write may still arrive: then the Lease has to expire."""
        is_open = fence.remaining() > 0
        fence.shut()
        return (
            is_open
            and fence.unanswered_seconds() > self._timing.lease_seconds - self._timing.renew_seconds
        )

    # The Lease on the server

    async def _look(self, *, within: float | None = None) -> bool:
        """Reads the Lease; False if it does not exist."""
        try:
            document = await self._answered(self._api.get(self._target), within=within)
        except failures.Missing:
            return False
        self._note(document)
        return True

    async def _write(self, spec: leases.LeaseSpec, *, within: float, is_new: bool = False) -> None:
        """Creates the Lease, or patches the version last seen. Raises Conflict if it has changed."""
        self._is_certain = False
        self._may_hold = True
        target = self._target
        if is_new:
            document = _document(spec, name=target.name, namespace=target.namespace)
            request = self._api.create(target._replace(name=""), document)
        else:
            assert self._record is not None
            request = self._api.patch(target, _document(spec, version=self._record.version))
        self._note(await self._answered(request, within=within))

    def _note(self, document: bytes) -> None:
        """Records what the server has, and since when. Writes other than renewals do not restart the wait."""
        lease = codec.decode_struct(leases.Lease, document)
        before = self._record
        self._record = _Record(lease.spec, lease.metadata.resource_version)
        self._is_certain = True

        if before is None or before.spec != lease.spec:
            self._seen_at = self._clock.monotonic()
        if before is None or before.holder != self._record.holder:
            LOG.info(
                "election.lease.holder",
                extra={"lease": str(self._target), "holder": self._record.holder or "none"},
            )

    async def _answered(
        self, request: Coroutine[Any, Any, bytes], *, within: float | None
    ) -> bytes:
        """The response, or Unavailable when it takes too long by our clock."""
        limit = self._timing.request_seconds
        if within is not None:
            limit = min(limit, within)

        response = _started(request)
        try:
            # Twice: a busy process finds both the response and the alarm overdue.
            for seconds in (limit, GRACE_SECONDS):
                alarm = asyncio.ensure_future(self._clock.sleep(seconds))
                try:
                    await asyncio.wait({response, alarm}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    alarm.cancel()
                if response.done():
                    return response.result()
        finally:
            response.cancel()
        raise failures.Unavailable(f"{self._target}: no answer within {limit:.1f} s")

    def _spec(self, *, tenure: int, acquired: str, renewed: str) -> leases.LeaseSpec:
        return leases.LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._timing.lease_seconds,
            acquire_time=acquired,
            renew_time=renewed,
            lease_transitions=tenure,
        )

    def _now_text(self) -> str:
        return timestamps.to_micro_text(self._clock.now())


def _document(spec: leases.LeaseSpec, **metadata: str) -> bytes:
    """The Lease to create, or a merge patch that applies to one version only."""
    wire_names = {"version": "resourceVersion"}
    head = {
        "apiVersion": registry.LEASE.api_version,
        "kind": registry.LEASE.name,
        "metadata": {wire_names.get(key, key): text for key, text in metadata.items()},
    }
    # An empty field is written as null, which removes it.
    tree = codec.tree_of(spec)
    body = {key: tree.get(key) for key in leases.LeaseSpec.__struct_encode_fields__}
    return msgspec.json.encode(head | {"spec": body})


async def _called(lead: _Lead, fence: Fence) -> None:
    await lead(fence)


async def _stopped(leading: asyncio.Future[None], keeping: asyncio.Future[None]) -> None:
    """Stops the leader, then the renewal: the Lease is kept until the last write has ended."""
    leading.cancel()
    try:
        await _ended(leading)
    finally:
        keeping.cancel()
        await _ended(keeping)


async def _ended(task: asyncio.Future[None]) -> None:
    """Waits until the task has ended; each cancellation meanwhile is passed on to it."""
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError


def _started(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """A task whose exception may go unread: some are abandoned."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task


def _failure_of(task: asyncio.Future[None]) -> BaseException | None:
    """The task's exception, unless it is that its fence was shut."""
    return None if task.cancelled() or _was_fenced(task) else task.exception()


def _was_fenced(task: asyncio.Future[None]) -> bool:
    return not task.cancelled() and isinstance(task.exception(), failures.Fenced)
