"""Waits until the scheduler of the embedded cluster has answered: every pod is bound, or says why it waits.

Given a transport. Commands that show the answer right after a change use it; kubectl would show the pods as Pending
without a reason for the same moment. Bounded: an answer that does not come is not waited for any longer. Never writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from dovetail.kube import object_requests
from dovetail.kube.http import transport
from dovetail.kubetypes import codec, registry

PATIENCE_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.03
SLOWEST_POLL_SECONDS: Final = 0.3
# Kinds whose controllers make pods or report numbers, and the list of each.
WORKLOADS: Final = {
    name: registry.Kind(api_version, name, plural, True, codec.Generic)
    for api_version, name, plural in (
        ("apps/v1", "Deployment", "deployments"),
        ("apps/v1", "ReplicaSet", "replicasets"),
        ("apps/v1", "StatefulSet", "statefulsets"),
        ("apps/v1", "DaemonSet", "daemonsets"),
        ("batch/v1", "Job", "jobs"),
    )
} | {registry.QUEUE.name: registry.QUEUE}
_ENDED: Final = ("Succeeded", "Failed")

Tree = dict[str, Any]
Report = Callable[[int, int], None]  # given how many have their answer, and how many there are


def report_nothing(answered: int, total: int) -> None:
    """For callers that need no progress."""


async def wait_for_answers(
    over: transport.Transport,
    namespaces: Sequence[str],
    *,
    kinds: Collection[str] = (),
    seconds: float = PATIENCE_SECONDS,
    report: Report = report_nothing,
) -> bool:
    """Waits for the pods of these namespaces, and for controllers of these kinds to have made theirs."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    pause = POLL_SECONDS
    while True:
        answered, total = await _progress(over, namespaces, kinds)
        report(answered, total)
        if answered == total:
            return True
        if loop.time() > until:
            return False
        await asyncio.sleep(pause)
        pause = min(SLOWEST_POLL_SECONDS, pause * 1.5)


async def _progress(
    over: transport.Transport, namespaces: Sequence[str], kinds: Collection[str]
) -> tuple[int, int]:
    """How many of the pods and controllers have their answer, and how many there are."""
    wanted: list[tuple[registry.Kind, Callable[[Tree], bool]]]
    wanted = [(kind, is_observed) for name, kind in WORKLOADS.items() if name in kinds]
    wanted.append((registry.POD, is_answered))
    reads = [
        (kind, test, namespace)
        for kind, test in wanted
        for namespace in (namespaces if kind.is_namespaced else ("",))
    ]
    lists = await asyncio.gather(
        *(object_requests.listed(over, kind, namespace=namespace) for kind, _, namespace in reads)
    )
    answers = [
        test(tree) for (_, test, _), trees in zip(reads, lists, strict=True) for tree in trees
    ]
    return sum(answers), len(answers)


def is_observed(tree: Tree) -> bool:
    """Whether the controller of a workload has seen this state of it."""
    status: Tree = tree.get("status") or {}
    if tree["kind"] == "Job":
        return bool(status)
    generation = (tree.get("metadata") or {}).get("generation", 0)
    is_current = int(status.get("observedGeneration") or 0) >= int(generation or 0)
    if tree["kind"] != registry.QUEUE.name:
        return is_current
    # The numbers of a queue follow its conditions; a queue that is not ready gets none.
    conditions = status.get("conditions") or ()
    ready = [each for each in conditions if each.get("type") == "Ready"]
    is_ready = any(each.get("status") == "True" for each in ready)
    return is_current and bool(ready) and (not is_ready or bool(status.get("resources")))


def is_answered(pod: Tree) -> bool:
    """Whether a pod has started or ended, or says why it has no node."""
    status: Tree = pod.get("status") or {}
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return False  # hollow kubelets let go of it at once
    conditions = status.get("conditions") or ()
    scheduled = [each for each in conditions if each.get("type") == "PodScheduled"]
    if (pod.get("spec") or {}).get("nodeName"):
        # Its manifest named the node: no scheduler answers, and there may be no such node.
        names_node = not any(each.get("status") == "True" for each in scheduled)
        return names_node or status.get("phase") not in (None, "", "Pending")
    if status.get("phase") in _ENDED:
        return True
    if status.get("nominatedNodeName"):
        return False  # others are making room: it starts soon
    return any(each.get("status") == "False" and each.get("message") for each in scheduled)
