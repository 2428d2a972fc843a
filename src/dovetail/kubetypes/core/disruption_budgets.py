"""PodDisruptionBudget of policy/v1, with the fields evictions read: which pods it covers, and how many may go now."""

from __future__ import annotations

import msgspec

from dovetail.kubetypes import label_selectors, meta
from dovetail.kubetypes.core import pods

ALWAYS_ALLOW = "AlwaysAllow"  # policy/v1: unhealthyPodEvictionPolicy


class BudgetSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The pods a budget covers: none without a selector, all of its namespace with an empty one."""

    selector: meta.LabelSelector | None = None
    min_available: meta.Int32 | str | None = None  # a number, or a percentage such as 50%
    max_unavailable: meta.Int32 | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What the disruption controller counted last."""

    observed_generation: meta.Int64 = 0
    disruptions_allowed: meta.Int32 = 0
    current_healthy: meta.Int32 = 0
    desired_healthy: meta.Int32 = 0
    expected_pods: meta.Int32 = 0


class PodDisruptionBudget(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
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
    return label_selectors.passes(
        label_selectors.tests_of(budget.spec.selector), pod.metadata.labels
    )


def is_counted(pod: pods.Pod) -> bool:
    """Whether the pod's end counts against its budget: a ready pod's does; for others only the server knows."""
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in pod.status.conditions
    )
