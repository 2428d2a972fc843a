"""Which pods disruption budgets keep from being evicted, as far as the budgets' own counts tell.

Fed pod by pod, and with all budgets as they were last listed. Of the pods under a budget as many are kept as it wants
healthy, the oldest first; all of them while it allows no disruption, or where two budgets stand over a pod, which the
eviction API never allows. Never evicts, never asks a server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dovetail.model import budgets, pods

MOST_BUDGETS: Final = 64  # of a namespace: each is asked about each of its pods, and a tenant may make any number

Name = tuple[str, str]  # of a budget: namespace, name


class Shields:
    """Budgets, and the pods under each."""

    def __init__(self) -> None:
        self._budgets: dict[Name, budgets.PodDisruptionBudget] = {}
        self._names: dict[str, list[Name]] = {}  # by namespace
        self._pods: dict[str, dict[str, pods.Pod]] = {}  # by namespace and id
        self._under: dict[Name, dict[str, pods.Pod]] = {}
        self._crowded: set[str] = set()  # namespaces with so many budgets that all of their pods count as held

    def put(self, found: Iterable[budgets.PodDisruptionBudget]) -> bool:
        """These are the budgets now. Whether that may let anybody go who could not before."""
        before = self._budgets
        self._budgets = {(one.metadata.namespace, one.metadata.name): one for one in found}
        self._names = {}
        for name in sorted(self._budgets):
            self._names.setdefault(name[0], []).append(name)
        self._crowded = {namespace for namespace, names in self._names.items() if len(names) > MOST_BUDGETS}
        for namespace in self._crowded:
            del self._names[namespace]
        known = self._under
        self._under = {}
        for name, budget in self._budgets.items():
            if name[0] in self._crowded:
                continue
            old = before.get(name)
            is_same = old is not None and name in known and old.spec.selector == budget.spec.selector
            self._under[name] = known[name] if is_same else self._covered(budget)
        return any(_is_looser(self._budgets.get(name), old) for name, old in before.items())

    def _covered(self, budget: budgets.PodDisruptionBudget) -> dict[str, pods.Pod]:
        there = self._pods.get(budget.metadata.namespace, {})
        return {id_: pod for id_, pod in there.items() if budgets.covers(budget, pod)}

    def join(self, id_: str, before: pods.Pod | None, pod: pods.Pod | None) -> None:
        """A pod is there, or gone. A few look-ups where its namespace has no budget."""
        for namespace in {one.metadata.namespace for one in (before, pod) if one is not None}:
            there = self._pods.setdefault(namespace, {})
            there.pop(id_, None)
            for name in self._names.get(namespace, ()):
                self._under[name].pop(id_, None)
            if pod is not None and pod.metadata.namespace == namespace:
                there[id_] = pod
                for name in self._names.get(namespace, ()):
                    if budgets.covers(self._budgets[name], pod):
                        self._under[name][id_] = pod
            if not there:
                del self._pods[namespace]

    def held(self, running: Collection[str]) -> Mapping[str, str]:
        """By id, the pods that cannot be evicted now, or could not be once they ran; and the budget that says so."""
        found: dict[str, str] = {}
        for name, under in self._under.items():
            status = self._budgets[name].status
            kept = list(under)
            if status.disruptions_allowed > 0:
                kept.sort(key=lambda id_: (id_ not in running, *_age(under[id_])))
                kept = kept[: max(status.desired_healthy, 0)]
            for id_ in kept:
                found.setdefault(id_, f"{name[0]}/{name[1]}")
        for namespace, names in self._names.items():
            if len(names) > 1:
                found |= self._doubly(namespace, names)
        for namespace in self._crowded:
            held_by = f"{namespace}/*, one of more than {MOST_BUDGETS},"
            found.update(dict.fromkeys(self._pods.get(namespace, ()), held_by))
        return found

    def _doubly(self, namespace: str, names: Iterable[Name]) -> dict[str, str]:
        """Pods under more than one budget."""
        over: dict[str, list[str]] = {}
        for name in names:
            for id_ in self._under[name]:
                over.setdefault(id_, []).append(f"{namespace}/{name[1]}")
        return {id_: " and ".join(several[:2]) for id_, several in over.items() if len(several) > 1}


def _age(pod: pods.Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def _is_looser(now: budgets.PodDisruptionBudget | None, before: budgets.PodDisruptionBudget) -> bool:
    if now is None or now.spec.selector != before.spec.selector:
        return True
    if now.status.desired_healthy < before.status.desired_healthy:
        return True
    return now.status.disruptions_allowed > 0 and not before.status.disruptions_allowed
