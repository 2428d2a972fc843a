"""Follows a kind that may not be installed yet: waits until the server serves it, then follows it like any other.

Given a transport and a sink, and whom to tell that the kind is there. A kind that is taken away again leaves a watch
that fails and is repeated: deleting a definition deletes its objects first, so nothing is missed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from dovetail.kube import discovery, watch
from dovetail.kube import transport as transports
from dovetail.model import kinds
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.ports import meter as meters

ASK_SECONDS: Final = 10.0


async def follow(
    transport: transports.Transport,
    kind: kinds.Kind,
    sink: watch.Sink,
    *,
    clock: clocks.Clock,
    arrived: Callable[[], None],
    meter: meters.Meter | None = None,
) -> None:
    """Until cancelled. `arrived` is told once, before the first list."""
    spread = random.Random()  # noqa: S311 - spreads load, guards nothing
    while not await _is_served(transport, kind):
        await clock.sleep(ASK_SECONDS * spread.uniform(0.5, 1.0))
    arrived()
    await watch.follow(transport, kind, sink, clock=clock, meter=meter)


async def served(transport: transports.Transport, wanted: tuple[kinds.Kind, ...]) -> tuple[kinds.Kind, ...]:
    """Those of the kinds that are there now. Raises ApiFailure where the server does not say."""
    known = {version: await discovery.served(transport, version) for version in {kind.api_version for kind in wanted}}
    return tuple(kind for kind in wanted if kind.plural in known[kind.api_version])


async def _is_served(transport: transports.Transport, kind: kinds.Kind) -> bool:
    try:
        return bool(await served(transport, (kind,)))
    except failures.ApiFailure:
        return False
