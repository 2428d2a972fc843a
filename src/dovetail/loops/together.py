"""Carries the placements of one gang out: all claims of all members, then all bindings; one that fails ends all.

Given what each member is to get. Members that share a claim wait for the one that gives it its devices. Until the
first binding nothing has happened that cannot be given back. Never decides, never gives back: it says what is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from dovetail.loops import carry, gate
from dovetail.world.events import ObjectKey

R = TypeVar("R")


class Together:
    """One gang on its way."""

    def __init__(self, carrier: carry.Carrier, gate_: gate.Gate, loads: Sequence[carry.Load]) -> None:
        self._carrier = carrier
        self._gate = gate_
        self._loads = loads
        self._given = {key: asyncio.Event() for load in loads for key in carry.allocations_of(load.placement)}
        self._problem: tuple[carry.Load, carry.Abandoned] | None = None

    async def endings(self) -> tuple[carry.Ending, ...]:
        """What became of each member, in order: all are abandoned, or all were to be bound."""
        await self._each(self._claim)
        if self._problem is None:
            await self._each(self._carrier.prepare)
        if self._problem is None:
            for load in self._loads:  # nothing may happen between the last look and the first binding
                self._note(load, self._carrier.doubt(load))
        if self._problem is not None:
            return tuple(self._abandoned(load, *self._problem) for load in self._loads)
        return tuple(await _all(self._bind(load) for load in self._loads))

    async def _each(self, step: Callable[[carry.Load], Awaitable[carry.Abandoned | None]]) -> None:
        async def one(load: carry.Load) -> None:
            if self._problem is None:  # whoever has not begun when one fails need not
                self._note(load, await step(load))

        await _all(one(load) for load in self._loads)

    def _note(self, load: carry.Load, problem: carry.Abandoned | None) -> None:
        if problem is not None and self._problem is None:
            self._problem = load, problem

    async def _claim(self, load: carry.Load) -> carry.Abandoned | None:
        own = carry.allocations_of(load.placement)
        try:
            for key in _reserved(load):
                if key not in own and key in self._given:
                    await self._given[key].wait()
            async with self._gate.entered(load.placement.pod.uid):
                return None if self._problem is not None else await self._carrier.claim(load)
        finally:
            for key in own:
                self._given[key].set()

    async def _bind(self, load: carry.Load) -> carry.Ending:
        async with self._gate.entered(load.placement.pod.uid):
            return await self._carrier.bind(load)

    def _abandoned(self, load: carry.Load, failed: carry.Load, problem: carry.Abandoned) -> carry.Abandoned:
        release = {*load.held, *(problem.release if load is failed else ())}
        said = problem.reason if load is failed else f"{failed.placement.pod} of its gang: {problem.reason}"
        return problem._replace(reason=said, release=tuple(sorted(release)))


def _reserved(load: carry.Load) -> list[ObjectKey]:
    return [(ref.namespace, ref.name) for ref in load.placement.reservations]


async def _all(work: Iterable[Any]) -> list[Any]:
    """Everything is awaited, also where something raises: then nothing of ours is under way any more."""
    ended = await asyncio.gather(*work, return_exceptions=True)
    for one in ended:
        if isinstance(one, BaseException):
            raise one
    return ended
