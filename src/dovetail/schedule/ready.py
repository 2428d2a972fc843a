"""Decides whether a pod may be decided about at all: its gates, its claims, the constraints we can judge.

A constraint this version does not judge keeps the pod waiting and is named: placing it regardless could break what
its owner asked for. Given a pod and the books of claims. Never looks at nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.model import pods
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.claims import Books, Needs


def needs(pod: pods.Pod, books: Books) -> Needs | tuple[Reason, ...]:
    """The claims of a pod that is ready, or every reason why it is not."""
    reasons = (*_gates(pod), *_not_judged(pod))
    found = books.needs(pod)
    if isinstance(found, Needs):
        return reasons or found
    return (*reasons, *found)


def _gates(pod: pods.Pod) -> Iterator[Reason]:
    for gate in pod.spec.scheduling_gates:
        yield Reason(code=ReasonCode.GATED, subject=f"gate {gate.name}", detail="is not removed yet")


def _not_judged(pod: pods.Pod) -> Iterator[Reason]:
    for constraint in _constraints(pod.spec):
        detail = "cannot be judged by this version, so the pod is not placed"
        yield Reason(code=ReasonCode.NOT_JUDGED, subject=constraint, detail=detail)


def _constraints(spec: pods.PodSpec) -> Iterator[str]:
    affinity = spec.affinity or pods.Affinity()
    near, away = affinity.pod_affinity, affinity.pod_anti_affinity
    if near is not None and near.required_during_scheduling_ignored_during_execution:
        yield "required pod affinity"
    if away is not None and away.required_during_scheduling_ignored_during_execution:
        yield "required pod anti-affinity"
    if any(one.when_unsatisfiable == "DoNotSchedule" for one in spec.topology_spread_constraints):
        yield "topology spread"
    if any(port.host_port for one in (*spec.containers, *spec.init_containers) for port in one.ports):
        yield "host ports"
    if any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes):
        yield "persistent volumes"
