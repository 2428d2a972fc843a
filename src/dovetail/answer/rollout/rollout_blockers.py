"""Finds what would keep a drain of a roll-out from finishing, node by node, by the same filters as kubectl drain.

Given a replica and the nodes. Reads every pod once. Never evicts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dovetail.answer.drain import drain_filters, pod_details, prediction, unrequested_gpus
from dovetail.answer.replica.replica import Replica
from dovetail.answer.rollout import rollout_answer, rollout_policy
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods


def drain_blockers(
    replica: Replica,
    nodes: Collection[str],
    policy_: rollout_policy.Policy,
    daemon_sets: drain_filters.DaemonSets,
) -> list[rollout_answer.Blocker]:
    """The refusals of kubectl's filters, each kind once with all its pods and nodes."""
    filters = drain_filters.DrainFilters(policy_.drain, daemon_sets, replica.now)
    refused: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for pod, stored in _present(replica, nodes):
        if policy_.only_gpu_pods and not unrequested_gpus.requests_gpus(pod, replica.world.claims):
            continue
        verdict = filters.verdict(pod, pod_details.of(stored))
        if verdict.outcome is drain_filters.Outcome.ERROR and verdict.by is not None:
            next_ = prediction.step_after(verdict)
            key = (verdict.by.value, f"cannot delete {verdict.message}", next_)
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            refused.setdefault(key, []).append((pod.spec.node_name, name))
    return [
        rollout_answer.Blocker(
            code=code,
            nodes=tuple(sorted({node for node, _ in entries})),
            subjects=tuple(sorted(name for _, name in entries)),
            message=message,
            next=next_,
        )
        for (code, message, next_), entries in sorted(refused.items())
    ]


def _present(replica: Replica, nodes: Collection[str]) -> Iterable[tuple[pods.Pod, codec.Stored]]:
    for stored in replica.listed(registry.POD.unique_name):
        pod = stored.struct
        if isinstance(pod, pods.Pod) and pod.spec.node_name in nodes:
            yield pod, stored
