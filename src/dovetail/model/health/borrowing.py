"""Judges queues by what the scheduler wrote into their status: who waits below its quota behind work that stays put.

Facts in, findings out. Reads amounts as they are written; names pods that nothing makes again. Never asks a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.errors import DovetailError
from dovetail.model import pods, quantity, queues, wishes
from dovetail.model.health.facts import Facts, Finding, Severity, some

TERMINAL: Final = ("Succeeded", "Failed")
ENDS: Final = "end"  # of dovetail.dev/when-evicted: the pod may be lost


def held_up(facts: Facts) -> Iterator[Finding]:
    """Queues that wait below their quota while others hold more than theirs in work that cannot be made to yield."""
    known = facts.queues or ()
    for queue in sorted(known, key=lambda one: one.metadata.name):
        for resource in queue.status.resources:
            charged, requested, quota = (_amount(queue, resource, part) for part in ("charged", "requested", "quota"))
            if charged is None or requested is None or quota is None or not charged < min(quota, requested):
                continue
            holders = [other for other in known if other is not queue and _holds(other, resource)]
            for other in sorted(holders, key=lambda one: one.metadata.name):
                yield _finding(queue, other, resource, facts)


def _finding(queue: queues.Queue, other: queues.Queue, resource: str, facts: Facts) -> Finding:
    waits, holds = queue.metadata.name, other.metadata.name
    mine, theirs = queue.status.resources[resource], other.status.resources[resource]
    quota = queue.spec.resources[resource].quota
    bare = sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in facts.pods or () if _is_bare(pod, holds))
    cause = (
        f"pods that nothing makes again: {some(bare)}" if bare else "disruption budgets or work that is not preemptible"
    )
    return Finding(
        severity=Severity.WARNING,
        check="queues",
        what=(
            f"queue {waits} waits with {mine.charged} of its quota of {quota} {resource}: "
            f"queue {holds} holds {theirs.charged}, {theirs.charged_non_preemptible} of it in work that cannot be made "
            f"to yield"
        ),
        where=cause,
        next=f"kubectl get pods,poddisruptionbudgets -A -l {wishes.QUEUE}={holds}",
    )


def _holds(queue: queues.Queue, resource: str) -> bool:
    """Whether a queue holds more than its quota in work that cannot be made to yield."""
    fixed, quota = (_amount(queue, resource, part) for part in ("charged_non_preemptible", "quota"))
    return fixed is not None and quota is not None and fixed > quota


def _amount(queue: queues.Queue, resource: str, part: str) -> quantity.Quantity | None:
    share, status = queue.spec.resources.get(resource), queue.status.resources.get(resource)
    if share is None or status is None:
        return None
    if part == "quota":
        return share.quota
    try:
        return quantity.parse(getattr(status, part))
    except DovetailError:
        return None


def _is_bare(pod: pods.Pod, queue: str) -> bool:
    metadata = pod.metadata
    if metadata.labels.get(wishes.QUEUE) != queue or not pod.spec.node_name or pod.status.phase in TERMINAL:
        return False
    may_be_lost = metadata.annotations.get(wishes.WHEN_EVICTED) == ENDS
    return not may_be_lost and not any(owner.controller for owner in metadata.owner_references)
