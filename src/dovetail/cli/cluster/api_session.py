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
    return asyncio.run(_run(choice, work))


async def _run(
    choice: cluster_choice.Choice, work: Callable[[transport.Transport], Awaitable[T]]
) -> T:
    from dovetail.kube.http import transport

    async with transport.Transport(choice.connection, user_agent="dovetail") as over:
        return await work(over)
