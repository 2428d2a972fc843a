"""Counts PodDisruptionBudgets along a row of evictions: which of them an API server would refuse, and why.

Given the budgets and the pods of a cluster. The numbers begin with what the disruption controller wrote; where it wrote
nothing yet, as in a cluster of manifests, they are counted from the pods. Each eviction lowers them, each pod that is
ready again raises them, so that ten pods under a budget of one do not all hear yes, as they would from ten dry runs.
Judges as registry/core/pod/storage/eviction.go and the disruption controller of Kubernetes 1.37. Never evicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.answer.drain import drain_filters
from dovetail.kubetypes import label_selectors
from dovetail.kubetypes.core import disruption_budgets, pods
from dovetail.kubetypes.core.disruption_budgets import PodDisruptionBudget

# Phases in which the eviction of a pod is its deletion, whatever its budget.
UNGUARDED_PHASES: Final = ("Pending", *pods.TERMINAL_PHASES)

Scales = Mapping[str, int]  # wanted pods by the uid of their controller


class Refusal(NamedTuple):
    """Why an eviction is refused."""

    budget: str  # namespace/name; several where more than one covers the pod
    message: str
    is_final: bool  # no other pod's return would change it


class Standing(NamedTuple):
    """Where a budget stands."""

    budget: str
    allowed: int
    healthy: int
    desired: int


class _Entry:
    """One budget with its numbers, which evictions change."""

    def __init__(
        self, budget: PodDisruptionBudget, present: Iterable[pods.Pod], scales: Scales
    ) -> None:
        self.budget = budget
        self.name = f"{budget.metadata.namespace}/{budget.metadata.name}"
        self.tests = label_selectors.tests_of(budget.spec.selector)
        status = budget.status
        covered = [pod for pod in present if self.covers(pod)]
        if status == disruption_budgets.BudgetStatus():
            self.expected, self.desired = _expected(budget.spec, covered, scales)
            self.healthy = sum(map(_is_healthy, covered))
            self.allowed = self._recounted()
        else:
            self.expected, self.desired = status.expected_pods, status.desired_healthy
            self.healthy, self.allowed = status.current_healthy, status.disruptions_allowed
        # A status that lags behind the spec allows nothing until the controller has counted again.
        self.is_outdated = 0 < status.observed_generation < budget.metadata.generation
        self.covered = len(covered)

    def covers(self, pod: pods.Pod) -> bool:
        """Whether the budget stands over the pod."""
        is_near = self.budget.metadata.namespace == pod.metadata.namespace
        return is_near and label_selectors.passes(self.tests, pod.metadata.labels)

    def refusal(self, pod: pods.Pod) -> Refusal | None:
        """Why the pod may not go now."""
        if self.spares(pod):
            return None
        if self.is_outdated:
            message = f"budget {self.name} is still being counted by the cluster"
            return Refusal(self.name, message, is_final=False)
        if self.allowed > 0:
            return None
        message = f"budget {self.name} needs {self.desired} healthy pods and has {self.healthy}"
        return Refusal(self.name, message, is_final=self.never_allows)

    def spares(self, pod: pods.Pod) -> bool:
        """Whether an unready pod goes without being counted."""
        if disruption_budgets.is_counted(pod):
            return False
        if self.budget.spec.unhealthy_pod_eviction_policy == disruption_budgets.ALWAYS_ALLOW:
            return True
        return self.healthy >= self.desired > 0

    @property
    def never_allows(self) -> bool:
        """Whether it allows nothing even with all of its pods healthy."""
        return self.desired >= max(self.expected, self.covered)

    def leave(self, pod: pods.Pod) -> None:
        """The pod was evicted."""
        if self.spares(pod):
            return
        self.allowed -= 1
        if disruption_budgets.is_counted(pod):
            self.healthy -= 1

    def come_back(self) -> None:
        """A replacement of an evicted pod is ready; the controller counts again."""
        self.healthy += 1
        self.allowed = self._recounted()

    def _recounted(self) -> int:
        return max(0, self.healthy - self.desired) if self.expected > 0 else 0


class Account:
    """The budgets of a cluster along a row of evictions."""

    def __init__(
        self,
        budgets: Iterable[PodDisruptionBudget],
        present: Iterable[pods.Pod],
        *,
        scales: Scales | None = None,
    ) -> None:
        by_namespace: dict[str, list[pods.Pod]] = {}
        for pod in present:
            by_namespace.setdefault(pod.metadata.namespace, []).append(pod)
        self._entries: dict[str, list[_Entry]] = {}
        for budget in budgets:
            namespace = budget.metadata.namespace
            entry = _Entry(budget, by_namespace.get(namespace, ()), scales or {})
            self._entries.setdefault(namespace, []).append(entry)

    def evict(self, pod: pods.Pod) -> Refusal | None:
        """Evicts the pod on paper; None where it is allowed, and then the budgets have changed."""
        refusal, entry = self._judged(pod)
        if refusal is None and entry is not None:
            entry.leave(pod)
        return refusal

    def evict_together(self, leaving: Iterable[pods.Pod]) -> Refusal | None:
        """Evicts all of these pods on paper, or none of them where one is refused."""
        before: list[tuple[_Entry, int, int]] = []
        for pod in leaving:
            refusal, entry = self._judged(pod)
            if refusal is not None:
                for changed, allowed, healthy in reversed(before):
                    changed.allowed, changed.healthy = allowed, healthy
                return refusal
            if entry is not None:
                before.append((entry, entry.allowed, entry.healthy))
                entry.leave(pod)
        return None

    def refusal(self, pod: pods.Pod) -> Refusal | None:
        """Why the pod may not be evicted now; None where it may. Changes nothing."""
        return self._judged(pod)[0]

    def returned(self, pod: pods.Pod) -> None:
        """The replacement of a pod that was evicted while it was ready is ready."""
        covering = self._covering(pod)
        if len(covering) == 1 and disruption_budgets.is_counted(pod) and not _is_unguarded(pod):
            covering[0].come_back()

    def standing(self, pod: pods.Pod) -> Standing | None:
        """The one budget over the pod and its numbers."""
        covering = self._covering(pod)
        if len(covering) != 1:
            return None
        entry = covering[0]
        return Standing(entry.name, entry.allowed, entry.healthy, entry.desired)

    def _judged(self, pod: pods.Pod) -> tuple[Refusal | None, _Entry | None]:
        if _is_unguarded(pod):
            return None, None
        covering = self._covering(pod)
        if len(covering) > 1:
            names = ", ".join(sorted(entry.name for entry in covering))
            message = (
                f"{len(covering)} budgets cover it ({names}); evictions of such pods always fail"
            )
            return Refusal(names, message, is_final=True), None
        if not covering:
            return None, None
        return covering[0].refusal(pod), covering[0]

    def _covering(self, pod: pods.Pod) -> list[_Entry]:
        entries = self._entries.get(pod.metadata.namespace, ())
        return [entry for entry in entries if entry.covers(pod)]


def desired_healthy(spec: disruption_budgets.BudgetSpec, expected: int) -> int:
    """How many pods have to be healthy, of so many that should exist. Percentages are rounded up."""
    if spec.max_unavailable is not None:
        return max(0, expected - _amount(spec.max_unavailable, expected))
    return _amount(spec.min_available, expected) if spec.min_available is not None else 0


def _expected(
    spec: disruption_budgets.BudgetSpec, covered: list[pods.Pod], scales: Scales
) -> tuple[int, int]:
    """How many pods should exist, and how many of them have to be healthy."""
    if spec.max_unavailable is None and not isinstance(spec.min_available, str):
        return len(covered), desired_healthy(spec, len(covered))
    present: dict[str, int] = {}
    for pod in covered:
        controller = drain_filters.controller_of(pod)
        if controller is not None:
            present[controller.uid] = present.get(controller.uid, 0) + 1
    expected = sum(scales.get(uid, count) for uid, count in present.items())
    return expected, desired_healthy(spec, expected)


def _amount(value: int | str, total: int) -> int:
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    return -(-int(digits) * total // 100) if digits.isdecimal() and len(digits) < 10 else total


def _is_healthy(pod: pods.Pod) -> bool:
    return disruption_budgets.is_counted(pod) and pod.metadata.deletion_timestamp is None


def _is_unguarded(pod: pods.Pod) -> bool:
    """Whether its eviction is its deletion: budgets do not count."""
    is_ending = pod.metadata.deletion_timestamp is not None
    return is_ending or pod.status.phase in UNGUARDED_PHASES
