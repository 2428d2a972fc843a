"""Records the phases of nodes and upgrades as events, on the node and on the object.

Given the status that is written. An event's name follows from what it says, so that a process that starts again creates
none twice; one that is older than the server keeps events is not created again. Never decides.
"""

from __future__ import annotations

import datetime
import hashlib
from typing import Any, Final

from dovetail import timestamps
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, NodeStatus, StackUpgrade
from dovetail.ports import api as apis
from dovetail.ports import failures

NAMESPACE: Final = "default"  # of events about objects without one
KEPT_SECONDS: Final = 3600  # kube-apiserver --event-ttl
MAX_NOTE: Final = 1024  # events.k8s.io/v1
WARNINGS: Final = frozenset({NodePhase.FAILED, NodePhase.ROLLED_BACK})
REPORTER: Final = "dovetail-lifecycle"


class UpgradeEvents:
    """Creates events, each once."""

    def __init__(self, api: apis.Api) -> None:
        self._api = api
        self._known: set[str] = set()

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
        about = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.name}
        words = f"upgrade {upgrade.metadata.name}: {node.phase} since {node.since}"
        kind = "Warning" if node.phase in WARNINGS else "Normal"
        # What a node waits for changes often; only ends are worth their reason.
        is_end = node.phase in WARNINGS or node.phase is NodePhase.SKIPPED
        note = f"{words}: {node.reason}" if is_end and node.reason else words
        await self._create(about, f"Stack{node.phase}", note, kind, now)

    async def _create(
        self, about: dict[str, Any], reason: str, note: str, kind: str, now: datetime.datetime
    ) -> None:
        digest = hashlib.sha256(f"{about['uid']} {reason} {note}".encode()).hexdigest()[:16]
        name = f"{about['name'][:200]}.{digest}"
        if name in self._known:
            return
        event = {
            "apiVersion": registry.EVENT.api_version,
            "kind": registry.EVENT.name,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "eventTime": timestamps.to_micro_text(now),
            "reportingController": f"dovetail.dev/{REPORTER}",
            "reportingInstance": REPORTER,
            "action": "Upgrade",
            "reason": reason,
            "regarding": about,
            "note": note[:MAX_NOTE],
            "type": kind,
        }
        try:
            target = apis.Target(registry.EVENT, NAMESPACE)
            await self._api.create(target, codec.encode_tree(event), brief=True)
        except (failures.AlreadyThere, failures.Refused):
            pass
        self._known.add(name)


def _is_recent(text: str, now: datetime.datetime) -> bool:
    at = timestamps.parse_or_none(text)
    return at is not None and (now - at).total_seconds() < KEPT_SECONDS
