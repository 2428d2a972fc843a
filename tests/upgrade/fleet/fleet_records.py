"""Records every version of what belongs to a story's upgrades, in the order of the store, for the checker.

Given an API server and a namespace, which begins the names of all that is the story's own. Judges nothing.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from tests.support import rest
from tests.support.waiting import wait_until
from tests.upgrade.fleet.upgrade_history import Change

RECORDED: Final = ("nodes", "pods", "stackupgrades", "devicetaintrules")


class Records:
    """The records of one story."""

    def __init__(self, api: rest.Rest, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._recordings: dict[str, rest.Recording] = {}

    def begin(self, stack: contextlib.ExitStack) -> None:
        """From now on, until the stack closes."""
        for plural in RECORDED:
            recording = self._api.record(plural, self._place(plural))
            self._recordings[plural] = stack.enter_context(recording)

    def is_ours(self, name: str) -> bool:
        """Whether an object of the cluster belongs to the story."""
        return name.removeprefix("stack-upgrade.").startswith(self._namespace)

    def present(self) -> list[Change]:
        """What there is now."""
        return [
            Change(int(tree["metadata"]["resourceVersion"]), plural, "ADDED", tree)
            for plural in RECORDED
            for tree in self._api.list(plural, self._place(plural))
            if plural == "pods" or self.is_ours(tree["metadata"]["name"])
        ]

    def history(self) -> list[Change]:
        """Every version so far. Waits until the recordings have seen what there is now."""
        for change in self.present():
            self._wait_recorded(change)
        return [
            Change(seen.version, plural, seen.type, seen.object)
            for plural, recording in self._recordings.items()
            for seen in list(recording.seen)
            if plural == "pods" or self.is_ours(seen.object["metadata"]["name"])
        ]

    def _wait_recorded(self, change: Change) -> None:
        def is_recorded() -> Any:
            seen = self._recordings[change.kind].of(change.name)
            return any(each.version >= change.revision for each in seen)

        wait_until(is_recorded, f"{change.name} to be recorded")

    def _place(self, plural: str) -> str:
        return self._namespace if plural == "pods" else ""
