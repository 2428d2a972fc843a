"""Records the phases of nodes and upgrades as events, on the node and on the object.

Given the status that is written. What is older than the server keeps events is not recorded again. Never decides.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from dovetail import timestamps
from dovetail.kubetypes import registry
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, NodeStatus, StackUpgrade
from dovetail.ports import api as apis
from dovetail.upgrade import recorded_events

KEPT_SECONDS: Final = 3600  # kube-apiserver --event-ttl
WARNINGS: Final = frozenset({NodePhase.FAILED, NodePhase.ROLLED_BACK})


class UpgradeEvents:
    """Creates events, each once."""

    def __init__(self, api: apis.Api) -> None:
        self._events = recorded_events.RecordedEvents(api)

    async def record(self, upgrade: StackUpgrade, now: datetime.datetime) -> None:
        """Creates what the status says and this process has not recorded yet."""
        subject = {
            "apiVersion": registry.STACK_UPGRADE.api_version,
            "kind": registry.STACK_UPGRADE.name,
            "name": upgrade.metadata.name,
            "uid": upgrade.metadata.uid,
        }
        status = upgrade.status
        note = f"{status.phase}: {status.reason}" if status.reason else str(status.phase)
        if _is_recent(status.updated_at, now):
            await self._create(subject, f"Upgrade{status.phase}", note, "Normal", now)
        for node in status.nodes:
            if _is_recent(node.since, now) and node.phase is not NodePhase.WAITING:
                await self._node_event(upgrade, node, now)

    async def _node_event(
        self, upgrade: StackUpgrade, node: NodeStatus, now: datetime.datetime
    ) -> None:
        about = recorded_events.about_node(node.name)
        words = f"upgrade {upgrade.metadata.name}: {node.phase} since {node.since}"
        kind = "Warning" if node.phase in WARNINGS else "Normal"
        # What a node waits for changes often; only ends are worth their reason.
        is_end = node.phase in WARNINGS or node.phase is NodePhase.SKIPPED
        note = f"{words}: {node.reason}" if is_end and node.reason else words
        await self._create(about, f"Stack{node.phase}", note, kind, now)

    async def _create(
        self, about: dict[str, Any], reason: str, note: str, kind: str, now: datetime.datetime
    ) -> None:
        event = recorded_events.Happening(about, reason, note, kind=kind, action="Upgrade")
        await self._events.record(event, now)


def _is_recent(text: str, now: datetime.datetime) -> bool:
    at = timestamps.parse_or_none(text)
    return at is not None and (now - at).total_seconds() < KEPT_SECONDS
