"""Follows all objects of one kind for ever: lists them, watches them, and goes on after whatever happens.

Given a transport and a sink. The sink hears of every object's newest state, in an order that never goes back for any
one object. After a loss the watch goes on where it was; where that cannot be assured, everything is listed anew.
Never ends by itself, never calls the sink from elsewhere than the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from dovetail.kube import api, decode, failures_of, history, paths
from dovetail.kube import transport as transports
from dovetail.model import kinds, meta
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.ports import meter as meters

WATCH_SECONDS: Final = 300.0  # the server ends a watch after this, give or take a tenth
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 30.0
SHORT_SECONDS: Final = 1.0  # a silent watch that ends earlier counts as a failure
YIELD_EVENTS: Final = 50  # events between two yields to the loop


class Sink(Protocol):
    """Who is told. Called synchronously in the event loop; must be quick."""

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        """These are all there are; whatever else was known is gone."""
        ...

    def changed(self, found: Any, /) -> None:
        """A new object, or a newer state of a known one."""
        ...

    def deleted(self, found: Any, /) -> None:
        """It is gone. Only its metadata can be relied upon; it may never have been told of."""
        ...

    def broken(self, reason: str, /) -> None:
        """What is known may be out of date: the connection is lost and being restored."""
        ...

    def unreadable(self, name: str, problem: str, /) -> None:
        """An object exists that cannot be read as a whole: what can be, if that is of use, is told as a change."""
        ...


class Choices(NamedTuple):
    """How to follow. `restored` is told when a watch goes on after `broken` without a new list."""

    randomness: random.Random
    namespace: str
    params: dict[str, str]
    idle_timeout: float
    meter: meters.Meter
    restored: Callable[[], None]


async def follow(
    transport: transports.Transport,
    kind: kinds.Kind,
    sink: Sink,
    *,
    clock: clocks.Clock,
    randomness: random.Random | None = None,
    namespace: str = "",
    params: dict[str, str] | None = None,
    idle_timeout: float = transports.IDLE_SECONDS,
    meter: meters.Meter | None = None,
    restored: Callable[[], None] = lambda: None,
) -> None:
    """Until cancelled. `params` select, for example {"fieldSelector": "spec.nodeName=a"}."""
    choices = Choices(
        randomness=randomness or random.Random(),  # noqa: S311 - spreads load, guards nothing
        namespace=namespace,
        params=params or {},
        idle_timeout=idle_timeout,
        meter=meter or meters.NoMeter(),
        restored=restored,
    )
    follower = _Follower(transport, kind, sink, clock=clock, choices=choices)
    while True:
        await follower.step()


class _Discontinuity(Exception):
    """Going on from where the watch was would leave a gap."""


class _Follower:
    """Where one watch stands: without a history before a list, with one at a version to go on from."""

    def __init__(
        self,
        transport: transports.Transport,
        kind: kinds.Kind,
        sink: Sink,
        *,
        clock: clocks.Clock,
        choices: Choices,
    ) -> None:
        self._transport = transport
        self._kind = kind
        self._sink = sink
        self._clock = clock
        self._choices = choices
        self._history: history.History | None = None
        self._failures_in_a_row = 0
        self._is_broken = False

    async def step(self) -> None:
        """Lists if it must, then watches until that ends, then pauses if it ended badly."""
        try:
            known = self._history
            if known is None:
                known = self._history = await self._listed()
            if not await self._watched(known):
                await self._pause("the server ended the watch at once", retry_after=None)
        except (_Discontinuity, failures.Expired) as error:
            self._history = None
            await self._pause(str(error), retry_after=getattr(error, "retry_after", None))
        except failures.ApiFailure as error:
            await self._pause(str(error), retry_after=error.retry_after)

    async def _listed(self) -> history.History:
        chosen = self._choices
        found, version = await api.list_all(
            self._transport,
            self._kind,
            namespace=chosen.namespace,
            params=chosen.params,
            unreadable=self._sink.unreadable,
        )
        known = await history.after_list(found, version)
        self._count("dovetail_watch_lists_total")
        self._is_broken = False
        self._sink.replaced(found, version)
        return known

    async def _watched(self, known: history.History) -> bool:
        """Reads until the server ends the watch. False where it did so at once and said nothing."""
        chosen = self._choices
        seconds = WATCH_SECONDS * chosen.randomness.uniform(0.9, 1.1)
        params = {
            **chosen.params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": known.resume_at,
            "timeoutSeconds": str(int(seconds)),
        }
        began = self._clock.monotonic()
        events = size = 0
        path = paths.collection(self._kind, chosen.namespace)
        lines = self._transport.lines(path, params, idle_timeout=chosen.idle_timeout, opened=self._opened)
        async with contextlib.aclosing(lines):
            async for line in lines:
                self._take(line, known)
                self._failures_in_a_row = 0
                events += 1
                size += len(line)
                if not events % YIELD_EVENTS or size >= decode.SLICE_BYTES:
                    size = 0
                    await asyncio.sleep(0)
        return events > 0 or self._clock.monotonic() - began >= SHORT_SECONDS

    def _opened(self) -> None:
        if self._is_broken:
            self._is_broken = False
            self._choices.restored()

    def _take(self, line: bytes, known: history.History) -> None:
        try:
            event = decode.event(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _Discontinuity(f"watch {self._kind.plural}: a line is not an event: {error}") from None
        document = bytes(event.object)
        match event.type:
            case "ADDED" | "MODIFIED":
                self._take_change(document, known)
            case "DELETED":
                self._take_deletion(document, known)
            case "BOOKMARK":
                self._take_bookmark(document, known)
            case "ERROR":
                failure = failures_of.failure_of_event(document, doing=f"watch {self._kind.plural}")
                raise _Discontinuity(str(failure))
            case other:
                self._sink.unreadable(decode.name_of(document), f'an event of unknown type "{other}"')

    def _take_change(self, document: bytes, known: history.History) -> None:
        found, problem = decode.attempted(self._kind, document)
        about = found.metadata if found is not None else decode.metadata(document)
        if about is None:
            self._sink.unreadable(decode.name_of(document), problem)
            return
        before = known.uid_of(about)
        if not known.takes_change(about):
            self._count("dovetail_watch_dropped_total")
            return
        self._count("dovetail_watch_events_total")
        if before and before != about.uid:  # its deletion was lost on the way, or comes late and will be dropped
            former = meta.ObjectMeta(
                name=about.name, namespace=about.namespace, uid=before, resource_version=about.resource_version
            )
            self._sink.deleted(decode.bare(self._kind, former))
        if problem:
            self._sink.unreadable(decode.name_of(document), problem)
        if found is not None:
            self._sink.changed(found)

    def _take_deletion(self, document: bytes, known: history.History) -> None:
        found, problem = decode.attempted(self._kind, document)
        about = found.metadata if found is not None else decode.metadata(document)
        if about is None:
            raise _Discontinuity(f"watch {self._kind.plural}: a deletion cannot be read: {problem}")
        if not known.takes_deletion(about):
            self._count("dovetail_watch_dropped_total")
            return
        self._count("dovetail_watch_events_total")
        self._sink.deleted(found if found is not None else decode.bare(self._kind, about))

    def _take_bookmark(self, document: bytes, known: history.History) -> None:
        about = decode.metadata(document)
        if about is None or not about.resource_version:
            return  # tells nothing, harms nothing
        if not known.takes_bookmark(about.resource_version):
            raise _Discontinuity(f"watch {self._kind.plural}: the server's versions went back")

    async def _pause(self, reason: str, *, retry_after: float | None) -> None:
        self._is_broken = True
        self._sink.broken(reason)
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures_in_a_row, 30))
        self._failures_in_a_row += 1
        seconds = longest * self._choices.randomness.uniform(0.5, 1.0)
        if retry_after is not None:
            seconds = max(seconds, retry_after * self._choices.randomness.uniform(1.0, 1.1))
        await self._clock.sleep(seconds)

    def _count(self, name: str) -> None:
        self._choices.meter.count(name, kind=self._kind.name)
