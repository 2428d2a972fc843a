"""Writes nominatedNodeName into pods' statuses as a plan says, and clears it when no plan does any more.

Given plans. Clears only the scheduler's own nominations, which a condition next to them identifies: other writers,
such as autoscalers, nominate too. Never decides which node a pod is nominated for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dovetail import timestamps
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.live.bind import write_retry
from dovetail.model import plan
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.evict")
PATIENCE_SECONDS: Final = 5.0  # with an unresponsive server: no decision is made meanwhile
NODE_KEPT: Final = "dovetail.dev/NodeKept"  # the condition that marks a nomination as ours


class Nominator:
    """Brings the pods' nominations to what a plan says."""

    def __init__(
        self,
        writer: write_retry.Writer,
        clock: clocks.Clock,
        world: World,
        *,
        saw: Callable[[registry.Kind, Any], None],
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._world = world
        self._saw = saw

    def changes(self, plan_: plan.Plan, considered: Iterable[pods.Pod]) -> dict[str, str]:
        """By pod uid, the node its status should name; "" for none. Only differences, of the pods considered.

        The nomination of a pod that had no turn in this cycle stays: victims may have been evicted for it.
        """
        nodes = {nomination.pod.uid: nomination.node for nomination in plan_.nominations}
        fresh = {uid: node for uid, node in nodes.items() if self._differs(uid, node)}

        for placement in plan_.placements:
            nodes.setdefault(placement.pod.uid, placement.node)
        undecided = {refusal.pod.uid for refusal in plan_.refusals if refusal.is_undecided}

        stale: dict[str, str] = {}
        for pod in considered:
            uid = pod.metadata.uid
            if uid in undecided or not is_ours(pod):
                continue
            if nodes.get(uid, "") != pod.status.nominated_node_name:
                stale[uid] = ""
        return stale | fresh

    def _differs(self, uid: str, node: str) -> bool:
        pod = self._world.pods.get(uid)
        return pod is not None and pod.status.nominated_node_name != node

    async def write(self, changes: Mapping[str, str], why: str) -> set[str]:
        """Writes them; returns the uids of pods that are gone or could not be patched."""
        done = await asyncio.gather(*(self._write(uid, node, why) for uid, node in changes.items()))
        return {uid for uid, is_done in zip(changes, done, strict=True) if not is_done}

    async def _write(self, uid: str, node: str, why: str) -> bool:
        pod = self._world.pods.get(uid)
        if pod is None:
            return False

        condition = {
            "type": NODE_KEPT,
            "status": "True" if node else "False",
            "reason": "Nominated" if node else "Withdrawn",
            "message": f"node {node} is reserved for the pod: {why}" if node else "",
            "lastTransitionTime": timestamps.to_text(self._clock.now()),
        }
        patch = {
            "metadata": {"uid": uid},
            "status": {"nominatedNodeName": node or None, "conditions": [condition]},
        }
        target = apis.Target(registry.POD, pod.metadata.namespace, pod.metadata.name, "status")
        body = codec.encode_tree(patch)

        try:
            answer = await self._writer.with_retry(
                "nomination",
                lambda: self._writer.api.patch(target, body, adds=True),
                patience_seconds=PATIENCE_SECONDS,
            )
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            LOG.info(
                "nominate.failed",
                extra={"pod": f"{target.namespace}/{target.name}", "why": str(failure)},
            )
            return False

        self._saw(registry.POD, codec.decode_struct(pods.Pod, answer))
        return True


def is_ours(pod: pods.Pod) -> bool:
    """Whether this scheduler wrote the pod's nomination."""
    if not pod.status.nominated_node_name:
        return False
    conditions = pod.status.conditions
    return any(
        condition.type == NODE_KEPT and condition.status == "True" for condition in conditions
    )


def nominated_uids(nominations: Iterable[plan.Nomination], gang: plan.GangRef) -> tuple[str, ...]:
    """The nominated pods of a gang."""
    return tuple(nomination.pod.uid for nomination in nominations if nomination.gang == gang)
