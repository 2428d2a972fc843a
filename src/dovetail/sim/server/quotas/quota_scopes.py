"""Decides whether a ResourceQuota counts an object: scopes narrow a quota down to some pods.

Given the spec of a quota and a stored object; answers as kube-apiserver's pod evaluator does. Objects other than pods
are in no scope. Never counts anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.kubetypes.core import pods, resource_quotas
from dovetail.model import pod_requests
from dovetail.sim.server.object_store import Record
from dovetail.sim.server.quotas import quota_charges
from dovetail.sim.server.served_kinds import TableKey

_QOS_RESOURCES: Final = (pod_requests.CPU, pod_requests.MEMORY)


def counts(spec: resource_quotas.ResourceQuotaSpec, table: TableKey, record: Record) -> bool:
    """Whether an object is in every scope of a quota. A quota without scopes counts everything."""
    if not spec.scopes and spec.scope_selector is None:
        return True
    if table != quota_charges.POD_TABLE:
        return False
    return all(_is_met(requirement, record.struct) for requirement in _requirements(spec))


def _requirements(
    spec: resource_quotas.ResourceQuotaSpec,
) -> Iterator[resource_quotas.ScopedRequirement]:
    for scope in spec.scopes:
        yield resource_quotas.ScopedRequirement(scope_name=scope, operator="Exists")
    if spec.scope_selector is not None:
        yield from spec.scope_selector.match_expressions


def _is_met(requirement: resource_quotas.ScopedRequirement, pod: pods.Pod) -> bool:
    match requirement.scope_name:
        case "Terminating":
            return _has_deadline(pod)
        case "NotTerminating":
            return not _has_deadline(pod)
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            return _has_class(requirement, pod.spec.priority_class_name)
        case "CrossNamespacePodAffinity":
            return any(_crosses_namespaces(term) for term in _affinity_terms(pod))
        case _:
            return False


def _has_deadline(pod: pods.Pod) -> bool:
    deadline = pod.spec.active_deadline_seconds
    return deadline is not None and deadline >= 0


def _is_best_effort(pod: pods.Pod) -> bool:
    """Whether the pod's quality of service is BestEffort: no cpu and no memory requested or limited."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    stated = [container.resources for container in containers]
    if pod.spec.resources is not None:
        stated.append(pod.spec.resources)
    return not any(_states_compute(resources) for resources in stated)


def _states_compute(resources: pods.ResourceRequirements) -> bool:
    amounts = [
        amount
        for listed in (resources.requests, resources.limits)
        for name, amount in listed.items()
        if name in _QOS_RESOURCES
    ]
    return any(amount.nanos > 0 for amount in amounts)


def _has_class(requirement: resource_quotas.ScopedRequirement, name: str) -> bool:
    """Whether the pod's priority class is among those required, by the rules of label selectors."""
    match requirement.operator:
        case "In":
            return bool(name) and name in requirement.values
        case "NotIn":
            return name not in requirement.values
        case "DoesNotExist":
            return not name
        case _:
            return bool(name)


def _affinity_terms(pod: pods.Pod) -> Iterator[pods.PodAffinityTerm]:
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for rules in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if rules is None:
            continue
        yield from rules.required_during_scheduling_ignored_during_execution
        for preferred in rules.preferred_during_scheduling_ignored_during_execution:
            yield preferred.pod_affinity_term


def _crosses_namespaces(term: pods.PodAffinityTerm) -> bool:
    return bool(term.namespaces) or term.namespace_selector is not None
