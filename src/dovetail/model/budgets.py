"""PodDisruptionBudget of policy/v1, as far as evictions read it: over which pods it stands, and how many may go now."""

from __future__ import annotations

import msgspec

from dovetail.model import labels, meta, pods


class BudgetSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Whose budget it is. Without a selector nobody's, with an empty one everybody's of the namespace."""

    selector: meta.LabelSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What the disruption controller counted last."""

    disruptions_allowed: meta.Int32 = 0
    desired_healthy: meta.Int32 = 0


class PodDisruptionBudget(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """How many pods of a kind may be made to end at the same time."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


def covers(budget: PodDisruptionBudget, pod: pods.Pod) -> bool:
    """Whether the budget stands over the pod."""
    if budget.metadata.namespace != pod.metadata.namespace:
        return False
    return labels.passes(labels.tests_of(budget.spec.selector), pod.metadata.labels)


def is_counted(pod: pods.Pod) -> bool:
    """Whether the pod's end counts against its budget: a ready one's does, of others only the server can tell."""
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
