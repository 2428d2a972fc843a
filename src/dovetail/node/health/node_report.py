"""Reports the health of a node's GPUs on its Node: a condition that lasts, an event for each fault that begins.

Words come from `device_taints`. Writes only its own condition; what the server refuses is logged and written again
with the next change. Never taints the node and never evicts.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail import timestamps
from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.core import api_events
from dovetail.node.health import device_taints, gpu_health
from dovetail.node.health.gpu_health import Fault, GpuHealth
from dovetail.node.health.policy_table import HealthPolicy
from dovetail.ports import api as api_port
from dovetail.ports import clock as clock_port
from dovetail.ports import failures

CONDITION: Final = "GpusHealthy"
COMPONENT: Final = "dovetail-node-agent"
EVENT_NAMESPACE: Final = "default"  # where events about cluster-scoped objects live
MAX_CONDITION_MESSAGE: Final = 2000

_LOG: Final = logging.getLogger(__name__)


class NodeReport:
    """The condition and events of one Node."""

    def __init__(
        self, api: api_port.Api, *, node_name: str, clock: clock_port.Clock, policy: HealthPolicy
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._clock = clock
        self._policy = policy
        self._written: tuple[str, str] | None = None
        self._known: frozenset[tuple[int, str]] = frozenset()

    async def publish(self, healths: Mapping[int, GpuHealth]) -> None:
        """Brings the Node in line with these faults."""
        await self._write_condition(healths)
        current = {
            (minor, fault.name): fault for minor in healths for fault in healths[minor].faults
        }
        for (minor, name), fault in current.items():
            if (minor, name) not in self._known:
                await self._write_event(minor, fault)
        self._known = frozenset(current)

    async def _write_condition(self, healths: Mapping[int, GpuHealth]) -> None:
        status, reason, message = _condition(healths, self._policy)
        if (status, message) == self._written:
            return
        now = timestamps.to_text(self._clock.now())
        condition = {
            "type": CONDITION,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        patch = msgspec.json.encode({"status": {"conditions": [condition]}})
        target = api_port.Target(registry.NODE, name=self._node_name, subresource="status")
        try:
            # Conditions of a Node merge by type only in a strategic merge patch.
            await self._api.patch(target, patch, brief=True, adds=True)
        except failures.ApiFailure as failure:
            _LOG.warning("health.condition.refused node=%s: %s", self._node_name, failure)
            return
        self._written = (status, message)

    async def _write_event(self, minor: int, fault: Fault) -> None:
        rule = self._policy.rule(fault.name)
        now = self._clock.now()
        event = api_events.Event(
            api_version="events.k8s.io/v1",
            kind="Event",
            metadata=meta.ObjectMeta(
                name=f"{self._node_name}.{_suffix(minor, fault, now)}", namespace=EVENT_NAMESPACE
            ),
            event_time=timestamps.to_micro_text(now),
            reporting_controller=COMPONENT,
            reporting_instance=self._node_name,
            action="Watch",
            reason="GpuFault",
            regarding=api_events.ObjectReference(
                api_version="v1", kind="Node", name=self._node_name, uid=self._node_name
            ),
            note=f"gpu-{minor}: {device_taints.described(fault, rule)}"[
                : api_events.MAX_NOTE_BYTES
            ],
            type="Warning" if rule.effect else "Normal",
        )
        target = api_port.Target(registry.EVENT, namespace=EVENT_NAMESPACE)
        try:
            await self._api.create(target, msgspec.json.encode(event), brief=True)
        except failures.ApiFailure as failure:
            _LOG.warning("health.event.refused node=%s: %s", self._node_name, failure)


def _condition(healths: Mapping[int, GpuHealth], policy: HealthPolicy) -> tuple[str, str, str]:
    """Status, reason and message: True while new work may use every GPU."""
    lines: list[str] = []
    for minor in sorted(healths):
        lines += device_taints.sentences(healths[minor], policy)
    unfit = [health for health in healths.values() if not gpu_health.is_fit(health, policy)]
    message = "; ".join(lines)[:MAX_CONDITION_MESSAGE]
    if unfit:
        return "False", "GpuFaults", message
    return "True", "GpusFit", message or _all_well(list(healths))


def _all_well(minors: Sequence[int]) -> str:
    return f"{len(minors)} GPUs, no faults"


def _suffix(minor: int, fault: Fault, now: datetime.datetime) -> str:
    return f"gpu-{minor}-{fault.name}.{int(now.timestamp() * 1_000_000):x}"
