"""Decides which devices are kept out of use because a pod was removed by force and may still be running there.

The API forgets a force-deleted pod at once, its claim loses its devices soon after, and the node still runs the
containers for a while. Such devices are held until the node lets go: it is gone, or it was ready for as long as the
pod may take to stop, and no longer than is set. State in, instructions out; time is given. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.model import claims, nodes, pods

TERMINAL: Final = ("Succeeded", "Failed")
DEFAULT_GRACE_SECONDS: Final = 30.0  # what the API server fills in for pods


class Held(NamedTuple):
    """Devices kept out of use, why, and until when at least."""

    node: str
    pod: str
    until: float
    grace: float
    allocations: tuple[claims.AllocationResult, ...]


class Quarantine:
    """What is held, by the uid of the pod that was removed."""

    def __init__(self, *, slack_seconds: float = 5.0, most_seconds: float = 300.0) -> None:
        self._slack = slack_seconds
        self.most_seconds = most_seconds
        self.held: dict[str, Held] = {}

    def lost(self, pod: pods.Pod, used: Iterable[claims.AllocationResult], now: float) -> Held | None:
        """The pod, or its claims' devices, went while the node may still be running it; what to hold now."""
        known = self.held.get(pod.metadata.uid)
        fresh = tuple(one for one in used if known is None or one not in known.allocations)
        if not fresh or not may_run(pod):
            return None
        grace = pod.spec.termination_grace_period_seconds
        # The owner chose the grace period, and the API bounds it by 2**63 seconds: the administrator's bound counts.
        wait = min((DEFAULT_GRACE_SECONDS if grace is None else float(grace)) + self._slack, self.most_seconds)
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        before = known.allocations if known is not None else ()
        self.held[pod.metadata.uid] = Held(pod.spec.node_name, name, now + wait, wait, (*before, *fresh))
        return Held(pod.spec.node_name, name, now + wait, wait, fresh)

    def resume(self, uid: str, held: Held) -> None:
        """Goes on with what a predecessor held for a pod."""
        known = self.held.get(uid)
        before = known.allocations if known is not None else ()
        self.held[uid] = held._replace(allocations=(*before, *held.allocations))

    def ended(self, uid: str) -> bool:
        """The pod ended properly after all; whether anything was held for it."""
        return self.held.pop(uid, None) is not None

    def let_go(self, known: Mapping[str, nodes.Node], now: float) -> tuple[str, ...]:
        """Which pods' devices are free again. A node that is not ready keeps them; its time starts anew."""
        free: list[str] = []
        for uid, held in list(self.held.items()):
            node = known.get(held.node)
            if node is None:
                free.append(uid)
            elif not is_ready(node):
                self.held[uid] = held._replace(until=now + held.grace)
            elif now >= held.until:
                free.append(uid)
        for uid in free:
            del self.held[uid]
        return tuple(free)


def may_run(pod: pods.Pod) -> bool:
    """Whether a pod's containers may run: a kubelet reports the end before it lets a pod go."""
    return bool(pod.spec.node_name) and pod.status.phase not in TERMINAL


def is_ready(node: nodes.Node) -> bool:
    """Whether the node reports in. One that never said anything counts as ready."""
    ready = next((one for one in node.status.conditions if one.type == "Ready"), None)
    return ready is None or ready.status == "True"
