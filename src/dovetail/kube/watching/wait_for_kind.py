"""Watches a kind that may not be installed yet: waits until the server serves it, then watches it like any other.

Given a transport, a sink and a callback for when the kind appears. If the kind is removed again, the watch fails and is
retried: deleting a definition deletes its objects first, so no event is missed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from dovetail.kube import discovery
from dovetail.kube.http import transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import registry
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.ports import meter as meters

ASK_SECONDS: Final = 10.0


async def follow(
    transport: transport.Transport,
    kind: registry.Kind,
    sink: watch.Sink,
    *,
    clock: clocks.Clock,
    arrived: Callable[[], None],
    meter: meters.Meter | None = None,
    restored: Callable[[], None] = lambda: None,
) -> None:
    """Runs until cancelled. `arrived` is called once, before the first list."""
    spread = random.Random()  # noqa: S311 - spreads load, guards nothing
    while not await _is_served(transport, kind):
        await clock.sleep(ASK_SECONDS * spread.uniform(0.5, 1.0))
    arrived()
    await watch.follow(transport, kind, sink, clock=clock, meter=meter, restored=restored)


async def served(
    transport: transport.Transport, kinds: tuple[registry.Kind, ...]
) -> tuple[registry.Kind, ...]:
    """The kinds that are served now. Raises ApiFailure if the server does not answer."""
    served_versions = {
        version: await discovery.served(transport, version)
        for version in {kind.api_version for kind in kinds}
    }
    return tuple(kind for kind in kinds if kind.plural in served_versions[kind.api_version])


async def _is_served(transport: transport.Transport, kind: registry.Kind) -> bool:
    try:
        return bool(await served(transport, (kind,)))
    except failures.ApiFailure:
        return False
