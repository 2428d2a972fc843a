"""Checks queues by their status: which queue waits below its quota behind work that cannot be evicted.

Facts in, findings out. Reads amounts as the scheduler wrote them; names pods that no controller would recreate. Never
sends a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.doctor.findings import Facts, Finding, Severity, listed, some
from dovetail.errors import DovetailError
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.model import workload_annotations
from dovetail.quantity import quantity

ENDS: Final = "end"  # of dovetail.dev/when-evicted: the pod may be lost


def blocked_queues(facts: Facts) -> Iterator[Finding]:
    """Queues below their quota while another queue exceeds its own with work that cannot be evicted."""
    all_queues = sorted(listed(facts.queues), key=lambda queue: queue.metadata.name)
    for queue in all_queues:
        for resource in queue.status.resources:
            if not _waits_below_quota(queue, resource):
                continue
            for holder in all_queues:
                if holder is not queue and _exceeds_quota_for_good(holder, resource):
                    yield _finding(queue, holder, resource, facts)


def _waits_below_quota(queue: queues.Queue, resource: str) -> bool:
    charged = _amount(queue, resource, "charged")
    requested = _amount(queue, resource, "requested")
    quota = _amount(queue, resource, "quota")
    if charged is None or requested is None or quota is None:
        return False
    return charged < min(quota, requested)


def _finding(queue: queues.Queue, holder: queues.Queue, resource: str, facts: Facts) -> Finding:
    waits, holds = queue.metadata.name, holder.metadata.name
    mine, theirs = queue.status.resources[resource], holder.status.resources[resource]
    quota = queue.spec.resources[resource].quota
    bare_pods = [pod.metadata for pod in listed(facts.pods) if _is_bare(pod, holds)]

    cause = "disruption budgets or work that is not preemptible"
    if bare_pods:
        pod_names = sorted(f"{metadata.namespace}/{metadata.name}" for metadata in bare_pods)
        cause = f"pods that no controller would recreate: {some(pod_names)}"
    return Finding(
        severity=Severity.WARNING,
        check="queues",
        what=(
            f"queue {waits} waits with {mine.charged} of its quota of {quota} {resource}: "
            f"queue {holds} holds {theirs.charged}, {theirs.charged_non_preemptible} of it "
            "in work that cannot be evicted"
        ),
        where=cause,
        next=f"kubectl get pods,poddisruptionbudgets -A -l {workload_annotations.QUEUE}={holds}",
    )


def _exceeds_quota_for_good(queue: queues.Queue, resource: str) -> bool:
    """Whether a queue holds more than its quota in work that cannot be evicted."""
    fixed = _amount(queue, resource, "charged_non_preemptible")
    quota = _amount(queue, resource, "quota")
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
    """Whether a running pod of the queue has no controller and has not agreed to be lost."""
    metadata = pod.metadata
    if metadata.labels.get(workload_annotations.QUEUE) != queue:
        return False
    if not pod.spec.node_name or pod.status.phase in pods.TERMINAL_PHASES:
        return False
    may_be_lost = metadata.annotations.get(workload_annotations.WHEN_EVICTED) == ENDS
    return not may_be_lost and not any(owner.controller for owner in metadata.owner_references)
