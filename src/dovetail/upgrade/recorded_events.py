"""Creates events about nodes and upgrades, each once.

Given what happened. An event's name follows from what it says, so that a process that starts again creates none twice.
What the server refuses is dropped: an event is news, not state. Never decides.
"""

from __future__ import annotations

import datetime
import hashlib
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.kubetypes import codec, registry
from dovetail.ports import api as apis
from dovetail.ports import failures

NAMESPACE: Final = "default"  # of events about objects without one
MAX_NOTE: Final = 1024  # events.k8s.io/v1
REPORTER: Final = "dovetail-lifecycle"


class Happening(NamedTuple):
    """What an event says. Two with the same key are one; by default the key is the note."""

    about: dict[str, Any]
    reason: str
    note: str
    kind: str = "Normal"
    action: str = ""
    key: str = ""


class RecordedEvents:
    """The events of one process."""

    def __init__(self, api: apis.Api) -> None:
        self._api = api
        self._known: set[str] = set()

    async def record(self, event: Happening, now: datetime.datetime) -> None:
        """Creates the event, unless this process or an earlier one has."""
        words = f"{event.about['uid']} {event.reason} {event.key or event.note}"
        digest = hashlib.sha256(words.encode()).hexdigest()[:16]
        name = f"{event.about['name'][:200]}.{digest}"
        if name in self._known:
            return
        tree = {
            "apiVersion": registry.EVENT.api_version,
            "kind": registry.EVENT.name,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "eventTime": timestamps.to_micro_text(now),
            "reportingController": f"dovetail.dev/{REPORTER}",
            "reportingInstance": REPORTER,
            "action": event.action,
            "reason": event.reason,
            "regarding": event.about,
            "note": event.note[:MAX_NOTE],
            "type": event.kind,
        }
        try:
            target = apis.Target(registry.EVENT, NAMESPACE)
            await self._api.create(target, codec.encode_tree(tree), brief=True)
        except (failures.AlreadyThere, failures.Refused):
            pass
        self._known.add(name)


def about_node(name: str) -> dict[str, Any]:
    """A Node as the subject of an event; kubelets, too, give its name as the uid."""
    return {"apiVersion": "v1", "kind": registry.NODE.name, "name": name, "uid": name}
