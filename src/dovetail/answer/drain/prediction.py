"""Predicts the drain of a node: each pod's fate in order, the budgets along the way, blockers, holders of GPUs.

Given the replica of a cluster, the options, the DaemonSets that were read and, where a cluster was asked, its answers
to dry runs of the evictions. kubectl ends no pod of a node if one is refused; evictions that a budget refuses are
tried again for as long as the drain may take. Never ends a pod, never asks a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from dovetail.answer.drain import (
    disruption_account,
    drain_answer,
    drain_filters,
    pod_details,
    unrequested_gpus,
)
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import gpu_numbers, near_names, node_changes
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.world.devices import gpu_ledger

DAEMON_SET: Final = registry.Kind("apps/v1", "DaemonSet", "daemonsets", True, codec.Generic)
DEFAULT_GRACE_SECONDS: Final = 30  # core/v1: terminationGracePeriodSeconds
BUDGET_CODE: Final = "DisruptionBudget"
SERVER_CODE: Final = "Server"

Judged = tuple[pods.Pod, pod_details.PodDetails, drain_filters.Verdict]
Selects = Callable[[Mapping[str, str]], bool]
Answers = Mapping[
    str, str
]  # namespace/name of a pod: the server's refusal, empty where it would evict

_NEXT: Final = {
    drain_filters.Filter.DAEMON_SET: "drain with --ignore-daemonsets; their pods stay",
    drain_filters.Filter.LOCAL_STORAGE: "drain with --delete-emptydir-data; what the volumes hold is lost",
    drain_filters.Filter.UNMANAGED: "drain with --force; no controller creates them again",
}


def predict(
    replica: Replica,
    node: str,
    options: drain_filters.Options,
    *,
    daemon_sets: drain_filters.DaemonSets,
    selects: Selects | None = None,
    answers: Answers | None = None,
    account: disruption_account.Account | None = None,
) -> drain_answer.Prediction:
    """The drain of a node. An account that is given goes on along a plan. Raises InputError for an unknown node."""
    if node not in replica.world.nodes:
        raise near_names.unknown("node", node, replica.world.nodes)
    return _Drain(replica, node, options, daemon_sets, selects, answers, account).prediction()


def account_of(replica: Replica) -> disruption_account.Account:
    """The budgets of the cluster as they are now."""
    budgets = replica.budgets()
    return disruption_account.Account(budgets, replica.world.pods.values() if budgets else ())


def leaving(
    replica: Replica,
    node: str,
    options: drain_filters.Options,
    *,
    daemon_sets: drain_filters.DaemonSets,
    selects: Selects | None = None,
) -> list[pods.Pod]:
    """The pods that the drain ends, in order; also where a refused pod keeps it from beginning."""
    drain = _Drain(replica, node, options, daemon_sets, selects, None, None)
    return [pod for pod, _, verdict in drain.judged() if verdict.leaves]


def step_after(verdict: drain_filters.Verdict) -> str:
    """What to do about a refused pod."""
    assert verdict.by is not None, "an error without its filter"
    if verdict.message.endswith("not found"):
        return "drain with --force; their DaemonSet is gone"
    return _NEXT[verdict.by]


class _Drain:
    """One drain."""

    def __init__(
        self,
        replica: Replica,
        node: str,
        options: drain_filters.Options,
        daemon_sets: drain_filters.DaemonSets,
        selects: Selects | None,
        answers: Answers | None,
        account: disruption_account.Account | None,
    ) -> None:
        self._replica = replica
        self._node = node
        self._options = options
        self._daemon_sets = daemon_sets
        self._selects = selects
        self._answers = answers
        self._account = account or account_of(replica)
        self._stock = gpu_numbers.Stock(replica.world, replica.policy)
        self._blocked: dict[tuple[str, str, str], list[str]] = {}  # code, message, next: pods
        self._begun: set[str] = set()  # budgets that allowed an eviction of this drain

    def prediction(self) -> drain_answer.Prediction:
        """All about the drain."""
        judged = self.judged()
        fates = [self._fate(*each) for each in judged]
        warnings: dict[str, list[str]] = {}
        for pod, _, verdict in judged:
            if verdict.outcome is drain_filters.Outcome.WARNING:
                warnings.setdefault(verdict.message, []).append(_name(pod))
        blockers = [
            drain_answer.Blocker(code=code, pods=tuple(names), message=message, next=next_)
            for (code, message, next_), names in sorted(self._blocked.items())
        ]
        gpus = node_changes.gpu_count(self._replica, self._node)
        return drain_answer.Prediction(
            node=self._node,
            can_drain=not blockers,
            is_cordoned=self._replica.world.nodes[self._node].spec.unschedulable,
            gpus=gpus,
            pods=tuple(fates),
            blockers=tuple(blockers),
            warnings=tuple(f"{text}: {', '.join(names)}" for text, names in warnings.items()),
            holders=tuple(self._holders(judged)) if gpus else (),
            unknown=tuple(self._unknown(judged, gpus)),
            server="dry run" if self._answers is not None else "",
        )

    def judged(self) -> list[Judged]:
        """The pods of the node in the order of the drain, each with what kubectl's filters say."""
        filters = drain_filters.DrainFilters(self._options, self._daemon_sets, self._replica.now)
        present = {pod.metadata.uid: (pod, stored) for pod, stored in self._present()}
        ordered = drain_filters.in_order([pod for pod, _ in present.values()], self._selects)
        judged = []
        for pod in ordered:
            details = pod_details.of(present[pod.metadata.uid][1])
            judged.append((pod, details, filters.verdict(pod, details)))
        return judged

    def _present(self) -> Iterable[tuple[pods.Pod, codec.Stored]]:
        for stored in self._replica.listed(registry.POD.unique_name):
            pod = stored.struct
            if isinstance(pod, pods.Pod) and pod.spec.node_name == self._node:
                yield pod, stored

    def _fate(
        self,
        pod: pods.Pod,
        details: pod_details.PodDetails,
        verdict: drain_filters.Verdict,
    ) -> drain_answer.PodFate:
        controller = drain_filters.controller_of(pod)
        standing = self._account.standing(pod)
        action, waits = self._action(pod, verdict)
        is_leaving = action in (drain_answer.EVICT, drain_answer.DELETE)
        return drain_answer.PodFate(
            pod=_name(pod),
            action=action,
            owner=f"{controller.kind}/{controller.name}" if controller is not None else "",
            phase=pod.status.phase,
            filter=verdict.by.value if verdict.by is not None else "",
            message=verdict.message,
            gpus=self._stock.held(pod) / gpu_ledger.WHOLE,
            grace_seconds=self._grace(pod) if is_leaving else None,
            budget=standing.budget if standing is not None else "",
            waits=waits,
            notes=tuple(_notes(pod, details)) if is_leaving else (),
        )

    def _action(self, pod: pods.Pod, verdict: drain_filters.Verdict) -> tuple[str, str]:
        """What is done with the pod, and what it waits for."""
        if verdict.outcome is drain_filters.Outcome.ERROR:
            assert verdict.by is not None, "an error without its filter"
            next_ = step_after(verdict)
            self._block(verdict.by.value, f"cannot delete {verdict.message}", next_, pod)
            return drain_answer.REFUSE, ""
        if not verdict.leaves:
            return drain_answer.SKIP, ""
        if self._options.disable_eviction:
            return drain_answer.DELETE, ""
        return drain_answer.EVICT, self._refused(pod)

    def _refused(self, pod: pods.Pod) -> str:
        """What the eviction of a pod waits for: its budget, as we count it and as the server says."""
        standing = self._account.standing(pod)
        refusal = self._account.evict(pod)
        said = (self._answers or {}).get(_name(pod), "")
        if refusal is None:
            if standing is not None:
                self._begun.add(standing.budget)
            if said:
                self._block(SERVER_CODE, said, "ask the owner of what refuses", pod)
            return said
        # Where the budget allowed an eviction of this drain before, it goes on once that pod is back.
        if refusal.budget in self._begun and not refusal.is_final and not said:
            return f"the return of pods evicted before it: {refusal.message}"
        self._block(BUDGET_CODE, refusal.message, _budget_step(refusal.budget), pod)
        return refusal.message

    def _block(self, code: str, message: str, next_: str, pod: pods.Pod) -> None:
        self._blocked.setdefault((code, message, next_), []).append(_name(pod))

    def _grace(self, pod: pods.Pod) -> int:
        if self._options.grace_period_seconds >= 0:
            return self._options.grace_period_seconds
        own = pod.spec.termination_grace_period_seconds
        return DEFAULT_GRACE_SECONDS if own is None else own

    def _holders(self, judged: Sequence[Judged]) -> Iterable[drain_answer.Holder]:
        claims = self._replica.world.claims
        for pod, details, verdict in judged:
            if pod.status.phase in pods.TERMINAL_PHASES:
                continue
            is_kept = not verdict.leaves and verdict.outcome is not drain_filters.Outcome.ERROR
            holding = unrequested_gpus.holding(pod, details, claims)
            if holding is not None:
                yield drain_answer.Holder(
                    pod=_name(pod),
                    signs=holding.signs,
                    is_certain=holding.is_certain,
                    leaves=verdict.leaves,
                )
            elif is_kept and unrequested_gpus.requests_gpus(pod, claims):
                yield drain_answer.Holder(
                    pod=_name(pod),
                    signs=("requests GPUs, and the drain leaves it",),
                    is_certain=True,
                    leaves=False,
                )

    def _unknown(self, judged: Sequence[Judged], gpus: int) -> Iterable[str]:
        owners = [drain_filters.controller_of(pod) for pod, _, _ in judged]
        has_daemons = any(owner and drain_filters.is_daemon_set(owner) for owner in owners)
        if self._daemon_sets.names is None and has_daemons:
            yield "DaemonSets were not read: those that own pods here are taken to exist"
        if gpus:
            yield "programs outside pods that hold GPUs cannot be seen from the cluster"


def _name(pod: pods.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _budget_step(budgets: str) -> str:
    namespace, _, name = budgets.partition("/")
    if ", " in name:
        return "leave one budget over the pod"
    return f"kubectl -n {namespace} describe pdb {name}"


def _notes(pod: pods.Pod, details: pod_details.PodDetails) -> Iterable[str]:
    """What a person would want to know about the end of the pod and kubectl does not say."""
    if pod.metadata.deletion_timestamp is not None:
        yield "ends already"
    if pod.metadata.finalizers:
        yield f"stays until its finalizers are removed: {', '.join(pod.metadata.finalizers)}"
    is_finished = pod.status.phase in pods.TERMINAL_PHASES
    if details.has_local_storage and not is_finished:
        yield "loses the data of its emptyDir volumes"
    if drain_filters.controller_of(pod) is None and not is_finished:
        yield "no controller creates it again"
