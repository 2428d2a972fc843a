"""Runs the workload controllers inside an event loop, under a real or a virtual clock.

Given the controllers, a clock and an event that is set whenever an object changed; settles after changes and at wake-up
times, in slices, so that other tasks get their turn. Runs until it is cancelled. Never blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from dovetail.ports import clock as clocks
from dovetail.sim.controllers import workload_controllers

SLICE: Final = 100  # tasks between two turns of other coroutines


async def run(
    controllers: workload_controllers.WorkloadControllers,
    clock: clocks.Clock,
    changed: asyncio.Event,
) -> None:
    """Lets the controllers act for as long as the task lives."""
    while True:
        changed.clear()
        controllers.settle(clock.now(), limit=SLICE)
        if controllers.is_idle:
            await _next_reason(controllers, clock, changed)
        else:
            await asyncio.sleep(0)


async def _next_reason(
    controllers: workload_controllers.WorkloadControllers,
    clock: clocks.Clock,
    changed: asyncio.Event,
) -> None:
    """Waits for a change or for the next wake-up time, whichever comes first."""
    moment = controllers.next_wake_up
    if moment is None:
        await changed.wait()
        return
    seconds = max((moment - clock.now()).total_seconds(), 0.0)
    waiters = {
        asyncio.ensure_future(changed.wait()),
        asyncio.ensure_future(clock.sleep(seconds)),
    }
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiter
