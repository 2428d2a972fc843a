"""Finds what would keep a drain of a roll-out from finishing, node by node, by the same filters as kubectl drain.

Given a replica and the nodes. Reads every pod once. Never evicts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from dovetail.answer.drain import drain_filters, pod_details, prediction, unrequested_gpus
from dovetail.answer.replica import gang_departure
from dovetail.answer.replica.replica import Replica
from dovetail.answer.rollout import rollout_answer, rollout_policy
from dovetail.answer.what_if import displaced_pods
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.world import events

_HOLDERS_STEP: Final = "keep its DaemonSet off these nodes, such as by its nodeSelector"


def drain_blockers(
    replica: Replica,
    nodes: Collection[str],
    policy_: rollout_policy.Policy,
    daemon_sets: drain_filters.DaemonSets,
) -> list[rollout_answer.Blocker]:
    """The refusals of kubectl's filters, each kind once with all its pods and nodes."""
    filters = drain_filters.DrainFilters(policy_.drain, daemon_sets, replica.now)
    refused: dict[tuple[str, str, str], dict[str, str]] = {}  # by kind: node by pod
    for pod, stored, node in _leaving(replica, nodes, policy_):
        verdict = filters.verdict(pod, pod_details.of(stored))
        if policy_.only_gpu_pods and verdict.by in drain_filters.BOUND_TO_NODE:
            verdict = _holding(verdict)
        if verdict.outcome is drain_filters.Outcome.ERROR and verdict.by is not None:
            next_ = _HOLDERS_STEP if _is_holding(verdict) else prediction.step_after(verdict)
            key = (verdict.by.value, f"cannot delete {verdict.message}", next_)
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            refused.setdefault(key, {}).setdefault(name, node)
    return [
        rollout_answer.Blocker(
            code=code,
            nodes=tuple(sorted(set(entries.values()))),
            subjects=tuple(sorted(entries)),
            message=message,
            next=next_,
        )
        for (code, message, next_), entries in sorted(refused.items())
    ]


def _holding(verdict: drain_filters.Verdict) -> drain_filters.Verdict:
    """No driver is changed under a pod that holds GPUs and stays."""
    return verdict._replace(outcome=drain_filters.Outcome.ERROR, message=drain_filters.HOLDS_GPUS)


def _is_holding(verdict: drain_filters.Verdict) -> bool:
    return verdict.message == drain_filters.HOLDS_GPUS


def _leaving(
    replica: Replica, nodes: Collection[str], policy_: rollout_policy.Policy
) -> Iterable[tuple[pods.Pod, codec.Stored, str]]:
    """The pods that have to leave, with the node that they leave for: a gang leaves whole, also from other nodes."""
    world = replica.world
    by_id = {
        events.pod_id(stored.struct): (stored.struct, stored)
        for stored in replica.listed(registry.POD.unique_name)
        if isinstance(stored.struct, pods.Pod)
    }
    for pod_id, (pod, stored) in by_id.items():
        node = pod.spec.node_name
        if node not in nodes:
            continue
        if policy_.only_gpu_pods and not unrequested_gpus.requests_gpus(pod, world.claims):
            continue
        yield pod, stored, node
        member = world.gangs.of(pod_id)
        if member is not None and not displaced_pods.is_bound_to_node(pod):
            for other in gang_departure.leaving_with(world, pod_id, member.gang):
                yield (*by_id[other], node)
