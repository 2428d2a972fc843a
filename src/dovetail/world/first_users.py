"""Finds claims that hold devices although the first pod they are reserved for is not on a node.

Nearly every allocated claim is in use, and its first user shows it; only the few others need a closer look before a
decision counts their devices as free. Given claims and pods as events change them. Never decides that a claim is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dovetail.kubetypes.resource import claims
from dovetail.world.events import ObjectKey


class FirstUsers:
    """Allocated claims by their first user."""

    def __init__(self, running: Collection[str]) -> None:
        self._running = running  # the pods on nodes, by id; the World's own table
        self._user_of: dict[ObjectKey, str] = {}  # empty where a claim is reserved for no pod
        self._claims_of: dict[str, tuple[ObjectKey, ...]] = {}  # by user; nearly always one
        self._off_node: dict[ObjectKey, None] = {}

    def off_node(self) -> Iterable[ObjectKey]:
        """Allocated claims whose first user is not on a node, or that have none."""
        return self._off_node.keys()

    def put(self, key: ObjectKey, claim: claims.ResourceClaim | None) -> None:
        """Replaces a claim; None removes it."""
        before = self._user_of.pop(key, None)
        if before:
            rest = tuple(other for other in self._claims_of.pop(before) if other != key)
            if rest:
                self._claims_of[before] = rest
        self._off_node.pop(key, None)
        if claim is None or claim.status.allocation is None:
            return

        users = claim.status.reserved_for
        user = self._user_of[key] = users[0].uid if users else ""
        if user:
            self._claims_of[user] = (*self._claims_of.get(user, ()), key)
        if user not in self._running:
            self._off_node[key] = None

    def moved(self, pod_id: str) -> None:
        """A pod came onto a node, or left it."""
        for key in self._claims_of.get(pod_id, ()):
            if pod_id in self._running:
                self._off_node.pop(key, None)
            else:
                self._off_node[key] = None
