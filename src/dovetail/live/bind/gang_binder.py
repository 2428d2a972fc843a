"""Writes the placements of one gang: all or none, in the write order of `binder`.

Given one load per member. Members that share a claim wait for the one that gives it its devices. One
failure abandons all members, until the first binding; each says which claims it holds. Never decides
and never releases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from dovetail.live.bind import binder, write_limiter
from dovetail.world.events import ObjectKey

R = TypeVar("R")


class GangBinder:
    """The write steps of one gang (`binder.WriteSteps`)."""

    def __init__(
        self,
        pod_binder: binder.Binder,
        limiter: write_limiter.WriteLimiter,
        loads: Sequence[binder.PodBinding],
    ) -> None:
        self._binder = pod_binder
        self._limiter = limiter
        self._loads = loads
        self._has_devices = {
            key: asyncio.Event() for load in loads for key in binder.allocations_of(load.placement)
        }
        self._failed: binder.PodBinding | None = None  # the first member that failed
        self._problem: binder.Abandoned | None = None  # and why

    async def endings(self) -> tuple[binder.Ending, ...]:
        """What became of each member, in order: all are abandoned, or a binding was sent for all."""
        return await binder.write_in_order(self)

    async def claim(self) -> binder.Abandoned | None:
        """All claims of all members."""
        return await self._each(self._claim)

    async def prepare(self) -> binder.Abandoned | None:
        """Devices and volumes of all members."""
        return await self._each(self._binder.prepare)

    def recheck(self) -> binder.Abandoned | None:
        """All members once more, before the first binding of any."""
        for load in self._loads:
            self._note(load, self._binder.recheck(load))
        return self._problem

    async def bind(self) -> tuple[binder.Ending, ...]:
        """Bindings of all members; one that fails keeps none of the others from being sent."""
        return tuple(await _all(self._bind(load) for load in self._loads))

    def abandoned(self, problem: binder.Abandoned) -> tuple[binder.Ending, ...]:
        """Every member is abandoned because of the one that failed."""
        return tuple(self._abandoned(load, problem) for load in self._loads)

    async def _each(
        self, step: Callable[[binder.PodBinding], Awaitable[binder.Abandoned | None]]
    ) -> binder.Abandoned | None:
        async def take(load: binder.PodBinding) -> None:
            if self._problem is None:  # a member that has not started when another fails need not
                self._note(load, await step(load))

        await _all(take(load) for load in self._loads)
        return self._problem

    def _note(self, load: binder.PodBinding, problem: binder.Abandoned | None) -> None:
        if problem is not None and self._problem is None:
            self._failed, self._problem = load, problem

    async def _claim(self, load: binder.PodBinding) -> binder.Abandoned | None:
        own_keys = binder.allocations_of(load.placement)
        try:
            for key in _reserved(load):
                if key not in own_keys and key in self._has_devices:
                    await self._has_devices[key].wait()
            async with self._limiter.writing(load.placement.pod.uid):
                return None if self._problem is not None else await self._binder.claim(load)
        finally:
            for key in own_keys:
                self._has_devices[key].set()

    async def _bind(self, load: binder.PodBinding) -> binder.Ending:
        async with self._limiter.writing(load.placement.pod.uid):
            return await self._binder.bind(load)

    def _abandoned(self, load: binder.PodBinding, problem: binder.Abandoned) -> binder.Abandoned:
        if load is self._failed:
            release = {*load.held, *problem.release}
            return problem._replace(release=tuple(sorted(release)))
        failed_pod = self._failed.placement.pod if self._failed is not None else "a pod"
        reason = f"{failed_pod} of its gang: {problem.reason}"
        return problem._replace(reason=reason, release=tuple(sorted({*load.held})))


def _reserved(load: binder.PodBinding) -> list[ObjectKey]:
    return [(ref.namespace, ref.name) for ref in load.placement.reservations]


async def _all(work: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    """Awaits everything even if something raises: after that none of our writes is under way."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    results: list[R] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results
