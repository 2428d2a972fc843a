"""Lists and watches all objects of one kind until cancelled, and recovers from every failure.

Given a transport and a sink. The sink receives every object's newest state, and never an older one after a newer one.
After a lost connection the watch resumes from its version; if that could leave a gap, everything is listed again. Never
ends by itself, never calls the sink from outside the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from dovetail.kube import client
from dovetail.kube.http import paths, status_errors, transport
from dovetail.kube.watching import decode, watch_history
from dovetail.kubetypes import meta, registry
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.ports import meter as meters

WATCH_SECONDS: Final = 300.0  # the server ends a watch after this, give or take a tenth
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 30.0
SHORT_SECONDS: Final = 1.0  # a silent watch that ends earlier counts as a failure
YIELD_EVENTS: Final = 50  # events between two yields to the loop


class Sink(Protocol):
    """Receives the events. Called synchronously in the event loop; must be quick."""

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        """These are all objects; all others are gone."""
        ...

    def changed(self, item: Any, /) -> None:
        """A new object, or a newer state of a known one."""
        ...

    def deleted(self, item: Any, /) -> None:
        """It was deleted. Only its metadata is reliable; it may never have been reported before."""
        ...

    def broken(self, reason: str, /) -> None:
        """The state may be stale: the connection is lost and being restored."""
        ...

    def unreadable(self, name: str, problem: str, /) -> None:
        """An object cannot be read as a whole. Its readable part, if that is of use, is reported as a change."""
        ...


class Choices(NamedTuple):
    """Settings of a watch.

    `restored` is called when it resumes after `broken` without a new list, `keep_document` with each object and its
    document before the sink receives the object.
    """

    randomness: random.Random
    namespace: str
    params: dict[str, str]
    idle_timeout: float
    meter: meters.Meter
    restored: Callable[[], None]
    keep_document: decode.KeepDocument


async def follow(
    transport: transport.Transport,
    kind: registry.Kind,
    sink: Sink,
    *,
    clock: clocks.Clock,
    randomness: random.Random | None = None,
    namespace: str = "",
    params: dict[str, str] | None = None,
    idle_timeout: float = transport.IDLE_SECONDS,
    meter: meters.Meter | None = None,
    restored: Callable[[], None] = lambda: None,
    keep_document: decode.KeepDocument = decode.keep_no_document,
) -> None:
    """Runs until cancelled. `params` select, for example {"fieldSelector": "spec.nodeName=a"}."""
    choices = Choices(
        randomness=randomness or random.Random(),  # noqa: S311 - spreads load, guards nothing
        namespace=namespace,
        params=params or {},
        idle_timeout=idle_timeout,
        meter=meter or meters.NoMeter(),
        restored=restored,
        keep_document=keep_document,
    )
    follower = _Follower(transport, kind, sink, clock=clock, choices=choices)
    while True:
        await follower.step()


class _Discontinuity(Exception):
    """Resuming the watch would leave a gap."""


class _Follower:
    """The state of one watch: no history before the first list, then one with the version to resume from."""

    def __init__(
        self,
        transport: transport.Transport,
        kind: registry.Kind,
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
        self._history: watch_history.History | None = None
        self._failures_in_a_row = 0
        self._is_broken = False

    async def step(self) -> None:
        """Lists if needed, watches until the watch ends, and backs off if it failed."""
        try:
            history = self._history
            if history is None:
                history = self._history = await self._listed()
            if not await self._watched(history):
                await self._pause("the server ended the watch at once", retry_after=None)
        except (_Discontinuity, failures.Expired) as error:
            self._history = None
            await self._pause(str(error), retry_after=getattr(error, "retry_after", None))
        except failures.ApiFailure as error:
            await self._pause(str(error), retry_after=error.retry_after)

    async def _listed(self) -> watch_history.History:
        chosen = self._choices
        items, version = await client.list_all(
            self._transport,
            self._kind,
            namespace=chosen.namespace,
            params=chosen.params,
            unreadable=self._sink.unreadable,
            keep_document=chosen.keep_document,
        )
        history = await watch_history.after_list(items, version)
        self._count("dovetail_watch_lists_total")
        self._is_broken = False
        self._sink.replaced(items, version)
        return history

    async def _watched(self, history: watch_history.History) -> bool:
        """Reads until the server ends the watch. False if it ended at once without an event."""
        chosen = self._choices
        seconds = WATCH_SECONDS * chosen.randomness.uniform(0.9, 1.1)
        params = {
            **chosen.params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": history.resume_at,
            "timeoutSeconds": str(int(seconds)),
        }
        began = self._clock.monotonic()
        events = size = 0
        path = paths.collection(self._kind, chosen.namespace)
        lines = self._transport.lines(
            path, params, idle_timeout=chosen.idle_timeout, opened=self._opened
        )
        async with contextlib.aclosing(lines):
            async for line in lines:
                self._take(line, history)
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

    def _take(self, line: bytes, history: watch_history.History) -> None:
        try:
            event = decode.event(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _Discontinuity(
                f"watch {self._kind.plural}: a line is not an event: {error}"
            ) from None
        document = bytes(event.object)
        match event.type:
            case "ADDED" | "MODIFIED":
                self._take_change(document, history)
            case "DELETED":
                self._take_deletion(document, history)
            case "BOOKMARK":
                self._take_bookmark(document, history)
            case "ERROR":
                failure = status_errors.failure_of_event(
                    document, doing=f"watch {self._kind.plural}"
                )
                raise _Discontinuity(str(failure))
            case event_type:
                self._sink.unreadable(
                    decode.name_of(document), f'an event of unknown type "{event_type}"'
                )

    def _take_change(self, document: bytes, history: watch_history.History) -> None:
        struct, problem = decode.decode_or_problem(self._kind, document)
        about = struct.metadata if struct is not None else decode.metadata(document)
        if about is None:
            self._sink.unreadable(decode.name_of(document), problem)
            return
        before = history.uid_of(about)
        if not history.takes_change(about):
            self._count("dovetail_watch_dropped_total")
            return
        self._count("dovetail_watch_events_total")
        if (
            before and before != about.uid
        ):  # its deletion was lost, or comes late and will be dropped
            former = meta.ObjectMeta(
                name=about.name,
                namespace=about.namespace,
                uid=before,
                resource_version=about.resource_version,
            )
            self._sink.deleted(decode.bare(self._kind, former))
        if problem:
            self._sink.unreadable(decode.name_of(document), problem)
        if struct is not None:
            self._choices.keep_document(struct, document)
            self._sink.changed(struct)

    def _take_deletion(self, document: bytes, history: watch_history.History) -> None:
        struct, problem = decode.decode_or_problem(self._kind, document)
        about = struct.metadata if struct is not None else decode.metadata(document)
        if about is None:
            raise _Discontinuity(f"watch {self._kind.plural}: a deletion cannot be read: {problem}")
        if not history.takes_deletion(about):
            self._count("dovetail_watch_dropped_total")
            return
        self._count("dovetail_watch_events_total")
        self._sink.deleted(struct if struct is not None else decode.bare(self._kind, about))

    def _take_bookmark(self, document: bytes, history: watch_history.History) -> None:
        about = decode.metadata(document)
        if about is None or not about.resource_version:
            return  # carries no information
        if not history.takes_bookmark(about.resource_version):
            raise _Discontinuity(f"watch {self._kind.plural}: the server's versions went back")

    async def _pause(self, reason: str, *, retry_after: float | None) -> None:
        self._is_broken = True
        self._sink.broken(reason)
        longest = min(
            LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures_in_a_row, 30)
        )
        self._failures_in_a_row += 1
        seconds = longest * self._choices.randomness.uniform(0.5, 1.0)
        if retry_after is not None:
            seconds = max(seconds, retry_after * self._choices.randomness.uniform(1.0, 1.1))
        await self._clock.sleep(seconds)

    def _count(self, name: str) -> None:
        self._choices.meter.count(name, kind=self._kind.name)
