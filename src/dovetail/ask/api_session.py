"""Runs the asynchronous part of a command on the chosen cluster: one transport, one event loop, then it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.kube.http import transport

T = TypeVar("T")


def run(choice: cluster_choice.Choice, work: Callable[[transport.Transport], Awaitable[T]]) -> T:
    """What the work returns. Raises ApiFailure where the cluster is unreachable or refuses."""
    return awaited(_run(choice, work))


def awaited(work: Awaitable[T]) -> T:
    """What the work returns, by an event loop of its own.

    The loop's main task returns nothing: `asyncio.run` formats that task with its result, twice, while it restores
    Ctrl-C (`signal.getsignal` looks for the handler among its constants). For the objects of a large fleet this took
    longer than reading them.
    """
    outcome: list[T] = []

    async def keep() -> None:
        outcome.append(await work)

    asyncio.run(keep())
    return outcome[0]


async def _run(
    choice: cluster_choice.Choice, work: Callable[[transport.Transport], Awaitable[T]]
) -> T:
    from dovetail.kube.http import transport

    async with transport.Transport(choice.connection, user_agent="dovetail", is_brief=True) as over:
        return await work(over)
