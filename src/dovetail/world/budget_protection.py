"""Which pods disruption budgets protect from eviction, judged by the budgets' own counts.

Given pods one by one, and all budgets as last listed. A budget protects as many of its pods as it wants healthy, the
oldest first. It protects all of them while it allows no disruption, and every pod under two budgets is protected,
because the eviction API refuses those. Never evicts, never calls a server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dovetail.kubetypes.core import disruption_budgets, pods

# Per namespace. Every budget is matched against every pod of its namespace, and a tenant may create any number.
MOST_BUDGETS: Final = 64

Budget = disruption_budgets.PodDisruptionBudget
Name = tuple[str, str]  # of a budget: namespace, name


class BudgetProtection:
    """Disruption budgets, and the pods under each."""

    def __init__(self) -> None:
        self._budgets: dict[Name, Budget] = {}
        self._names: dict[str, list[Name]] = {}  # namespace -> its budgets
        self._pods: dict[str, dict[str, pods.Pod]] = {}  # namespace -> pod id -> pod
        self._under: dict[Name, dict[str, pods.Pod]] = {}  # budget -> pod id -> pod
        # Namespaces with too many budgets to match: all of their pods count as protected.
        self._crowded: set[str] = set()

    def put(self, budgets: Iterable[Budget]) -> bool:
        """Replaces the budgets. Returns whether a pod that was protected before may be evictable now."""
        before = self._budgets
        self._budgets = {
            (budget.metadata.namespace, budget.metadata.name): budget for budget in budgets
        }
        self._names = {}
        for name in sorted(self._budgets):
            self._names.setdefault(name[0], []).append(name)
        self._crowded = {
            namespace for namespace, names in self._names.items() if len(names) > MOST_BUDGETS
        }
        for namespace in self._crowded:
            del self._names[namespace]
        self._match_pods(before)
        return any(_is_looser(self._budgets.get(name), old) for name, old in before.items())

    def _match_pods(self, before: Mapping[Name, Budget]) -> None:
        """Matches pods again only for budgets whose selector changed."""
        under_before = self._under
        self._under = {}
        for name, budget in self._budgets.items():
            if name[0] in self._crowded:
                continue
            old = before.get(name)
            is_same = old is not None and old.spec.selector == budget.spec.selector
            if is_same and name in under_before:
                self._under[name] = under_before[name]
            else:
                self._under[name] = self._covered(budget)

    def _covered(self, budget: Budget) -> dict[str, pods.Pod]:
        neighbours = self._pods.get(budget.metadata.namespace, {})
        return {
            pod_id: pod
            for pod_id, pod in neighbours.items()
            if disruption_budgets.covers(budget, pod)
        }

    def put_pod(self, pod_id: str, before: pods.Pod | None, pod: pods.Pod | None) -> None:
        """Replaces a pod, or removes it. A few look-ups if its namespace has no budget."""
        # Removed first even if it stays: it may have moved under other budgets, and it goes to the end of its tables.
        if before is not None:
            self._remove(pod_id, before.metadata.namespace)
        if pod is not None:
            self._remove(pod_id, pod.metadata.namespace)
            self._add(pod_id, pod)

    def _remove(self, pod_id: str, namespace: str) -> None:
        neighbours = self._pods.get(namespace)
        if neighbours is None:
            return
        neighbours.pop(pod_id, None)
        if not neighbours:
            del self._pods[namespace]
        for name in self._names.get(namespace, ()):
            self._under[name].pop(pod_id, None)

    def _add(self, pod_id: str, pod: pods.Pod) -> None:
        namespace = pod.metadata.namespace
        self._pods.setdefault(namespace, {})[pod_id] = pod
        for name in self._names.get(namespace, ()):
            if disruption_budgets.covers(self._budgets[name], pod):
                self._under[name][pod_id] = pod

    def protected(self, running: Collection[str]) -> Mapping[str, str]:
        """By id, the pods that cannot be evicted now, or could not once they run; with the protecting budget."""
        protected: dict[str, str] = {}
        for name, under in self._under.items():
            status = self._budgets[name].status
            pod_ids = list(under)
            if status.disruptions_allowed > 0:
                # Running pods first, then by age: the pods the budget can count on.
                pod_ids.sort(key=lambda pod_id: (pod_id not in running, *_age(under[pod_id])))
                pod_ids = pod_ids[: max(status.desired_healthy, 0)]
            for pod_id in pod_ids:
                protected.setdefault(pod_id, f"{name[0]}/{name[1]}")
        for namespace, names in self._names.items():
            if len(names) > 1:
                protected |= self._under_several(namespace, names)
        for namespace in self._crowded:
            protected_by = f"{namespace}/*, one of more than {MOST_BUDGETS},"
            protected.update(dict.fromkeys(self._pods.get(namespace, ()), protected_by))
        return protected

    def _under_several(self, namespace: str, names: Iterable[Name]) -> dict[str, str]:
        """Pods under more than one budget, with the first two of them."""
        budgets_over: dict[str, list[str]] = {}
        for name in names:
            for pod_id in self._under[name]:
                budgets_over.setdefault(pod_id, []).append(f"{namespace}/{name[1]}")
        return {
            pod_id: " and ".join(budgets[:2])
            for pod_id, budgets in budgets_over.items()
            if len(budgets) > 1
        }


def _age(pod: pods.Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def _is_looser(now: Budget | None, before: Budget) -> bool:
    if now is None or now.spec.selector != before.spec.selector:
        return True
    if now.status.desired_healthy < before.status.desired_healthy:
        return True
    return now.status.disruptions_allowed > 0 and not before.status.disruptions_allowed
