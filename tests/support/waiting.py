"""Waits for a condition. The only module of the tests that lets real time pass without a reason of its own.

Given a condition and words for it. A test that gives up says what it waited for. The bound is no measure of speed: only
something broken takes so long.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final

GIVE_UP_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.02


def wait_until(
    condition: Callable[[], Any],
    what: str,
    *,
    at_most: float = GIVE_UP_SECONDS,
    pause: float = PAUSE_SECONDS,
    so_far: Callable[[], str] = str,
) -> Any:
    """The first value of the condition that is true. Fails with `what` and with what `so_far` returns by then."""
    deadline = time.monotonic() + at_most
    while not (value := condition()):
        assert time.monotonic() < deadline, _given_up(what, at_most, so_far)
        time.sleep(pause)
    return value


async def until(
    condition: Callable[[], Any],
    what: str,
    *,
    at_most: float = GIVE_UP_SECONDS,
    pause: float = PAUSE_SECONDS,
    so_far: Callable[[], str] = str,
) -> Any:
    """The same for coroutines; others go on meanwhile. The condition may be a coroutine function."""
    deadline = time.monotonic() + at_most
    while not (value := await _value_of(condition)):
        assert time.monotonic() < deadline, _given_up(what, at_most, so_far)
        await asyncio.sleep(pause)
    return value


def is_true_within(condition: Callable[[], Any], *, seconds: float) -> bool:
    """Whether the condition came true, for callers that note a failure and go on."""
    deadline = time.monotonic() + seconds
    while not (is_true := bool(condition())) and time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)
    return is_true


async def comes_true_within(
    condition: Callable[[], Any], *, seconds: float, pause: float = PAUSE_SECONDS
) -> bool:
    """The same for coroutines."""
    deadline = time.monotonic() + seconds
    while not (is_true := bool(await _value_of(condition))) and time.monotonic() < deadline:
        await asyncio.sleep(pause)
    return is_true


async def _value_of(condition: Callable[[], Any]) -> Any:
    value = condition()
    return await value if inspect.isawaitable(value) else value


def _given_up(what: str, seconds: float, so_far: Callable[[], str]) -> str:
    seen = so_far()
    return f"waited {seconds:.0f} s for {what}" + (f"\n{seen}" if seen else "")
