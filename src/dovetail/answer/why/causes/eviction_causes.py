"""Whether a rule about evictions is what a pod waits for: it would start if others had to leave for it.

Given a replica outside of any trial, and the pods that hold what is missing. Every rule is lifted alone and the engine
is asked again; the one with which the pod starts is the cause. Leaves the replica as it was. Never evicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dovetail.answer.replica import verdict
from dovetail.answer.replica.patches import Patch, ref_of
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.causes.reason_causes import cause
from dovetail.answer.why.why_answer import Cause, Holder
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.model import policy, workload_annotations
from dovetail.world import events

NEVER: Final = "Never"
SHOWN: Final = 3
_RUNTIMES: Final = ("minRuntimeSeconds", "preemptMinRuntimeSeconds", "reclaimMinRuntimeSeconds")


class _Rule(NamedTuple):
    code: CauseCode
    sentence: str
    changes: tuple[Patch, ...]


def cause_of(
    replica: Replica, pod: pods.Pod, holders: Iterable[Holder], policy_: policy.Policy
) -> Cause | None:
    """The rule without which the pod would start; None where none of them is in the way alone."""
    if not _may_gain(replica, pod, policy_):
        return None
    for rule in _rules(replica, pod, list(holders)):
        with replica.edited(replica.edits_of(rule.changes)):
            decided = replica.decide(policy_=policy_)
            if verdict.verdict(replica, events.pod_id(pod), decided).starts:
                return cause(rule.code, rule.sentence)
    return None


def _may_gain(replica: Replica, pod: pods.Pod, policy_: policy.Policy) -> bool:
    """Whether there is work that might have to leave for the pod: of lower priority, or of other queues."""
    lowest = replica.world.lowest_priority(policy_.scheduler_names)
    has_lower = lowest is not None and lowest < (pod.spec.priority or 0)
    return has_lower or bool(replica.world.queues)


def _rules(replica: Replica, pod: pods.Pod, holders: list[Holder]) -> Iterator[_Rule]:
    yield from _of_pod(pod)
    yield from _of_queues(replica, holders)
    yield from _of_holders(replica, holders)
    yield from _of_budgets(replica, holders)


def _of_pod(pod: pods.Pod) -> Iterator[_Rule]:
    """Rules of the pod itself."""
    if pod.spec.preemption_policy == NEVER:
        preempting = {"spec": {"preemptionPolicy": "PreemptLowerPriority"}}
        sentence = (
            "its preemptionPolicy is Never: pods of lower priority hold what it needs, and it "
            "waits until they end"
        )
        patch = Patch(object=ref_of(pod), merge=preempting)
        yield _Rule(CauseCode.PREEMPTION_NEVER, sentence, (patch,))
    delay = pod.metadata.annotations.get(workload_annotations.MAY_EVICT_AFTER)
    if delay is not None:
        change = {"metadata": {"annotations": {workload_annotations.MAY_EVICT_AFTER: None}}}
        sentence = (
            f"it evicts no other pod before it has waited {delay} "
            f"({workload_annotations.MAY_EVICT_AFTER}), and nothing is free"
        )
        yield _Rule(CauseCode.TOO_YOUNG, sentence, (Patch(object=ref_of(pod), merge=change),))


def _of_queues(replica: Replica, holders: list[Holder]) -> Iterator[_Rule]:
    """Work may run for a time before it is evicted. All queues at once: one decision, however many there are."""
    longest_by_name = {
        name: max(filter(None, _runtimes(queue)), default=0)
        for name, queue in sorted(replica.world.queues.items())
    }
    protecting = [name for name, longest in longest_by_name.items() if longest]
    if not protecting:
        return
    holding = {holder.queue for holder in holders}
    named = [name for name in protecting if name in holding] or protecting
    longest = max(longest_by_name[name] for name in named)
    noun = "queue" if len(named) == 1 else "queues"
    sentence = (
        f"work of {noun} {', '.join(named[:SHOWN])} holds what it needs and may not be evicted "
        f"before it has run {longest} s (minimum runtime)"
    )
    change = {"spec": dict.fromkeys(_RUNTIMES)}
    patches = tuple(
        Patch(object=ref_of(replica.world.queues[name]), merge=change) for name in protecting
    )
    yield _Rule(CauseCode.TOO_YOUNG, sentence, patches)


def _runtimes(queue: queues.Queue) -> tuple[int | None, ...]:
    spec = queue.spec
    return (
        spec.min_runtime_seconds,
        spec.preempt_min_runtime_seconds,
        spec.reclaim_min_runtime_seconds,
    )


def _of_holders(replica: Replica, holders: list[Holder]) -> Iterator[_Rule]:
    """Pods that declare that they must not be evicted."""
    fixed = []
    for holder in holders:
        namespace, _, name = holder.pod.partition("/")
        pod = replica.pod(namespace, name)
        if pod is not None and workload_annotations.PREEMPTIBLE in pod.metadata.annotations:
            fixed.append(pod)
    if not fixed:
        return
    change = {"metadata": {"annotations": {workload_annotations.PREEMPTIBLE: "true"}}}
    patches = tuple(Patch(object=ref_of(pod), merge=change) for pod in fixed)
    names = ", ".join(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in fixed[:SHOWN])
    more = f" and {len(fixed) - SHOWN} more" if len(fixed) > SHOWN else ""
    sentence = f"non-preemptible pods hold what it needs: {names}{more}"
    yield _Rule(CauseCode.PREEMPTION_NEVER, sentence, patches)


def _of_budgets(replica: Replica, holders: list[Holder]) -> Iterator[_Rule]:
    """Disruption budgets that allow no eviction: those of the holders' namespaces, all at once."""
    namespaces = {holder.pod.partition("/")[0] for holder in holders}
    refs = [
        ref_of(stored.struct)
        for stored in replica.listed(registry.BUDGET.unique_name)
        if stored.struct.metadata.namespace in namespaces
    ]
    if not refs:
        return
    names = ", ".join(f"{ref.namespace}/{ref.name}" for ref in refs[:SHOWN])
    more = f" and {len(refs) - SHOWN} more" if len(refs) > SHOWN else ""
    noun, verb = ("budget", "allows") if len(refs) == 1 else ("budgets", "allow")
    sentence = (
        f"pods that could yield hold what it needs, and disruption {noun} {names}{more} {verb} no "
        "eviction of them now"
    )
    patches = tuple(Patch(object=ref, delete=True) for ref in refs)
    yield _Rule(CauseCode.PREEMPTION_NEVER, sentence, patches)
