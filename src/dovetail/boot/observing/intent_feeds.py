"""Passes the Intents of a watch on: the complete list, then each that comes, changes or goes.

Given two functions. Keeps what was listed until the first look at it, because a recorder begins with a complete
picture. Waits for the first list within a bound only: a recorder without the right to read Intents records all else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from dovetail.kubetypes.custom import intents
from dovetail.world.events import ObjectKey

LOG = logging.getLogger("dovetail.history")
PATIENCE_SECONDS: Final = 10.0


class IntentFeed:
    """What a watch of Intents calls."""

    def __init__(
        self,
        observe: Callable[[intents.Intent, bool], None],
        observe_list: Callable[[list[intents.Intent]], None],
    ) -> None:
        self._observe = observe
        self._observe_list = observe_list
        self._known: dict[ObjectKey, intents.Intent] = {}
        self._is_listed = asyncio.Event()

    async def wait_listed(self) -> None:
        """Returns once all Intents are known, or after a while."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_listed.wait(), PATIENCE_SECONDS)
        if not self._is_listed.is_set():
            LOG.warning("history.intents: cannot be listed; promised starts are not recorded yet")

    def listed(self) -> list[intents.Intent]:
        """All that are known."""
        return list(self._known.values())

    def replaced(self, objects: list[intents.Intent], resource_version: str, /) -> None:
        """A complete list."""
        self._known = {_key(intent): intent for intent in objects}
        self._is_listed.set()
        self._observe_list(objects)

    def changed(self, item: intents.Intent, /) -> None:
        """A new Intent."""
        self._known[_key(item)] = item
        self._observe(item, True)

    def deleted(self, item: intents.Intent, /) -> None:
        """It is gone."""
        self._known.pop(_key(item), None)
        self._observe(item, False)

    def broken(self, reason: str, /) -> None:
        """The list after it says what was missed."""

    def unreadable(self, name: str, problem: str, /) -> None:
        """It promises nothing that could be read."""


def _key(intent: intents.Intent) -> ObjectKey:
    return intent.metadata.namespace, intent.metadata.name
