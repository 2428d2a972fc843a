"""Who is told about changes in memory: in order, at once, or later where a test holds the news back.

Given changes one after another; a follower is told in the words a watch of a real server uses. Never changes anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from dovetail.model.kinds import Kind

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"

Callback = Callable[[str, Any], None]  # ADDED, MODIFIED or DELETED, and the struct as it is now or was last


class Sink(Protocol):
    """What a watch of one kind tells."""

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        """Everything there is."""
        ...

    def changed(self, found: Any, /) -> None:
        """One object is there, or differs."""
        ...

    def deleted(self, found: Any, /) -> None:
        """One object is gone."""
        ...


class Subscription:
    """One listener. While it is held, news queue up; `relist` forgets them and tells everything anew."""

    def __init__(self, kind: Kind, callback: Callback, *, relist: Callable[[], None], end: Callable[[], None]) -> None:
        self.kind = kind
        self._callback = callback
        self._relist = relist
        self._end = end
        self._held: deque[tuple[str, Any]] = deque()
        self.is_held = False

    def tell(self, event: str, struct: Any) -> None:
        """One change, now or once it is released."""
        if self.is_held:
            self._held.append((event, struct))
        else:
            self._callback(event, struct)

    def hold(self) -> None:
        """Tells nothing until released: the follower falls behind."""
        self.is_held = True

    def release(self) -> None:
        """Tells what queued up, in order, and goes on at once from there."""
        while self._held:
            self._callback(*self._held.popleft())
        self.is_held = False

    def relist(self) -> None:
        """As after a gap: what queued up is forgotten, the list is told instead."""
        self._held.clear()
        self.is_held = False
        self._relist()

    def end(self) -> None:
        """Tells nothing any more."""
        self._held.clear()
        self._end()


def teller(sink: Sink) -> Callback:
    """A callback that tells a sink."""

    def tell(event: str, struct: Any) -> None:
        if event == DELETED:
            sink.deleted(struct)
        else:
            sink.changed(struct)

    return tell
