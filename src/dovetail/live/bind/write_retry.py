"""Repeats a write until the server's answer is known; reads the object again if another writer changed it.

A write without an answer may or may not have happened, so it is repeated under the same
resourceVersion until the server says what is stored. What is written next is decided by a step function
(`claim_patches`, `volume_provisioning`): it gets the object and returns a patch, done, or giving up.

A write is given up only if the server answers other writes and never takes this one. A server that
cannot be reached, is overloaded or asks to wait refuses nothing: while no other write succeeds there,
this one is repeated, and if that lasts, the lease runs out and ends the tenure. Giving up is safe
although a write without an answer may have happened: the caller waits QUIET_SECONDS after the last try,
longer than a server works on a request whose client is gone, and reads the object once more. What is not
there then will not appear later. Never decides what is written.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from dovetail.kubetypes import codec, meta
from dovetail.kubetypes.resource import claims
from dovetail.kubetypes.storage import volumes
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
DEFAULT_RETRY_AFTER: Final = 1.0
READS: Final = ("read", "intents")  # what metrics call requests that write nothing

SAME_ANSWERS: Final = 8  # so many answers that are the same, word by word,
SAME_SECONDS: Final = 60.0  # over so long, are final
LONGEST_SECONDS: Final = 300.0  # after so long any answer is
QUIET_SECONDS: Final = 10.0  # the longest a write may take: the time a lease is good for
PASSING: Final = frozenset({0, 401, 408, 429, 502, 503, 504})  # about the server, not the object

WRITES: Final = {  # what metrics call a write, by the kind of the object
    "ResourceClaim": "claim",
    "PersistentVolume": "volume",
    "PersistentVolumeClaim": "volume_claim",
}

R = TypeVar("R")
W = TypeVar("W", claims.ResourceClaim, volumes.PersistentVolume, volumes.PersistentVolumeClaim)


class Patch(NamedTuple, Generic[W]):
    """What to write next."""

    patch: bytes
    subresource: str = ""
    after: W | None = None  # the object then, except for its version, if a brief answer will do
    adds: bool = False  # it removes nothing
    finalizer: str = ""  # all it adds, if that can be written without touching the rest


class Done(NamedTuple, Generic[W]):
    """The object is as wanted."""

    found: W


class GiveUp(NamedTuple):
    """The object can no longer become what was wanted. None of our writes is under way."""

    reason: str
    is_gone: bool = False


Step = Patch[W] | Done[W] | GiveUp
Pausing = Callable[[], AbstractAsyncContextManager[None]]  # open while a writer waits to try again


class _Answer(NamedTuple):
    status: int
    text: str


class Attempts:
    """The failures of one write so far, and whether to give it up. Never reads a clock."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._last: _Answer | None = None
        self._since = 0.0  # since when the answer has been the last one
        self._same = 0
        self._count = 0

    def failed(self, failure: failures.ApiFailure, now: float) -> None:
        """The write failed once more."""
        answer = _Answer(failure.status, str(failure))
        if self._began is None:
            self._began = now
        if answer != self._last:
            self._last, self._since, self._same = answer, now, 0
        self._same += 1
        self._count += 1

    def are_over(self, now: float, *, others_succeeded_at: float) -> bool:
        """Whether to give up, if another write last succeeded at that time."""
        if self._began is None or self._last is None:
            return False
        is_about_object = self._last.status not in PASSING
        is_same = self._same >= SAME_ANSWERS and now - self._since >= SAME_SECONDS
        if is_same and is_about_object and others_succeeded_at >= self._since:
            return True
        is_long = now - self._began >= LONGEST_SECONDS
        return is_long and (is_about_object or others_succeeded_at >= self._began)

    def verdict(self, now: float) -> failures.Futile:
        """The error to raise when giving up."""
        answer = self._last or _Answer(0, "no answer")
        seconds = now - (self._began if self._began is not None else now)
        message = f"tried {self._count} times in {seconds:.0f} s, the last answer: {answer.text}"
        return failures.Futile(message, status=answer.status)


class Writer:
    """Writes until answered."""

    def __init__(
        self,
        api: apis.Api,
        clock: clocks.Clock,
        meter_: meter.Meter,
        *,
        seed: int = 0,
        pausing: Pausing = nullcontext,
    ) -> None:
        self.api = api
        self._pausing = pausing
        self._succeeded_at = -math.inf  # when the server last took a write
        self._clock = clock
        self._meter = meter_
        self._random = random.Random(seed)  # noqa: S311 (jitter, not a secret)

    async def with_retry(
        self, what: str, ask: Callable[[], Awaitable[R]], *, patience_seconds: float = math.inf
    ) -> R:
        """The answer to a request that is safe to repeat.

        Raises Unavailable or Throttled once the patience is over, and Futile if the server answers
        other writes and never this one.
        """
        pause = FIRST_PAUSE
        attempts = Attempts()
        deadline = self._clock.monotonic() + patience_seconds
        while True:
            began = self._clock.monotonic()
            try:
                answer = await ask()
            except failures.Throttled as wait:
                self._note(what, "throttled", began)
                if self._clock.monotonic() >= deadline:
                    raise
                await self.pause(wait.retry_after or DEFAULT_RETRY_AFTER)
            except (failures.Unavailable, failures.Unauthorised) as failure:
                self._note(what, "unavailable", began)
                if self._clock.monotonic() >= deadline:
                    raise
                if self.is_futile(attempts, failure):
                    raise attempts.verdict(self._clock.monotonic()) from failure
                await self.pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except failures.ApiFailure as failure:
                self._note(what, type(failure).__name__.lower(), began)
                raise
            else:
                self._note(what, "ok", began)
                return answer

    async def send_once(self, what: str, ask: Callable[[], Awaitable[R]]) -> R:
        """The answer, after waiting as long as the server asks; the caller handles Unavailable."""
        while True:
            began = self._clock.monotonic()
            try:
                answer = await ask()
            except failures.Throttled as wait:  # not processed, so it may simply be sent again
                self._note(what, "throttled", began)
                await self.pause(wait.retry_after or DEFAULT_RETRY_AFTER)
            except failures.ApiFailure as failure:
                self._note(what, type(failure).__name__.lower(), began)
                raise
            else:
                self._note(what, "ok", began)
                return answer

    async def reconcile(
        self, target: apis.Target, last_seen: W | None, step: Callable[[W], Step[W]]
    ) -> Done[W] | GiveUp:
        """Writes what `step` asks for until it says done or gives up. Raises Futile as `answered`.

        `last_seen` is the object to start from; None reads it first.
        """
        current: W | None = last_seen
        pause = FIRST_PAUSE
        attempts, is_last = Attempts(), False
        while True:
            try:
                if current is None:
                    current = await self._read(target)
                next_write = step(current)
                if not isinstance(next_write, Patch):
                    return next_write
                if is_last:
                    raise attempts.verdict(self._clock.monotonic())
                current = await self._write(target, next_write)
                pause, attempts = FIRST_PAUSE, Attempts()
            except failures.Missing:
                return GiveUp(f"{target} is gone", is_gone=True)
            except failures.Futile:
                raise
            except failures.Refused:
                # A server also refuses if another object has the name by now: then go on with that.
                before, current = current, await self._read_if_there(target)
                if current is None or before is None or current.metadata.uid == before.metadata.uid:
                    raise
            except (failures.Conflict, failures.Unavailable, failures.Unauthorised) as failure:
                current = None  # only a read can show whether the write happened
                reason = type(failure).__name__.lower()
                self._meter.count("dovetail_write_retries_total", reason=reason)
                is_last = self.is_futile(attempts, failure)
                await self.pause(QUIET_SECONDS if is_last else pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def is_futile(self, attempts: Attempts, failure: failures.ApiFailure) -> bool:
        """Counts one more failure of a write. Returns whether to give it up."""
        now = self._clock.monotonic()
        attempts.failed(failure, now)
        return attempts.are_over(now, others_succeeded_at=self._succeeded_at)

    async def pause(self, seconds: float) -> None:
        """Waits about so long before the next try. Other pods may write meanwhile."""
        async with self._pausing():
            await self._clock.sleep(self._jittered(seconds))

    async def _read_if_there(self, target: apis.Target) -> Any:
        try:
            return await self._read(target)
        except failures.Missing:
            return None

    async def _read(self, target: apis.Target) -> Any:
        """The object as the server has it."""
        document = await self.with_retry("read", lambda: self.api.get(target))
        return codec.decode_struct(target.kind.struct, document)

    async def _write(self, target: apis.Target, patch: Patch[W]) -> Any:
        """Sends a patch. Returns the object as the server stored it."""
        resource = target._replace(subresource=patch.subresource)
        is_brief = patch.after is not None
        what = WRITES[target.kind.name] + ("_status" if patch.subresource else "")
        try:
            document = await self.send_once(
                what, lambda: self.api.patch(resource, patch.patch, brief=is_brief, adds=patch.adds)
            )
        except failures.Refused as refused:
            if not patch.finalizer or patch.after is None or "immutable" not in str(refused):
                raise
            document = await self._add_finalizer(target, patch.after.metadata, patch.finalizer)
        if patch.after is None:
            return codec.decode_struct(target.kind.struct, document)
        stored = codec.decode_struct(codec.Generic, document)
        metadata = msgspec.structs.replace(
            patch.after.metadata, resource_version=stored.metadata.resource_version
        )
        return msgspec.structs.replace(patch.after, metadata=metadata)

    async def _add_finalizer(
        self, target: apis.Target, metadata: meta.ObjectMeta, finalizer: str
    ) -> bytes:
        """Adds the finalizer with a request that leaves every letter of the stored spec alone.

        Needed where a patch would make the server rewrite the spec, and refuse that as a change.
        """
        uid, version = metadata.uid, metadata.resource_version
        protect = functools.partial(
            self.api.protect, target, finalizer, uid=uid, resource_version=version
        )
        return await self.send_once("claim_protect", protect)

    def _note(self, what: str, result: str, began: float) -> None:
        if result == "ok" and what not in READS:
            self._succeeded_at = self._clock.monotonic()
        self._meter.count("dovetail_writes_total", what=what, result=result)
        self._meter.observe("dovetail_write_seconds", self._clock.monotonic() - began, what=what)

    def _jittered(self, seconds: float) -> float:
        return seconds * (0.75 + 0.5 * self._random.random())
