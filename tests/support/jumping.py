"""An event loop whose time a test sets forward: timeouts end when their situation is there, not after real seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class JumpingLoop(asyncio.SelectorEventLoop):
    """Real time, and how far it was set forward."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0.0

    def time(self) -> float:
        """Seconds, for every timeout of this loop."""
        return super().time() + self._ahead


def jump(seconds: float) -> None:
    """So many seconds have passed for whatever waits on the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    loop._ahead += seconds


def run(story: Coroutine[Any, Any, T]) -> T:
    """Runs a story on such a loop."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(story)
