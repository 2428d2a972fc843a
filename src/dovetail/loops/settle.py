"""Carries single writes to an answer that tells: repeats what got none, reads again what somebody else changed.

A write without an answer may or may not have happened, so it is repeated under the same resourceVersion until the
server says what is. It is given up only where the server answers others and never this one (`attempts`), and then not
before the object was read once more. Given an API and a clock. Never decides what is written; `Step` does.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from dovetail.loops import attempts
from dovetail.model import claims, meta, objects, volumes
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
DEFAULT_RETRY_AFTER: Final = 1.0
READS: Final = ("read", "intents")  # what metrics call requests that write nothing

WRITES: Final = {  # what metrics call a write, by the kind of the object
    "ResourceClaim": "claim",
    "PersistentVolume": "volume",
    "PersistentVolumeClaim": "volume_claim",
}

R = TypeVar("R")
W = TypeVar("W", claims.ResourceClaim, volumes.PersistentVolume, volumes.PersistentVolumeClaim)  # what is written


class Patch(NamedTuple, Generic[W]):
    """What to write next."""

    patch: bytes
    subresource: str = ""
    after: W | None = None  # the object then, but for its version, where a brief answer will do
    adds: bool = False  # nothing that was there goes
    finalizer: str = ""  # all it adds, where that can be written in a way that leaves the rest alone, letter by letter


class Done(NamedTuple, Generic[W]):
    """The object is as wanted."""

    found: W


class GiveUp(NamedTuple):
    """The object can no longer become what was wanted. Nothing of ours is under way."""

    reason: str
    is_gone: bool = False


Step = Patch[W] | Done[W] | GiveUp
Pausing = Callable[[], AbstractAsyncContextManager[None]]  # open while somebody waits for the next try


class Settler:
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
        self._succeeded_at = -math.inf  # when a write was last taken
        self._clock = clock
        self._meter = meter_
        self._random = random.Random(seed)  # noqa: S311 (jitter, not a secret)

    async def answered(self, what: str, ask: Callable[[], Awaitable[R]], *, patience_seconds: float = math.inf) -> R:
        """The answer to a request that may be repeated without harm; Unavailable or Throttled after so much patience.

        Futile where the server answers others and never this one.
        """
        pause = FIRST_PAUSE
        tries = attempts.Attempts()
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
                if self.is_futile(tries, failure):
                    raise tries.verdict(self._clock.monotonic()) from failure
                await self.pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except failures.ApiFailure as failure:
                self._note(what, type(failure).__name__.lower(), began)
                raise
            else:
                self._note(what, "ok", began)
                return answer

    async def once(self, what: str, ask: Callable[[], Awaitable[R]]) -> R:
        """The answer, after waiting as long as the server says; Unavailable is the caller's to settle."""
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

    async def brought_about(
        self, target: apis.Target, known: W | None, step: Callable[[W], Step[W]]
    ) -> Done[W] | GiveUp:
        """Asks `step` what the object needs and writes it, until it says done or gives up. Futile as `answered`."""
        current: W | None = known
        pause = FIRST_PAUSE
        tries, is_last = attempts.Attempts(), False
        while True:
            try:
                if current is None:
                    current = await self._read(target)
                wanted = step(current)
                if not isinstance(wanted, Patch):
                    return wanted
                if is_last:
                    raise tries.verdict(self._clock.monotonic())
                current = await self._written(target, wanted)
                pause, tries = FIRST_PAUSE, attempts.Attempts()
            except failures.Missing:
                return GiveUp(f"{target} is gone", is_gone=True)
            except failures.Futile:
                raise
            except failures.Refused:  # also what a server answers where the uid is another's by now
                before, current = current, await self._if_there(target)
                if current is None or before is None or current.metadata.uid == before.metadata.uid:
                    raise
            except (failures.Conflict, failures.Unavailable, failures.Unauthorised) as failure:
                current = None  # what the object is now tells whether the write happened
                self._meter.count("dovetail_write_retries_total", reason=type(failure).__name__.lower())
                is_last = self.is_futile(tries, failure)
                await self.pause(attempts.QUIET_SECONDS if is_last else pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def is_futile(self, tries: attempts.Attempts, failure: failures.ApiFailure) -> bool:
        """Counts one more failure of a write; whether it is to be given up."""
        now = self._clock.monotonic()
        tries.failed(failure, now)
        return tries.are_over(now, others_succeeded_at=self._succeeded_at)

    async def pause(self, seconds: float) -> None:
        """About so long until the next try. Others may write meanwhile."""
        async with self._pausing():
            await self._clock.sleep(self._jittered(seconds))

    async def _if_there(self, target: apis.Target) -> Any:
        try:
            return await self._read(target)
        except failures.Missing:
            return None

    async def _read(self, target: apis.Target) -> Any:
        """The object as the server has it."""
        document = await self.answered("read", lambda: self.api.get(target))
        return objects.decode_struct(target.kind.struct, document)

    async def _written(self, target: apis.Target, wanted: Patch[W]) -> Any:
        place = target._replace(subresource=wanted.subresource)
        is_brief = wanted.after is not None
        what = WRITES[target.kind.name] + ("_status" if wanted.subresource else "")
        try:
            document = await self.once(
                what, lambda: self.api.patch(place, wanted.patch, brief=is_brief, adds=wanted.adds)
            )
        except failures.Refused as refused:
            if not wanted.finalizer or wanted.after is None or "immutable" not in str(refused):
                raise
            document = await self._protected(target, wanted.after.metadata, wanted.finalizer)
        if wanted.after is None:
            return objects.decode_struct(target.kind.struct, document)
        head = objects.decode_struct(objects.Generic, document)
        metadata = msgspec.structs.replace(wanted.after.metadata, resource_version=head.metadata.resource_version)
        return msgspec.structs.replace(wanted.after, metadata=metadata)

    async def _protected(self, target: apis.Target, metadata: meta.ObjectMeta, finalizer: str) -> bytes:
        """What the server stored of the spec does not survive a patch: it takes more, and leaves every letter alone."""
        uid, version = metadata.uid, metadata.resource_version
        ask = functools.partial(self.api.protect, target, finalizer, uid=uid, resource_version=version)
        return await self.once("claim_protect", ask)

    def _note(self, what: str, result: str, began: float) -> None:
        if result == "ok" and what not in READS:
            self._succeeded_at = self._clock.monotonic()
        self._meter.count("dovetail_writes_total", what=what, result=result)
        self._meter.observe("dovetail_write_seconds", self._clock.monotonic() - began, what=what)

    def _jittered(self, seconds: float) -> float:
        return seconds * (0.75 + 0.5 * self._random.random())
