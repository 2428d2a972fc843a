"""Decides which devices are quarantined because a pod was removed by force and may still run there.

The API forgets a force-deleted pod at once, its claim loses its devices soon after, and the node still
runs the containers for a while. Such devices are held until the node is gone, or was ready for as long
as the pod may take to stop, and no longer than an administrator set. State in, instructions out; the
time is given. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims

DEFAULT_GRACE_SECONDS: Final = 30.0  # what the API server fills in for pods


class Quarantined(NamedTuple):
    """Quarantined devices: for which pod, on which node, and until when at least."""

    node: str
    pod: str
    until: float
    grace: float
    allocations: tuple[claims.AllocationResult, ...]


class QuarantineRules:
    """Quarantined devices, by the uid of the pod that was removed."""

    def __init__(self, *, slack_seconds: float = 5.0, most_seconds: float = 300.0) -> None:
        self._slack = slack_seconds
        self.most_seconds = most_seconds
        self.held: dict[str, Quarantined] = {}

    def pod_lost(
        self, pod: pods.Pod, used: Iterable[claims.AllocationResult], now: float
    ) -> Quarantined | None:
        """The pod or its claims' devices went while the node may still run it; returns what to hold."""
        before = self._allocations(pod.metadata.uid)
        fresh = tuple(allocation for allocation in used if allocation not in before)
        if not fresh or not may_run(pod):
            return None
        grace = pod.spec.termination_grace_period_seconds
        seconds = DEFAULT_GRACE_SECONDS if grace is None else float(grace)
        # The owner chose the grace period, up to 2**63 seconds: the administrator's bound counts.
        wait = min(seconds + self._slack, self.most_seconds)
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        quarantined = Quarantined(pod.spec.node_name, name, now + wait, wait, fresh)
        self.held[pod.metadata.uid] = quarantined._replace(allocations=(*before, *fresh))
        return quarantined

    def resume(self, uid: str, quarantined: Quarantined) -> None:
        """Continues a quarantine of the previous leader."""
        allocations = (*self._allocations(uid), *quarantined.allocations)
        self.held[uid] = quarantined._replace(allocations=allocations)

    def _allocations(self, uid: str) -> tuple[claims.AllocationResult, ...]:
        """What is quarantined for a pod so far."""
        return self.held[uid].allocations if uid in self.held else ()

    def ended(self, uid: str) -> bool:
        """The pod ended properly after all. Returns whether anything was held for it."""
        return self.held.pop(uid, None) is not None

    def end_due(self, by_name: Mapping[str, nodes.Node], now: float) -> tuple[str, ...]:
        """Ends quarantines that are over; returns their pods. A node that is not ready restarts them."""
        free: list[str] = []
        for uid, quarantined in list(self.held.items()):
            node = by_name.get(quarantined.node)
            if node is None:
                free.append(uid)
            elif not is_ready(node):
                self.held[uid] = quarantined._replace(until=now + quarantined.grace)
            elif now >= quarantined.until:
                free.append(uid)
        for uid in free:
            del self.held[uid]
        return tuple(free)


def may_run(pod: pods.Pod) -> bool:
    """Whether a pod's containers may run: a kubelet reports their end before a pod is deleted."""
    return bool(pod.spec.node_name) and pod.status.phase not in pods.TERMINAL_PHASES


def is_ready(node: nodes.Node) -> bool:
    """Whether the node reports as ready. One without such a condition counts as ready."""
    conditions = [condition for condition in node.status.conditions if condition.type == "Ready"]
    return not conditions or conditions[0].status == "True"
