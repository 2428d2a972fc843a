"""Subscriptions to changes of in-memory objects: delivered in order, at once, or later while a test holds them.

Given changes one after another; passes them on with the event types of a real server's watch. Never changes anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from dovetail.kubetypes.registry import Kind

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"

Callback = Callable[[str, Any], None]  # the event type, and the struct's current or last state


class Sink(Protocol):
    """Receives the events of a watch of one kind."""

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        """All objects of the kind."""
        ...

    def changed(self, item: Any, /) -> None:
        """An object was added or modified."""
        ...

    def deleted(self, item: Any, /) -> None:
        """An object was deleted."""
        ...


class Subscription:
    """One subscriber. While it is held, events queue up; `relist` drops them and sends a new list."""

    def __init__(
        self, kind: Kind, callback: Callback, *, relist: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self.kind = kind
        self._callback = callback
        self._relist = relist
        self._end = end
        self._held: deque[tuple[str, Any]] = deque()
        self.is_held = False

    def deliver(self, event: str, struct: Any) -> None:
        """Delivers one change, now or once the subscription is released."""
        if self.is_held:
            self._held.append((event, struct))
        else:
            self._callback(event, struct)

    def hold(self) -> None:
        """Delivers nothing until released, so that the subscriber falls behind."""
        self.is_held = True

    def release(self) -> None:
        """Delivers the queued events in order; later ones are delivered at once."""
        while self._held:
            self._callback(*self._held.popleft())
        self.is_held = False

    def relist(self) -> None:
        """Drops the queued events and sends a new list, as after a gap in a watch."""
        self._held.clear()
        self.is_held = False
        self._relist()

    def end(self) -> None:
        """Ends the subscription."""
        self._held.clear()
        self._end()


def sink_callback(sink: Sink) -> Callback:
    """A callback that passes events to a sink."""

    def tell(event: str, struct: Any) -> None:
        if event == DELETED:
            sink.deleted(struct)
        else:
            sink.changed(struct)

    return tell
