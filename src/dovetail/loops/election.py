"""Elects one writer among replicas by a Lease, and gives it a fence that shuts by itself.

Given an API that is not fenced, a clock and the Lease's place. Follows client-go's rules, so its participants and
ours can share a Lease. Whether another holder has expired is judged by our own steady clock since we first saw its
last renewal; times written in the Lease are for people and are never compared with ours.
Never lets a fence reopen: whoever lost stands again and gets another.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import math
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from dovetail import errors
from dovetail.model import kinds, leases, objects
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter

JITTER: Final = 1.2  # client-go: candidates wait retry_seconds times 1 to 2.2
GRACE_SECONDS: Final = 0.05  # for an answer that arrived while this process was busy and is not read yet
RELEASE_TRIES: Final = 3

LOG = logging.getLogger("dovetail.election")
_T = TypeVar("_T")
_Lead = Callable[["Fence"], Awaitable[None]]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """client-go's defaults. The gap between lease and renewal is what requests on the wire have to arrive or die."""

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


class Standing(NamedTuple):
    """What this replica knows about the election, for people."""

    identity: str
    holder: str
    tenure: int
    is_leading: bool


class Fence:
    """The right to write during one tenure. Once shut it stays shut, whatever happens to the Lease.

    Open until `renew_seconds` after the start of the last renewal that succeeded. The clock is asked each time:
    a process that was stopped and goes on finds its fence shut before anybody told it.
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
        """Raises Fenced when shut. To be asked right before each write is sent."""
        if self.remaining() <= 0:
            raise failures.Fenced(f"tenure {self.tenure} is over: the lease was lost, released or not renewed in time")

    def shut(self) -> None:
        """Ends the tenure."""
        self._is_shut = True

    def mark_unanswered(self) -> None:
        """A write got no answer and may still arrive: the Lease is not to be handed over too soon after this."""
        self._unanswered_at = self._clock.monotonic()

    def unanswered_seconds(self) -> float:
        """How long ago the last write ended without an answer; infinite if none did."""
        return self._clock.monotonic() - self._unanswered_at

    def extend(self, until: float) -> bool:
        """Moves the end of an open fence; False, and shut for good, where it came too late."""
        if self.remaining() > 0:
            self._until = max(self._until, until)
        return self.remaining() > 0


def fresh_identity() -> str:
    """A holder's name no other process has or had: after a crash nobody takes over its own old lease."""
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(8)}"


class _Record(NamedTuple):
    """A Lease as it was read; `spec` changes with each renewal, `version` with each write."""

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
        self._target = apis.Target(kinds.LEASE, namespace, name)
        self._timing = timing
        self._meter = meter_ or meter.NoMeter()
        self._chance = chance
        self._is_well = is_well  # a process that hangs must neither keep the Lease nor take it
        self._record: _Record | None = None  # the last one seen
        self._seen_at = 0.0  # since when its spec has been so, by our clock
        self._is_certain = False  # whether the record is what the server has: no write of ours is unanswered
        self._may_hold = False
        self._settled_at = -math.inf  # when no write of our last tenure can still arrive
        self._fence: Fence | None = None

    @property
    def standing(self) -> Standing:
        """Who leads, as far as this replica knows."""
        record, fence = self._record, self._fence
        is_leading = fence is not None and fence.remaining() > 0
        holder = self.identity if is_leading else record.holder if record else ""
        return Standing(self.identity, holder, record.tenure if record else 0, is_leading)

    async def run(self, lead: _Lead) -> None:
        """Stands, calls `lead` with a fresh fence when elected, cancels it when lost, and stands again.

        Ends when `lead` returns of its own accord or fails; cancel it to shut down. The Lease is renewed while
        `lead` finishes its writes and released after it has ended, so the next leader may start at once.
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
            except (failures.Conflict, failures.AlreadyThere):
                fence = None  # another was faster
            except (failures.ApiFailure, objects.DecodeError) as failure:
                LOG.warning("cannot stand for election", extra={"lease": str(self._target), "why": str(failure)})
                fence = None
            if fence is not None:
                return fence
            await self._clock.sleep(self._timing.retry_seconds * (1 + JITTER * self._chance()))

    async def _stand(self) -> Fence | None:
        """One look at the Lease, and one try to take it if it is free."""
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
        """A lease that vanished is judged by what was last seen of it: its holder may not have noticed yet."""
        record = self._record
        if record is None or not record.holder:
            return True
        if record.holder == self.identity:  # we lost it, or an answer got lost: only our own writes matter
            return self._clock.monotonic() >= self._settled_at
        seconds = record.spec.lease_duration_seconds or self._timing.lease_seconds
        return self._clock.monotonic() >= self._seen_at + seconds

    # Leading

    async def _served(self, fence: Fence, lead: _Lead) -> bool:
        """Leads until lost (False) or until `lead` has ended by itself (True)."""
        self._fence = fence
        LOG.info("leading", extra={"identity": self.identity, "tenure": fence.tenure})
        self._meter.gauge("dovetail_leader", 1)
        keeping = _started(self._keep(fence))
        leading = _started(_called(lead, fence))
        try:
            await asyncio.wait({keeping, leading}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _stopped(leading, keeping)
            if failure := _failure_of(leading):
                LOG.error("the leader failed while it was shut down", exc_info=failure)
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
        self._settled_at = self._clock.monotonic() + self._timing.lease_seconds - self._timing.renew_seconds
        self._may_hold = False  # not ours to release: another may hold it, or our last requests be on their way
        self._meter.gauge("dovetail_leader", 0)
        LOG.warning("no longer leading", extra={"identity": self.identity, "tenure": fence.tenure})

    async def _keep(self, fence: Fence) -> None:
        """Renews until the Lease is lost. Returns at the end of the fence at the latest."""
        # Counted from the start of the claim: after a slow answer the first renewal is due at once.
        due = self._clock.monotonic() + fence.remaining() - self._timing.renew_seconds + self._timing.retry_seconds
        while fence.remaining() > 0:
            await self._clock.sleep(min(max(0.0, due - self._clock.monotonic()), fence.remaining()))
            if fence.remaining() <= 0:
                break
            due = self._clock.monotonic() + self._timing.retry_seconds
            try:
                await self._renew(fence)
            except _LostError as loss:
                LOG.warning("lease lost", extra={"tenure": fence.tenure, "why": str(loss)})
                break
            except (failures.ApiFailure, objects.DecodeError) as failure:
                LOG.warning("lease not renewed", extra={"seconds_left": fence.remaining(), "why": str(failure)})
        fence.shut()

    async def _renew(self, fence: Fence) -> None:
        try:
            await self._renew_once(fence)
        except failures.Conflict:
            await self._renew_once(fence)  # reads first, now that the record is in doubt

    async def _renew_once(self, fence: Fence) -> None:
        if not self._is_certain:
            await self._look(within=fence.remaining())
            self._confirm(fence.tenure)
        if not self._is_well():
            raise _LostError("the scheduler hangs: its event loop has not turned for too long")
        if fence.remaining() <= 0:
            raise _LostError("not renewed in time")  # a renewal now would only keep others waiting
        assert self._record is not None
        acquired = self._record.spec.acquire_time or self._now_text()
        spec = self._spec(tenure=fence.tenure, acquired=acquired, renewed=self._now_text())
        started = self._clock.monotonic()  # before sending: the server cannot have renewed earlier than this
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
            raise _LostError(f"the lease is held by {record.holder or 'nobody'}, tenure {record.tenure}")

    # Releasing

    async def _release(self) -> None:
        """Hands the Lease back. Only after `lead` has ended: the next leader may start at once."""
        if self._fence is not None and not self._is_safe_to_release(self._fence):
            return
        for _ in range(RELEASE_TRIES):
            try:
                if not self._is_certain and not await self._look():
                    return
                if self._record is None or self._record.holder != self.identity:
                    return
                now = self._now_text()
                spec = self._spec(tenure=self._record.tenure, acquired=now, renewed=now)
                await self._write(
                    msgspec.structs.replace(spec, holder_identity=None, lease_duration_seconds=1),
                    within=self._timing.request_seconds,
                )
            except failures.Conflict:
                continue
            except (failures.ApiFailure, objects.DecodeError) as failure:
                LOG.warning("lease not released, it will expire", extra={"why": str(failure)})
            else:
                LOG.info("lease released", extra={"identity": self.identity})
            return

    def _is_safe_to_release(self, fence: Fence) -> bool:
        """Shuts the fence; False where a write may still be on its way: then the Lease has to expire."""
        is_open = fence.remaining() > 0
        fence.shut()
        return is_open and fence.unanswered_seconds() > self._timing.lease_seconds - self._timing.renew_seconds

    # The Lease on the server

    async def _look(self, *, within: float | None = None) -> bool:
        """Reads the Lease; False when there is none."""
        try:
            document = await self._answered(self._api.get(self._target), within=within)
        except failures.Missing:
            return False
        self._note(document)
        return True

    async def _write(self, spec: leases.LeaseSpec, *, within: float, is_new: bool = False) -> None:
        """Creates the Lease, or changes the one last seen. Raises Conflict if it is no longer that one."""
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
        """Remembers what the server has, and since when. Other writes than renewals do not restart the waiting."""
        lease = objects.decode_struct(leases.Lease, document)
        before = self._record
        self._record = _Record(lease.spec, lease.metadata.resource_version)
        self._is_certain = True
        if before is None or before.spec != lease.spec:
            self._seen_at = self._clock.monotonic()
        if before is None or before.holder != self._record.holder:
            LOG.info("lease held", extra={"lease": str(self._target), "holder": self._record.holder or "nobody"})

    async def _answered(self, request: Coroutine[Any, Any, bytes], *, within: float | None) -> bytes:
        """The answer, or Unavailable when it takes too long by our clock."""
        limit = min(self._timing.request_seconds, self._timing.request_seconds if within is None else within)
        asked = _started(request)
        try:
            for seconds in (limit, GRACE_SECONDS):  # twice: a busy process finds both answer and alarm overdue
                alarm = asyncio.ensure_future(self._clock.sleep(seconds))
                try:
                    await asyncio.wait({asked, alarm}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    alarm.cancel()
                if asked.done():
                    return asked.result()
        finally:
            asked.cancel()
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
        return self._clock.now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _document(spec: leases.LeaseSpec, **metadata: str) -> bytes:
    """The Lease to create, or a merge patch that holds only for one version."""
    named = {"resourceVersion" if key == "version" else key: text for key, text in metadata.items()}
    head = {"apiVersion": kinds.LEASE.api_version, "kind": kinds.LEASE.name, "metadata": named}
    # An empty field is written as null, which removes it.
    body = {key: objects.tree_of(spec).get(key) for key in leases.LeaseSpec.__struct_encode_fields__}
    return msgspec.json.encode(head | {"spec": body})


async def _called(lead: _Lead, fence: Fence) -> None:
    await lead(fence)


async def _stopped(leading: asyncio.Future[None], keeping: asyncio.Future[None]) -> None:
    """Ends the leader, then the renewing: the Lease is kept until the last write has ended."""
    leading.cancel()
    try:
        await _ended(leading)
    finally:
        keeping.cancel()
        await _ended(keeping)


async def _ended(task: asyncio.Future[None]) -> None:
    """Waits until the task has ended, however often we are cancelled meanwhile; each time it hears of it."""
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
    """A task whose failure may go unread: we stop waiting for some."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task


def _failure_of(task: asyncio.Future[None]) -> BaseException | None:
    """What the task raised, other than that its fence was shut."""
    return None if task.cancelled() or _was_fenced(task) else task.exception()


def _was_fenced(task: asyncio.Future[None]) -> bool:
    return not task.cancelled() and isinstance(task.exception(), failures.Fenced)
