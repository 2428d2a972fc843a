"""Wires a node's slice publisher to an API server: the list of its own slices, and a watch that notices changes.

Given open connections. The server selects by driver and node, so that each agent reads its own few slices only.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

from dovetail.kube import client
from dovetail.kube.http import transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import registry
from dovetail.node.slices import options, publisher
from dovetail.ports import clock as clocks

LOG = logging.getLogger("dovetail.node.slices")


def publisher_for(
    over: transport.Transport, node_name: str, clock: clocks.Clock
) -> publisher.PoolPublisher:
    """Publishes the pool of one node. Run `PoolPublisher.run` and `follow` beside each other."""
    return publisher.PoolPublisher(
        client.KubeApi(over),
        functools.partial(_listed, over, node_name),
        driver=options.DRIVER,
        node_name=node_name,
        clock=clock,
    )


async def follow(
    over: transport.Transport,
    pool: publisher.PoolPublisher,
    node_name: str,
    clock: clocks.Clock,
) -> None:
    """Wakes the publisher after each change of the node's slices, until cancelled. Its own writes wake it too."""
    await watch.follow(
        over, registry.SLICE, _Notices(pool), clock=clock, params=_selection(node_name)
    )


class _Notices:
    """Turns every event into one question: are the slices still as they should be?"""

    def __init__(self, pool: publisher.PoolPublisher) -> None:
        self._pool = pool

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        self._pool.notice()

    def changed(self, slice_: Any, /) -> None:
        self._pool.notice()

    def deleted(self, slice_: Any, /) -> None:
        self._pool.notice()

    def broken(self, reason: str, /) -> None:
        """The next list is compared. Without the right to watch, slices that a kubelet removes stay away until then."""
        LOG.warning("slices.watch.broken", extra={"why": reason})

    def unreadable(self, name: str, problem: str, /) -> None:
        self._pool.notice()


async def _listed(over: transport.Transport, node_name: str) -> Sequence[bytes]:
    documents, _ = await client.list_documents(over, registry.SLICE, params=_selection(node_name))
    return documents


def _selection(node_name: str) -> dict[str, str]:
    return {"fieldSelector": f"spec.driver={options.DRIVER},spec.nodeName={node_name}"}
