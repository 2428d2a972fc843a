"""Writes into pods' statuses which nodes are kept for them, when a plan says so, and clears it when none does any more.

Given plans. Only nominations of our own are cleared, which a condition beside them tells: others, such as autoscalers,
nominate too. Never decides for whom a node is kept.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dovetail.loops import settle
from dovetail.model import kinds, objects, plan, pods
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.evict")
PATIENCE_SECONDS: Final = 5.0  # with a server that does not answer: nothing is decided meanwhile
KEPT: Final = "dovetail.dev/NodeKept"  # the condition that says that a nomination is ours


class Nominator:
    """Brings statuses to what a plan says."""

    def __init__(
        self, settler: settle.Settler, clock: clocks.Clock, world: World, *, saw: Callable[[kinds.Kind, Any], None]
    ) -> None:
        self._settler = settler
        self._clock = clock
        self._world = world
        self._saw = saw

    def changes(self, made: plan.Plan, asked: Iterable[pods.Pod]) -> dict[str, str]:
        """By uid of a pod, the node its status should name; "" for none. Only what differs, of those asked about.

        What is kept for a pod that had no turn stays kept: others may have been ended for it.
        """
        wanted = {one.pod.uid: one.node for one in made.nominations}
        for placement in made.placements:
            wanted.setdefault(placement.pod.uid, placement.node)
        fresh = {
            one.pod.uid: one.node
            for one in made.nominations
            if (pod := self._world.pods.get(one.pod.uid)) is not None and pod.status.nominated_node_name != one.node
        }
        undecided = {one.pod.uid for one in made.refusals if one.is_undecided}
        stale = {
            pod.metadata.uid: ""
            for pod in asked
            if is_ours(pod)
            and pod.metadata.uid not in undecided
            and wanted.get(pod.metadata.uid, "") != pod.status.nominated_node_name
        }
        return stale | fresh

    async def write(self, changes: Mapping[str, str], why: str) -> set[str]:
        """Writes them; the uids of pods that are gone or could not be told."""
        done = await asyncio.gather(*(self._write(uid, node, why) for uid, node in changes.items()))
        return {uid for uid, is_done in zip(changes, done, strict=True) if not is_done}

    async def _write(self, uid: str, node: str, why: str) -> bool:
        pod = self._world.pods.get(uid)
        if pod is None:
            return False
        condition = {
            "type": KEPT,
            "status": "True" if node else "False",
            "reason": "Nominated" if node else "Withdrawn",
            "message": f"node {node} is kept for it: {why}" if node else "",
            "lastTransitionTime": self._clock.now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        patch = {
            "metadata": {"uid": uid},
            "status": {"nominatedNodeName": node or None, "conditions": [condition]},
        }
        target = apis.Target(kinds.POD, pod.metadata.namespace, pod.metadata.name, "status")
        body = objects.encode_tree(patch)
        try:
            answer = await self._settler.answered(
                "nomination",
                lambda: self._settler.api.patch(target, body, adds=True),
                patience_seconds=PATIENCE_SECONDS,
            )
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            LOG.info("not nominated", extra={"pod": f"{target.namespace}/{target.name}", "why": str(failure)})
            return False
        self._saw(kinds.POD, objects.decode_struct(pods.Pod, answer))
        return True


def is_ours(pod: pods.Pod) -> bool:
    """Whether the pod's nominated node is one we keep for it."""
    return bool(pod.status.nominated_node_name) and any(
        one.type == KEPT and one.status == "True" for one in pod.status.conditions
    )


def uids_of(nominations: Iterable[plan.Nomination], gang: plan.GangRef) -> tuple[str, ...]:
    """The pods of a gang that nodes are kept for."""
    return tuple(one.pod.uid for one in nominations if one.gang == gang)
