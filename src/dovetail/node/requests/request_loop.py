"""Reads what is asked of this node on its Node, and writes the answers there.

Given an API, and what answers a rehearsal and a remedy. One read every half minute; every few seconds while something
may be asked: while a GPU is not well, and for a while after the agent's start or a change of the GPUs. It polls because
agents may read a Node by its name only; to watch its own Node, an agent would need the right to list all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from dovetail import errors
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes
from dovetail.model import node_annotations
from dovetail.model.node_annotations import HealRequest, HealResponse, Rehearsal
from dovetail.ports import api as api_port
from dovetail.ports import clock as clocks
from dovetail.ports import failures

CALM_SECONDS: Final = 30.0
ALERT_SECONDS: Final = 3.0
ALERT_FOR_SECONDS: Final = 900.0  # an upgrade asks soon after it has changed something

LOG = logging.getLogger("dovetail.node.requests")

Rehearse = Callable[[str], Awaitable[Rehearsal]]
Heal = Callable[[HealRequest], Awaitable[HealResponse | None]]


class RequestLoop:
    """The requests to one node."""

    def __init__(
        self,
        api: api_port.Api,
        clock: clocks.Clock,
        *,
        node_name: str,
        rehearse: Rehearse,
        heal: Heal,
        answered: Callable[[], Awaitable[None]],
        is_unwell: Callable[[], bool],
    ) -> None:
        self._api = api
        self._clock = clock
        self._target = api_port.Target(registry.NODE, name=node_name)
        self._rehearse = rehearse
        self._heal = heal
        self._answered = answered
        self._is_unwell = is_unwell
        self._alert_until = 0.0
        self._trouble = ""

    def notice(self) -> None:
        """Something has changed on the node: look often for a while."""
        self._alert_until = self._clock.monotonic() + ALERT_FOR_SECONDS

    async def run(self) -> None:
        """Answers until cancelled. What fails is tried again."""
        self.notice()
        while True:
            trouble = ""
            try:
                await self.look()
            except (failures.ApiFailure, errors.DovetailError, OSError) as error:
                trouble = str(error)
            if trouble and trouble != self._trouble:
                LOG.warning("requests.failed: tried again", extra={"why": trouble})
            self._trouble = trouble
            is_alert = self._is_unwell() or self._clock.monotonic() < self._alert_until
            await self._clock.sleep(ALERT_SECONDS if is_alert else CALM_SECONDS)

    async def look(self) -> None:
        """Reads the Node once, and answers what is open."""
        node = codec.decode_struct(nodes.Node, await self._api.get(self._target))
        annotations = node.metadata.annotations
        if node_annotations.is_rehearsal_open(annotations):
            rehearsal = await self._rehearse(annotations[node_annotations.REHEARSE])
            LOG.info("rehearsal.%s: %s", rehearsal.result, rehearsal.message)
            await self._write(node_annotations.REHEARSED, rehearsal)
        request = node_annotations.open_heal_request(annotations)
        if request is None:
            return
        response = await self._heal(request)
        if response is not None:
            LOG.warning("heal.%s: %s", response.result, response.message)
            await self._write(node_annotations.HEAL_RESPONSE, response)
            await self._answered()

    async def _write(self, name: str, answer: Rehearsal | HealResponse) -> None:
        text = msgspec.json.encode(answer).decode()
        patch = codec.encode_tree({"metadata": {"annotations": {name: text}}})
        await self._api.patch(self._target, patch, brief=True)
