"""Drains the nodes of an upgrade: lone pods side by side, gangs one after the other and each of them whole.

Given the status, the facts and the time. The gang that is leaving stands in the status before its first pod is
evicted, so that after a crash the same gang goes on. Work that reports checkpoints is asked for one and waited for.
Pods that a disruption budget protects are not touched while the rest of their gang could not go either. Never evicts.
"""

from __future__ import annotations

import datetime

from dovetail import timestamps
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.custom.stack_upgrades import (
    DrainMode,
    DrainPolicy,
    DrainStatus,
    NodePhase,
    NodeStatus,
)
from dovetail.upgrade.machine import instructions
from dovetail.upgrade.machine.cluster_facts import Facts, PodView

PatienceByMode = {DrainMode.EVICT: 0, DrainMode.EVICT_LATER: 1}


def seconds_since(text: str, now: datetime.datetime) -> int:
    """The seconds since a written time; 0 where that lies ahead."""
    at = timestamps.parse_or_none(text)
    return max(0, int((now - at).total_seconds())) if at is not None else 0


def remaining(node: str, facts: Facts) -> list[PodView]:
    """The pods that still have to leave a node, those that are ending among them."""
    return sorted((pod for pod in facts.pods.values() if pod.node == node), key=_order)


def deadline_seconds(policy: DrainPolicy) -> int:
    """How long a node may drain before it fails."""
    is_late = policy.mode is DrainMode.EVICT_LATER
    return policy.timeout_seconds * (2 if is_late else 1)


def reason(node: NodeStatus, facts: Facts, policy: DrainPolicy) -> str:
    """What a draining node waits for."""
    pods = remaining(node.name, facts)
    blocked = [pod for pod in pods if pod.obstacle or (pod.refusal and not pod.is_ending)]
    if blocked:
        first = blocked[0]
        return f"{first.namespace}/{first.name} stays: {first.obstacle or first.refusal}"
    if policy.mode is DrainMode.WAIT:
        return f"{len(pods)} pods have to end by themselves"
    return f"{len(pods)} pods have to leave"


def advanced(
    status: stack_upgrades.StackUpgradeStatus,
    facts: Facts,
    policy: DrainPolicy,
    now: datetime.datetime,
    *,
    is_held: bool,
) -> DrainStatus | None:
    """The gang that is leaving. While the upgrade is held, none begins, and one that has begun goes on."""
    drain = status.drain
    if drain is not None:
        present = [facts.pods[uid] for uid in drain.pods if uid in facts.pods]
        if not present or (is_held and not drain.is_evicting):
            return None
        if drain.is_evicting or not _may_go(drain, present, policy, now):
            return drain
        return DrainStatus(gang=drain.gang, pods=drain.pods, since=drain.since, is_evicting=True)
    if is_held:
        return None
    return _next(status, facts, policy, now)


def evictions(
    status: stack_upgrades.StackUpgradeStatus,
    facts: Facts,
    policy: DrainPolicy,
    now: datetime.datetime,
    *,
    is_held: bool,
) -> list[instructions.Instruction]:
    """Signals and evictions of the gang that is leaving, and of lone pods."""
    orders: list[instructions.Instruction] = []
    drain = status.drain
    if drain is not None:
        present = [facts.pods[uid] for uid in drain.pods if uid in facts.pods]
        for pod in sorted(present, key=_order):
            orders += _orders(pod, drain.since, policy, is_evicting=drain.is_evicting)
    if is_held:
        return orders
    for node in _draining(status):
        if not _is_due(node, policy, now):
            continue
        for pod in remaining(node.name, facts):
            if not pod.is_lone or pod.obstacle or pod.refusal:
                continue
            is_ready = _is_saved(pod, node.since, policy, now)
            orders += _orders(pod, node.since, policy, is_evicting=is_ready)
    return orders


def _next(
    status: stack_upgrades.StackUpgradeStatus,
    facts: Facts,
    policy: DrainPolicy,
    now: datetime.datetime,
) -> DrainStatus | None:
    """The next gang: of the least priority, by name."""
    names = {node.name for node in _draining(status) if _is_due(node, policy, now)}
    candidates = [pod for pod in facts.pods.values() if pod.node in names and not pod.is_lone]
    for pod in sorted(candidates, key=_order):
        gang = [facts.pods[uid] for uid in sorted(pod.together) if uid in facts.pods]
        is_free = not any(member.obstacle or member.refusal for member in gang)
        if is_free or any(member.is_ending for member in gang):
            uids = tuple(member.uid for member in gang)
            return DrainStatus(gang=pod.gang, pods=uids, since=timestamps.to_text(now))
    return None


def _draining(status: stack_upgrades.StackUpgradeStatus) -> list[NodeStatus]:
    return [node for node in status.nodes if node.phase is NodePhase.DRAINING]


def _is_due(node: NodeStatus, policy: DrainPolicy, now: datetime.datetime) -> bool:
    patience = PatienceByMode.get(policy.mode)
    if patience is None:
        return False
    return seconds_since(node.since, now) >= patience * policy.timeout_seconds


def _may_go(
    drain: DrainStatus, present: list[PodView], policy: DrainPolicy, now: datetime.datetime
) -> bool:
    is_begun = any(pod.is_ending for pod in present)
    is_free = not any(pod.obstacle or pod.refusal for pod in present)
    is_saved = all(_is_saved(pod, drain.since, policy, now) for pod in present)
    return is_begun or (is_free and is_saved)


def _is_saved(pod: PodView, since: str, policy: DrainPolicy, now: datetime.datetime) -> bool:
    """Whether a checkpoint was written since, or need not be waited for."""
    if not policy.checkpoint_signal or pod.checkpoint is None:
        return True
    if seconds_since(since, now) >= policy.checkpoint_grace_seconds:
        return True
    asked = timestamps.parse_or_none(since)
    return asked is not None and pod.checkpoint >= asked


def _orders(
    pod: PodView, since: str, policy: DrainPolicy, *, is_evicting: bool
) -> list[instructions.Instruction]:
    if pod.is_ending:
        return []
    if is_evicting:
        return [instructions.Evict(pod.uid, policy.grace_seconds)]
    if policy.checkpoint_signal and pod.signal != since:
        return [instructions.Signal(pod.uid, since)]
    return []


def _order(pod: PodView) -> tuple[int, str, str, str]:
    return (pod.priority, pod.gang, pod.namespace, pod.name)
