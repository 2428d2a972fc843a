"""Decides whether a pod may be decided about at all: its gates and its claims.

Given a pod and the books of claims. Never looks at nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.model import pods
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.claims import Books, Needs


def needs(pod: pods.Pod, books: Books) -> Needs | tuple[Reason, ...]:
    """The claims of a pod that is ready, or every reason why it is not."""
    reasons = tuple(_gates(pod))
    found = books.needs(pod)
    if isinstance(found, Needs):
        return reasons or found
    return (*reasons, *found)


def _gates(pod: pods.Pod) -> Iterator[Reason]:
    for gate in pod.spec.scheduling_gates:
        yield Reason(code=ReasonCode.GATED, subject=f"gate {gate.name}", detail="is not removed yet")
