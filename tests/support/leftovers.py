"""Names the test that opened a connection, in the warning about one that was never closed.

The collector finds such a connection long after, during another test, which then fails. Patches the transports of
asyncio, whose `repr` is the text of that warning.
"""

from __future__ import annotations

import asyncio.selector_events
import os
from typing import Any

_TRANSPORT: Any = asyncio.selector_events._SelectorTransport


def name_openers() -> None:
    """From now on, for all loops of this process."""
    created, shown = _TRANSPORT.__init__, _TRANSPORT.__repr__

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        self._opened_by = os.environ.get("PYTEST_CURRENT_TEST", "no test")
        created(self, *arguments, **named)

    def __repr__(self: Any) -> str:
        return f"{shown(self)} opened by {self._opened_by}"

    _TRANSPORT.__init__, _TRANSPORT.__repr__ = __init__, __repr__
