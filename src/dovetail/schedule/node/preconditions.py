"""Decides whether a pod is ready to be scheduled: gates, claims and annotations (PreEnqueue and PreFilter).

Given a pod and the books of claims. Never looks at nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.kubetypes.core import pods
from dovetail.model import gpu_annotations
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims


def needs(pod: pods.Pod, claim_lookup: ClaimLookup) -> PodClaims | tuple[Reason, ...]:
    """The claims of a pod that is ready, or every reason why it is not."""
    reasons = (*_gates(pod), *_annotations(pod))
    claims_or_reasons = claim_lookup.needs(pod)
    if isinstance(claims_or_reasons, PodClaims):
        return reasons or claims_or_reasons
    return (*reasons, *claims_or_reasons)


def _gates(pod: pods.Pod) -> Iterator[Reason]:
    for gate in pod.spec.scheduling_gates:
        yield Reason(
            code=ReasonCode.GATED, subject=f"gate {gate.name}", detail="is not removed yet"
        )


def _annotations(pod: pods.Pod) -> Iterator[Reason]:
    """Requests for GPUs that cannot be honoured: without them the pod would run without its GPU, or on another."""
    for refusal in gpu_annotations.refusals(pod):
        yield Reason(code=ReasonCode.ANNOTATION, subject=refusal.subject, detail=refusal.detail)
