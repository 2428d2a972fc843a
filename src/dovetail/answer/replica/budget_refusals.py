"""Which evictions of a plan an API server would refuse, because disruption budgets do not allow them.

Given the plan, the disruption budgets and the pods. A live scheduler hears of a refusal when it evicts, spares the pod
and decides again; a question has to foresee it. Never decides, never evicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dovetail.kubetypes.core import disruption_budgets, pods
from dovetail.model import plan


def refused(
    decided: plan.Plan,
    budgets: Sequence[disruption_budgets.PodDisruptionBudget],
    pods_by_id: Mapping[str, pods.Pod],
) -> frozenset[str]:
    """The ids of pods whose eviction is refused. Where a budget allows none, those of all its pods."""
    used: Counter[int] = Counter()  # evictions by the place of their budget
    excess: set[str] = set()
    for eviction in decided.evictions:
        pod_id = eviction.pod.uid
        pod = pods_by_id.get(pod_id)
        if pod is None or not disruption_budgets.is_counted(pod):
            continue
        over = [
            place for place, budget in enumerate(budgets) if disruption_budgets.covers(budget, pod)
        ]
        if len(over) > 1:
            excess.add(pod_id)  # the eviction API refuses a pod under several budgets
        elif over:
            used[over[0]] += 1
            if used[over[0]] > budgets[over[0]].status.disruptions_allowed:
                excess.add(pod_id)

    closed = [budgets[place] for place in used if budgets[place].status.disruptions_allowed <= 0]
    for pod_id, pod in pods_by_id.items() if closed else ():
        if any(disruption_budgets.covers(budget, pod) for budget in closed):
            excess.add(pod_id)
    return frozenset(excess)
