"""Whether the scheduler that a pending pod names runs at all: Leases, pods, and what it wrote about any pod.

Given the replica. A pod to which no scheduler wrote anything for a while, and whose scheduler left no trace, waits in
vain. Never says so about a scheduler of the policy, nor about one that a Lease or pod shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail import timestamps
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import observation, pod_group_conditions
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import fields, quoting
from dovetail.answer.why.evidence.sources.pod_state import PodState
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods

DEFAULT: Final = "default-scheduler"
SYSTEM_NAMESPACE: Final = "kube-system"  # nodes have their Leases elsewhere
PATIENCE_SECONDS: Final = 60.0  # in which a running scheduler looks at a pod
_SLACK_SECONDS: Final = 30.0  # a Lease may be this much older than its duration
PROGRAMS: Final = {DEFAULT: "kube-scheduler"}  # by the name of the scheduler
_NAME_LABELS: Final = ("app", "component", "app.kubernetes.io/name", "app.kubernetes.io/component")
_SCHEDULER_REASONS: Final = ("FailedScheduling", "Scheduled", "Unschedulable", "Preempted")


def absent(replica: Replica, state: PodState) -> Observed | None:
    """The pod's scheduler left no trace."""
    name = state.pod.spec.scheduler_name or DEFAULT
    if state.node or state.scheduled or name in replica.policy.scheduler_names:
        return None
    if state.newest(*_SCHEDULER_REASONS) is not None or state.pod.spec.scheduling_gates:
        return None
    if any(event.source == name for event in state.events):
        return None
    if pod_group_conditions.kai(replica, state) or pod_group_conditions.volcano(replica, state):
        return None  # it wrote about the pod's group
    age = (replica.now - state.created).total_seconds() if state.created else None
    if age is not None and age < PATIENCE_SECONDS:
        return None
    leases = list(replica.listed(registry.LEASE.unique_name, namespace=SYSTEM_NAMESPACE))
    # Without leases nothing shows that kube-scheduler is away: most clusters hide its pod.
    if (name == DEFAULT and (not leases or age is None)) or _leaves_traces(replica, name, state):
        return None

    since = f" for {int(age // 60)} minutes" if age is not None else ""
    sentence = (
        f'no scheduler called "{quoting.words(name, 63)}" runs here: none wrote anything about the pod{since}; '
        "start it, or create the pod with another schedulerName"
    )
    read = "no Lease of it is renewed and no pod of it runs" if leases else "no pod of it runs"
    line = quoting.line(f"Pod {state.id}", state.created, f"spec.schedulerName {name}; {read}")
    return observation.observed_cause(
        CauseCode.SCHEDULER_ABSENT, sentence, line, overrides=age is not None
    )


def _leaves_traces(replica: Replica, name: str, state: PodState) -> bool:
    program = PROGRAMS.get(name, name)
    if any(_is_named_after(lease, program) for lease in renewed_leases(replica)):
        return True
    for stored in replica.listed(registry.POD.unique_name):
        pod = stored.struct
        if not isinstance(pod, pods.Pod):
            continue
        if pod.status.phase == "Running" and _is_pod_of(program, pod):
            return True
        if (pod.spec.scheduler_name or DEFAULT) == name and _was_decided_since(pod, state):
            return True
    return False


def _was_decided_since(pod: pods.Pod, state: PodState) -> bool:
    """Whether a scheduler wrote about another pod after this one was created: what it did before proves nothing."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled":
            moment = timestamps.parse_or_none(condition.last_transition_time)
            return moment is None or state.created is None or moment >= state.created
    return False


def renewed_leases(replica: Replica) -> Iterator[str]:
    """The names of Leases whose holders are alive."""
    for stored in replica.listed(registry.LEASE.unique_name):
        tree = stored.tree
        renewed = fields.time_at(tree, "spec", "renewTime")
        duration = fields.number_at(tree, "spec", "leaseDurationSeconds")
        if renewed is None or not fields.text_at(tree, "spec", "holderIdentity"):
            continue
        if (replica.now - renewed).total_seconds() <= duration + _SLACK_SECONDS:
            yield stored.struct.metadata.name


def _is_pod_of(program: str, pod: pods.Pod) -> bool:
    labels = pod.metadata.labels
    names = [pod.metadata.name, *(labels.get(key, "") for key in _NAME_LABELS)]
    return any(_is_named_after(name, program) for name in names)


def _is_named_after(name: str, program: str) -> bool:
    return name == program or (f"-{program}-" in f"-{name}-" and "scheduler" in name)
